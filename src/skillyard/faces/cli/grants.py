"""Show what was granted in this project, and whether it still counts.

A grant is for exactly the bytes that a skill had; after a change it is void until it is given again.
"""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from skillyard.app.project import open_project
from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.errors import SkillError
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Table
from skillyard.store.grants import Grant

_COUNTS, _VOID = Message("yes"), Message("void")
_EMPTY = Message("Nothing was granted here.")


def arguments(parser: Parser) -> None:
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project(ends_with_process=True) as yard:
        grants = yard.grants.list()
    rows = [(grant, _counts(grant)) for grant in grants]
    data: list[Json] = [
        {"skill": grant.skill, "capability": grant.capability, "granted": _when(grant), "counts": counts}
        for grant, counts in rows
    ]
    return Answer(
        summary=Message("{count} grants"),
        words={"count": len(grants)},
        data={"grants": data},
        page=Table(
            columns=("capability", "granted", "counts", "skill"),
            rows=[
                (grant.capability, _when(grant), (_COUNTS if counts else _VOID).render(lang), grant.skill)
                for grant, counts in rows
            ],
            empty=_EMPTY.render(lang),
        ),
    )


def _counts(grant: Grant) -> bool:
    folder = Path(grant.skill)
    if not folder.is_dir():
        return False
    try:
        return fingerprint(folder, in_role=folder.parent.name == "agents") == grant.fingerprint
    except SkillError:
        return False  # it cannot be read, so nothing that was granted to it counts


def _when(grant: Grant) -> str:
    return datetime.fromtimestamp(grant.granted, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
