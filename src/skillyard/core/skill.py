"""A skill as the catalog reads it, its kind, its params, and the findings about its file.

Lists need a kind's name and nothing else, so its module is named here and loaded only when a skill of it is used."""

import unicodedata
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, final

from skillyard.core.messages import Message, as_json, of_json
from skillyard.core.values import NOTHING, Json, lazy_pattern


@final
class Kind(str):  # noqa: SLOT000  (a kind has its traits in its dictionary)
    """The name of a kind, with what the rest of the house must know about it.

    `Kind(name)` returns the declared kind, always the same object, or raises ValueError. `Kind.declare` adds one.
    """

    COMMAND: ClassVar["Kind"]
    PROMPT: ClassVar["Kind"]
    JSON: ClassVar["Kind"]

    #: See `runners/kind.py` for what the module must offer.
    module: str
    #: `protocol: <name>` in SKILL.md chooses it.
    by_protocol: bool = False
    #: `entry:` names its program.
    has_entry: bool = False
    #: Running it starts a program. A kind that does not needs no grants and can be done by a backend agent.
    starts_program: bool = True
    #: A request names one of the skill's actions.
    has_actions: bool = False
    #: Params that the skill does not declare are passed on.
    takes_any_param: bool = False
    #: A param that is a list or a mapping is passed as text.
    takes_text: bool = False
    #: Words after the name are text for the skill and bind no params.
    takes_words: bool = False
    #: Piped input reaches its program, or is its request.
    reads_stdin: bool = True
    #: Its programs may import `skillyard.skill`.
    imports_helper: bool = False
    limit_seconds: float = 60.0

    def __new__(cls, name: str) -> "Kind":
        try:
            return KINDS[name]
        except KeyError:
            raise ValueError(f"no kind of skill is called {name!r}") from None

    @property
    def takes_only_declared(self) -> bool:
        """A param that the skill does not declare is refused."""
        return not self.takes_any_param and not self.takes_words

    @classmethod
    def declare(cls, name: str, module: str, *, limit_seconds: float = 60.0, **traits: bool) -> "Kind":
        """Add a kind. Its name must be new, or declared before with the same module."""
        if name in KINDS and KINDS[name].module != module:
            raise ValueError(f"the kind {name!r} is in {KINDS[name].module}")
        if unknown := set(traits) - set(cls.__annotations__):
            raise TypeError(f"a kind has no {', '.join(sorted(unknown))}")
        kind = super().__new__(cls, name)
        vars(kind).update(traits, module=module, limit_seconds=limit_seconds)
        return KINDS.setdefault(name, kind)


#: Every kind by its name.
KINDS: dict[str, Kind] = {}

Kind.COMMAND = Kind.declare("command", "skillyard.runners.command", takes_text=True)
Kind.PROMPT = Kind.declare(
    "prompt", "skillyard.runners.prompt", starts_program=False, reads_stdin=False, takes_words=True
)
Kind.JSON = Kind.declare(
    "json",
    "skillyard.runners.json_skill",
    by_protocol=True,
    has_entry=True,
    has_actions=True,
    takes_any_param=True,
    imports_helper=True,
    limit_seconds=300.0,
)


#: A slot of a command, `{name}` or `${name}`: one pattern for those who read and those who fill.
NAME: Final = r"[^\W\d][\w-]*"
SLOT: Final = lazy_pattern(rf"\$?\{{({NAME})\}}")
#: The slots that we fill; all others are params.
OWN_SLOTS: Final = frozenset({"output", "skill", "baseDir", "CLAUDE_SKILL_DIR"})


def fold(text: str) -> str:
    """Return the text for comparisons: without differences of case, full-width letters and ligatures."""
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return folded.replace("c#", "csharp").replace("c++", "cplusplus")  # no tokeniser keeps these signs


