"""Packages of JavaScript programs: from a registry on loopback, found by `import` and `require`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import from_json
from skillyard.core.result import Result
from tests.conftest import Skillyard, WriteSkill
from tests.faces.test_env import environments
from tests.npm_registry import open_registry

pytestmark = pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
SKILL = "---\nname: pages\ndescription: Pages\n---\n# Pages\n"
FILES = {
    "scripts/esm.mjs": "import fs from 'node:fs';\nimport tiny from 'tiny';\nconsole.log(tiny('esm'));\n",
    "scripts/common.cjs": "const tiny = require('tiny');\nconsole.log(tiny('common'));\n",
    "scripts/plain.mjs": "import { join } from 'path';\nimport './own.mjs';\nconsole.log('plain');\n",
    "scripts/own.mjs": "export const own = 1;\n",
    "package.json": '{"dependencies": {"tiny": "^1.0.0"}}',
}


@pytest.fixture
def registry() -> Iterator[dict[str, str]]:
    with open_registry({"tiny": "module.exports = (word) => `hello ${word}`;\n"}) as address:
        yield {"NPM_CONFIG_REGISTRY": address}


def answer(skillyard: Skillyard, *words: str, **env: str) -> Result:
    done = skillyard(words[0], "--json", *words[1:], **env)
    assert done.stdout, done.stderr
    return from_json(done.stdout)


def test_packages_of_node_are_installed_without_their_scripts_and_found_by_import_and_require(
    skillyard: Skillyard, write_skill: WriteSkill, registry: dict[str, str], places: ProjectPaths
) -> None:
    write_skill("pages", SKILL, FILES)
    assert answer(skillyard, "run", "@pages:scripts/plain.mjs").data["content"] == "plain"
    refused = answer(skillyard, "run", "@pages:scripts/esm.mjs")
    assert (refused.data["type"], refused.data["packages"]) == ("NotGranted", ["tiny@^1.0.0"])
    assert refused.data["grant"] == "skillyard env @pages:scripts/esm.mjs"

    built = answer(skillyard, "env", "@pages", "--accept", **registry)

    assert built.ok, built.data
    (environment,) = environments(built)
    assert environment["installer"] == "npm"
    folder = Path(environment["path"])
    assert not list(folder.rglob("ran"))
    for script, word in (("esm.mjs", "esm"), ("common.cjs", "common")):
        assert answer(skillyard, "run", f"@pages:scripts/{script}").data["content"] == f"hello {word}"


def test_an_undeclared_import_is_named_and_a_missing_package_can_be_left_out(
    skillyard: Skillyard, write_skill: WriteSkill, registry: dict[str, str]
) -> None:
    source = "import tiny from 'tiny';\nlet more;\ntry {\n  more = await import('nowhere-at-all');\n} catch {}\n"
    source += "console.log(tiny(typeof more));\n"
    files = {"x.mjs": source, "package.json": '{"dependencies": {"gone-away": "1"}}'}
    write_skill("pages", SKILL, files)

    refused = answer(skillyard, "run", "@pages:x.mjs")
    assert "tiny (imported, not declared)" in str(refused.data["msg"])
    failed = answer(skillyard, "env", "@pages", "--accept", **registry)
    assert failed.data["requirement"] == "gone-away@1"
    assert failed.data["place"] == "package.json, line 1"
    assert failed.data["grant"] == "skillyard env @pages --without gone-away"

    assert answer(skillyard, "env", "@pages", "--without", "gone-away", "--accept", **registry).ok
    assert answer(skillyard, "run", "@pages:x.mjs").data["content"] == "hello undefined"


@pytest.mark.parametrize(
    "version", ["git+https://127.0.0.1/x.git", "file:../x", "someone/else", "http://127.0.0.1/x.tgz"]
)
def test_a_package_json_that_says_where_from_is_refused(
    skillyard: Skillyard, write_skill: WriteSkill, version: str
) -> None:
    files = {"x.mjs": "import tiny from 'tiny';\n", "package.json": f'{{"dependencies": {{"tiny": "{version}"}}}}'}
    write_skill("pages", SKILL, files)

    refused = answer(skillyard, "run", "@pages:x.mjs")

    assert refused.data["type"] == "InvalidCommand"
    assert refused.data["grant"] == "skillyard env @pages:x.mjs --without=tiny"
