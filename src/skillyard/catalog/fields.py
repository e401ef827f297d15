"""The fields that we know by name: the Agent Skills standard's, Claude Code's, and our own."""

#: Fields that are text whatever they look like: a skill may be called `yes`, and version 1.0 is not 1.
TEXT_FIELDS = frozenset(
    {
        "name",
        "title",
        "description",
        "license",
        "compatibility",
        "command",
        "entry",
        "protocol",
        "version",
        "model",
        "context",
        "agent",
        "argument-hint",
        "when_to_use",
        "when-to-use",
        "author",
        "category",
        "homepage",
        "effort",
    }
)

#: Fields that decide what may run or who may call. A broken one is never guessed.
GUARDED_FIELDS = frozenset(
    {
        "command",
        "entry",
        "protocol",
        "params",
        "parameters",
        "required_params",
        "allowed-tools",
        "disallowed-tools",
        "tools",
        "hooks",
        "shell",
        "permissions",
        "disable-model-invocation",
        "user-invocable",
        "user-invokable",
    }
)

STANDARD_FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})

#: What only Claude Code understands (its reference of SKILL.md frontmatter).
CLAUDE_FIELDS = frozenset(
    {
        "when_to_use",
        "argument-hint",
        "arguments",
        "disable-model-invocation",
        "user-invocable",
        "disallowed-tools",
        "model",
        "effort",
        "context",
        "agent",
        "hooks",
        "paths",
        "shell",
    }
)

#: What we understand on top.
OWN_FIELDS = frozenset(
    {
        "title",
        "tags",
        "triggers",
        "keywords",
        "version",
        "command",
        "entry",
        "protocol",
        "actions",
        "params",
        "parameters",
        "required_params",
        "timeout",
        "timeout_seconds",
    }
)


def is_guarded(field: str) -> bool:
    """Also in the spellings that other agents take: `allowed_tools`, `Allowed-Tools`, `allowedTools`."""
    folded = field.replace("_", "").replace("-", "").lower()
    return folded in _GUARDED_FOLDED


_GUARDED_FOLDED = frozenset(field.replace("_", "").replace("-", "") for field in GUARDED_FIELDS)