class Severity(StrEnum):
    """How bad a finding is; `rank` orders them."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Finding(NamedTuple):
    """A problem or note about a file: where, how bad, and what to do about it."""

    code: str
    severity: Severity
    message: str
    advice: str = ""
    line: int = 1
    column: int = 1

    def as_dict(self) -> dict[str, Json]:
        place = {"line": self.line, "column": self.column}
        said = {"message": self.message, "advice": self.advice}
        return {"code": self.code, "severity": str(self.severity), **place, **said}


def first_of(findings: Sequence[Finding], file: str) -> Message:
    """Return the first finding with its place, and how many more there are."""
    first = Message("{place}: {reason}", place=f"{file}:{findings[0].line}", reason=findings[0].message)
    more = len(findings) - 1
    return Message("{first} (and {count} more)", first=first, count=more) if more else first


class ParamType(StrEnum):
    STRING = "string"
    INT = "int"
    NUMBER = "number"
    BOOL = "bool"
    ENUM = "enum"
    PATH = "path"
    OBJECT = "object"
    ARRAY = "array"


class Param(NamedTuple):
    name: str
    required: bool = False
    type: ParamType = ParamType.STRING
    default: Json = None
    description: str = ""
    prompt: str = ""
    choices: tuple[str, ...] = ()
    validation: str = ""
    #: A value may start with `-`: the author says that the program takes options there.
    option: bool = False
    #: The JSON Schema of what an object or an array holds, as far as it is declared.
    inside: Mapping[str, Json] | None = None


def as_exit_codes(value: Json) -> tuple[int, ...] | None:
    """Return the exit codes of a list or a text like `0,1`, always with 0; None if it is anything else."""
    listed = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    texts = [str(item).strip() for item in listed]
    if not texts or not all(text.isascii() and text.isdigit() and int(text) < 256 for text in texts):
        return None
    return tuple(sorted({0, *map(int, texts)}))


#: Findings after which it is unknown what would run.
_BREAKING = frozenset({"run-unsure", "field-swallowed", "command-not-text", "entry-missing", "entry-outside"})


class Skill(NamedTuple):
    """One skill, wherever it came from: what we read from its file."""

    name: str
    path: Path
    kind: Kind
    description: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    params: tuple[Param, ...] = ()
    command: str = ""
    entry: str = ""
    actions: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    #: Exit codes of its programs that are no failure: a linter's 1 says that it found something.
    success_exit_codes: tuple[int, ...] = (0,)
    #: agents/<role>, for a skill that an agent.yaml declares.
    role: str = ""
    #: The whole frontmatter as written, known and unknown fields alike.
    fields: Mapping[str, Json] = NOTHING
    findings: tuple[Finding, ...] = ()

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def folder_name(self) -> str:
        """The name that resolves first. The skills of a role share one folder, so theirs is the skill's name."""
        return self.name if self.role else self.path.parent.name

    @property
    def severity(self) -> Severity | None:
        """The worst severity of the findings."""
        return max((finding.severity for finding in self.findings), key=lambda s: s.rank, default=None)

    @property
    def broken(self) -> Finding | None:
        """The first error of its file that makes it another skill than its author meant: it is not run then."""
        return next((finding for finding in self.findings if finding.code in _BREAKING), None)

    def as_record(self) -> str:
        """Return the skill as one JSON text, as the index keeps it."""
        findings = [{name: as_json(value) for name, value in each._asdict().items()} for each in self.findings]
        params = [param._asdict() for param in self.params]
        changed = {"path": str(self.path), "params": params, "fields": dict(self.fields), "findings": findings}
        import json  # noqa: PLC0415  (lists need no whole skill)

        return json.dumps({**self._asdict(), **changed}, ensure_ascii=False)

    @classmethod
    def from_record(cls, record: str) -> "Skill":
        """Return the skill that `as_record` gave."""
        import json  # noqa: PLC0415

        fields: dict[str, Any] = json.loads(record)
        params = [
            Param(**{**param, "type": ParamType(param["type"]), "choices": tuple(param["choices"])})
            for param in fields["params"]
        ]
        read = ({name: of_json(value) for name, value in each.items()} for each in fields["findings"])
        findings = [Finding(**{**each, "severity": Severity(each["severity"])}) for each in read]
        fields |= {"path": Path(fields["path"]), "kind": Kind(fields["kind"]), "params": params, "findings": findings}
        listed = ("tags", "actions", "success_exit_codes", "params", "findings")
        return cls(**{**fields, **{key: tuple(fields[key]) for key in listed}})
