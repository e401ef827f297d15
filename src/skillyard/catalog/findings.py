"""Every finding there is, as data: how bad it is, what it says and what to do about it.

A finding can only be made from a rule that stands here, so an unknown code is impossible. Errors are what
breaks the reading or a limit of the standard; warnings are the standard's other rules and what is likely a
mistake; notes are good to know. `--strict` takes warnings for errors.
"""

from enum import Enum

from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Severity

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_SHOWN = 80


class Rule(Enum):
    """One kind of finding; its code is its name in lower case with hyphens."""

    # The file
    FILE_UNREADABLE = (
        _E,
        Message("the file cannot be read: {reason}"),
        Message("check that it exists and may be read"),
    )
    FILE_TOO_LARGE = (
        _E,
        Message("the file has more than {limit} bytes"),
        Message("move long texts to files of their own"),
    )
    FILE_EMPTY = (
        _E,
        Message("the file is empty"),
        Message("write frontmatter with name and description, then the text"),
    )
    ENCODING_BOM = (_N, Message("the file starts with a byte order mark"), Message("save it as UTF-8 without BOM"))
    ENCODING_UTF16 = (_W, Message("the file is {encoding}, not UTF-8"), Message("save it as UTF-8"))
    ENCODING_GBK = (_W, Message("the file is not UTF-8; read as {encoding}"), Message("save it as UTF-8"))
    ENCODING_GUESSED = (_W, Message("the file is not UTF-8; read as {encoding}, a guess"), Message("save it as UTF-8"))
    ENCODING_NUL = (_W, Message("the file contains NUL characters"), Message("remove them"))
    NEWLINES_CRLF = (_N, Message("lines end with CR LF"), Message("save it with LF line ends"))
    NEWLINES_MIXED = (_W, Message("line ends are mixed"), Message("save it with LF line ends only"))
    MERGE_CONFLICT = (
        _E,
        Message("a merge conflict was left in the file"),
        Message("resolve it and remove the marker lines"),
    )

    # The fences
    FRONTMATTER_MISSING = (
        _E,
        Message("there is no frontmatter"),
        Message("start the file with ---, name:, description: and --- on lines of their own"),
    )
    FRONTMATTER_EMPTY = (
        _E,
        Message("the frontmatter holds no fields"),
        Message("write name: and description: into it"),
    )
    FRONTMATTER_TOO_LARGE = (
        _E,
        Message("the frontmatter has more than {limit} bytes"),
        Message("move text to the body"),
    )
    FENCE_LEADING_BLANK = (_E, Message("blank lines stand before the opening ---"), Message("remove them"))
    FENCE_TEXT_BEFORE = (
        _E,
        Message("text stands before the opening ---"),
        Message("make --- the first line of the file"),
    )
    FENCE_COMMENT_BEFORE = (
        _E,
        Message("a comment stands before the opening ---"),
        Message("move it below the frontmatter"),
    )
    FENCE_IN_CODE = (_E, Message("the frontmatter is inside a code block"), Message("remove the ``` around it"))
    FENCE_ODD_OPEN = (_E, Message("the opening fence is {shown}"), Message("write exactly --- on that line"))
    FENCE_NO_OPEN = (_E, Message("fields start without an opening ---"), Message("add a line --- before them"))
    FENCE_NO_CLOSE = (_E, Message("the closing --- is missing"), Message("add a line --- after the last field"))
    FENCE_GLUED_CLOSE = (_E, Message("text is glued to the closing ---"), Message("put {shown} on the next line"))
    FENCE_ODD_CLOSE = (_E, Message("the closing fence is {shown}"), Message("write exactly --- on that line"))
    FENCE_ONE_LINE = (
        _E,
        Message("the whole frontmatter stands on one line"),
        Message("put each field on its own line"),
    )

    # The YAML
    YAML_INVALID = (
        _E,
        Message("not valid YAML: {reason}"),
        Message("correct this place; quote text that holds : or #"),
    )
    YAML_NOT_MAPPING = (_E, Message("the frontmatter is {shape}, not fields"), Message("write `field: value` lines"))
    YAML_TOO_DEEP = (_E, Message("values are nested deeper than {limit} levels"), Message("flatten them"))
    YAML_ANCHOR = (
        _E,
        Message("anchors (&) are refused"),
        Message("write the value out, or quote a text that starts with &"),
    )
    YAML_ALIAS = (
        _E,
        Message("aliases (*) are refused"),
        Message("write the value out, or quote a text that starts with *"),
    )
    YAML_TAG = (_E, Message("tags (!) are refused"), Message("remove the tag, or quote a text that starts with !"))
    YAML_MERGE = (_E, Message("merge keys (<<) are refused"), Message("write the fields out"))
    YAML_KEY = (_E, Message("a field's name is not text"), Message("use a word as the name of the field"))
    YAML_DUPLICATE = (
        _E,
        Message("the field {field} stands here again"),
        Message("keep one of them; the last one counts"),
    )
    VALUE_CUT = (_W, Message("` #` cuts the value of {field} here"), Message("put the whole value in quotes"))

    # Repairs
    REPAIR_REFUSED = (
        _E,
        Message("{field} is broken and is never guessed: the field is not used"),
        Message("correct it by hand: it decides what may run or who may call"),
    )
    FIELD_UNREADABLE = (_E, Message("the field {field} cannot be read"), Message("correct its YAML"))
    REPAIR_LINE = (
        _W,
        Message("this line belongs to no field and was ignored"),
        Message("remove it or make it a field"),
    )
    REPAIR_COLON = (_W, Message("{field} holds `: ` and was read as text"), Message("put the value in quotes"))
    REPAIR_BLOCK = (
        _W,
        Message("{field} has text on the line of > or |"),
        Message("move the text to the next line, indented"),
    )
    REPAIR_INDICATOR = (
        _W,
        Message("{field} starts with {shown} and was read as text"),
        Message("put the value in quotes"),
    )
    REPAIR_QUOTES = (
        _W,
        Message("the quotes of {field} are broken; read as text"),
        Message("close or double the quotes"),
    )
    REPAIR_FLOW = (
        _W,
        Message("the brackets of {field} are broken; read as text"),
        Message("close them, or quote the value"),
    )
    REPAIR_INDENT = (_W, Message("the lines after {field} are not indented; joined to it"), Message("indent them"))
    REPAIR_TABS = (_W, Message("{field} is indented with tabs; read as spaces"), Message("indent with spaces"))
    REPAIR_CONTROL = (_W, Message("{field} holds control characters"), Message("remove them"))
    REPAIR_ESCAPE = (_W, Message("{field} escapes half characters; joined"), Message("write the character itself"))
    REPAIR_NESTED = (_W, Message("a value inside {field} was read as text"), Message("put that value in quotes"))

    # The standard's fields
    NAME_MISSING = (_E, Message("there is no name; the folder's is used"), Message("add `name: {name}`"))
    NAME_NOT_TEXT = (_E, Message("the name is not text"), Message("write `name: some-name`"))
    NAME_INVALID = (
        _W,
        Message("the name {name} has other characters than a-z, 0-9 and single hyphens between"),
        Message("rename it to {better}"),
    )
    NAME_TOO_LONG = (_E, Message("the name has {count} characters"), Message("use at most {limit}"))
    NAME_NOT_FOLDER = (_W, Message("the name {name} is not its folder's, {folder}"), Message("rename one of them"))
    DESCRIPTION_MISSING = (
        _E,
        Message("there is no description; the text's first paragraph is used"),
        Message("add `description:` saying what the skill does and when to use it"),
    )
    DESCRIPTION_NOT_TEXT = (_E, Message("the description is not text"), Message("write it as one text, in quotes"))
    DESCRIPTION_TOO_LONG = (_E, Message("the description has {count} characters"), Message("use at most {limit}"))
    DESCRIPTION_XML = (
        _W,
        Message("the description holds the tag {shown}"),
        Message("agents put it into XML: remove the tag"),
    )
    COMPATIBILITY_TOO_LONG = (_E, Message("compatibility has {count} characters"), Message("use at most {limit}"))
    FIELD_TYPE = (_W, Message("{field} is {shape}; it should be {wanted}"), Message("write it as {wanted}"))
    METADATA_VALUES = (_N, Message("metadata.{field} is not text"), Message("the standard wants text values: quote it"))
    BODY_EMPTY = (_W, Message("there is no text below the frontmatter"), Message("say what the agent should do"))
    BODY_LONG = (
        _N,
        Message("the text has {count} lines"),
        Message("keep it below {limit}; move details to references/"),
    )
    HIDDEN_CHARACTERS = (
        _W,
        Message("a hidden character, {shown}, stands here"),
        Message("remove it: readers cannot see it"),
    )

    # What runs
    COMMAND_EMPTY = (
        _W,
        Message("command is empty: this is a prompt skill"),
        Message("remove it, or write the program"),
    )
    COMMAND_SLASH = (_W, Message("{name} is a slash command's name, no program"), Message("remove `command`"))
    COMMAND_NOT_TEXT = (_E, Message("command is {shape}, not text"), Message("write the command line as one text"))
    COMMAND_QUOTES = (_E, Message("the command's quotes are not closed"), Message("close them"))
    COMMAND_SHELL = (
        _E,
        Message("the command holds {shown}, which needs a shell"),
        Message("put it in a script and call that"),
    )
    ENTRY_MISSING = (
        _E,
        Message("protocol is json, but there is no entry"),
        Message("add `entry:` with the program's path"),
    )
    ENTRY_OUTSIDE = (
        _E,
        Message("the entry {name} leaves the skill's folder"),
        Message("name a file inside the folder"),
    )
    PROTOCOL_UNKNOWN = (_W, Message("the protocol {name} is unknown"), Message("write `protocol: json`, or remove it"))
    TIMEOUT_INVALID = (
        _W,
        Message("timeout {name} is no number of seconds above 0"),
        Message("write a number of seconds"),
    )
    PARAMS_SHAPE = (_E, Message("{field} is {shape}, not a mapping or a list"), Message("list the params by name"))
    PARAM_NAME = (_E, Message("a param has no usable name"), Message("name it with letters, digits, _ and -"))
    PARAM_SHAPE = (_E, Message("the param {name} is {shape}"), Message("write {{required: true, type: string}}"))
    PARAM_TYPE = (_W, Message("the param {name} has the unknown type {type}"), Message("use one of: {known}"))
    PARAM_VALIDATION = (
        _W,
        Message("the param {name} has the unknown validation {check}"),
        Message("use one of: {known}"),
    )
    PARAM_FLAG = (_W, Message("`{flag}` of the param {name} is not true or false"), Message("write true or false"))
    PARAM_CHOICES = (_E, Message("the enum {name} lists no choices"), Message("add `choices: [one, two]`"))
    PARAM_DEFAULT = (_E, Message("the default of {name} is not of its type, {type}"), Message("correct the default"))
    PARAM_TWICE = (_W, Message("the param {name} is declared twice"), Message("keep one; the first one counts"))
    PARAM_UNUSED = (
        _W,
        Message("the command has no slot for the param {name}"),
        Message("add {{{name}}} to the command"),
    )
    PARAM_UNDECLARED = (
        _N,
        Message("the slot {{{name}}} is not declared"),
        Message("declare it with type and description"),
    )

    # The roles: agents/<role>/agent.yaml
    ROLE_UNREADABLE = (_E, Message("the file cannot be read: {reason}"), Message("correct agent.yaml"))
    ROLE_OUTSIDE = (
        _E,
        Message("the role leads out of the project through a link"),
        Message("put its folder into agents/"),
    )
    ROLE_VALUE = (_E, Message("a value is not as the schema says"), Message("see docs/reference/agent-yaml.md"))
    ROLE_KEY = (_W, Message("a key is not known"), Message("see docs/reference/agent-yaml.md"))
    ROLE_ENTRY = (
        _E,
        Message("the entry of {name} must be a path inside the role's folder"),
        Message("put the program there"),
    )
    ROLE_FLOW_MISSING = (
        _W,
        Message("there is no workflow {name} in workflows/"),
        Message("write it, or correct the name"),
    )
    ROLE_ENTRY_MISSING = (
        _W,
        Message("the entry of {name} is not there: {entry}"),
        Message("write the program, or correct the path"),
    )

    # workflow.yaml
    FLOW_UNREADABLE = (_E, Message("the file cannot be read: {reason}"), Message("correct the workflow's file"))
    FLOW_VALUE = (_E, Message("a value is not as it should be"), Message("see docs/reference/workflow-yaml.md"))
    FLOW_KEY = (_W, Message("a key is not known"), Message("see docs/reference/workflow-yaml.md"))

    # Other agents
    FIELD_EXTENSION = (_N, Message("{field} means something only to {agents}"), Message("other agents ignore it"))
    FIELD_UNKNOWN = (_N, Message("{field} is no field of the standard"), Message("put it under metadata"))
    TOOLS_LIST = (_N, Message("allowed-tools is a list"), Message("the standard wants one text, separated by spaces"))
    PORTABLE_ARGUMENTS = (
        _N,
        Message("{shown} is filled in by Claude Code only"),
        Message("say in words what goes here"),
    )
    PORTABLE_INJECTION = (
        _W,
        Message("{shown} runs a command when Claude Code loads it"),
        Message("ask the agent to run it"),
    )
    PORTABLE_FILE = (
        _N,
        Message("{shown} is replaced by the file in some agents only"),
        Message("name the file in words"),
    )
    PORTABLE_VARIABLE = (
        _N,
        Message("{shown} is known to Claude Code only"),
        Message("write paths relative to the skill"),
    )
    CATALOG_COST = (
        _N,
        Message("name and description cost {count} characters in every catalog"),
        Message("keep it short"),
    )

    def __init__(self, severity: Severity, message: Message, advice: Message) -> None:
        self.code = self._name_.lower().replace("_", "-")
        self.severity = severity
        self.message = message
        self.advice = advice

    def at(self, line: int = 1, column: int = 1, **words: object) -> Finding:
        """The finding at this place of the file, both counted from 1."""
        shown = {key: _shown(word) for key, word in words.items()}
        return Finding(
            code=self.code,
            severity=self.severity,
            message=Message(self.message.template, **shown),
            advice=Message(self.advice.template, **shown),
            line=line,
            column=column,
        )


def _shown(word: object) -> str:
    """One short line without control characters: findings are printed on terminals."""
    text = str(word)
    longest = 3 * _SHOWN if isinstance(word, Message) else _SHOWN  # a sentence of ours, with a word of the file in it
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
