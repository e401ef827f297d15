"""The kinds of skill: what each takes, and the module that reads, starts and probes it.

Lists need a kind's name and nothing else, so its module is named here and loaded only when a skill of it is used.
"""

from typing import ClassVar, final


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
Kind.PROMPT = Kind.declare("prompt", "skillyard.runners.prompt", starts_program=False, takes_words=True)
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
