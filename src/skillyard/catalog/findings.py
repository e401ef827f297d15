"""All findings as data: severity, message and advice.

A finding can only be made from a rule of this list, so an unknown code is impossible. Errors break the reading or a
limit of the standard; warnings break its other rules or are likely mistakes; notes are good to know. `--strict` takes
warnings for errors. The messages are templates: `./dev messages` collects them for the translators.
"""

from enum import Enum
from typing import TypeAlias

from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Severity

#: Line and column in a file, both counted from 1.
Position: TypeAlias = tuple[int, int]
START: Position = (1, 1)

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_LONGEST_VALUE = 80


class Rule(Enum):
    """One kind of finding; its code is its name in lower case with hyphens."""

    # The file
    FILE_UNREADABLE = (_E, "the file cannot be read: {reason}", "check that it exists and may be read")
    FILE_TOO_LARGE = (_E, "the file has more than {limit} bytes", "move long texts to files of their own")
    FILE_EMPTY = (_E, "the file is empty", "write frontmatter with name and description, then the text")
    ENCODING_BOM = (_N, "the file starts with a byte order mark", "save it as UTF-8 without BOM")
    ENCODING_UTF16 = (_W, "the file is {encoding}, not UTF-8", "save it as UTF-8")
    ENCODING_GBK = (_W, "the file is not UTF-8; read as {encoding}", "save it as UTF-8")
    ENCODING_GUESSED = (_W, "the file is not UTF-8; read as {encoding}, a guess", "save it as UTF-8")
    ENCODING_NUL = (_W, "the file contains NUL characters", "remove them")
    NEWLINES_CRLF = (_N, "lines end with CR LF", "save it with LF line ends")
    NEWLINES_MIXED = (_W, "line ends are mixed", "save it with LF line ends only")
    MERGE_CONFLICT = (_E, "a merge conflict was left in the file", "resolve it and remove the marker lines")

    # The fences
    FRONTMATTER_MISSING = (
        _E,
        "there is no frontmatter",
        "start the file with ---, name:, description: and --- on lines of their own",
    )
    FRONTMATTER_EMPTY = (_E, "the frontmatter holds no fields", "write name: and description: into it")
    FRONTMATTER_TOO_LARGE = (_E, "the frontmatter has more than {limit} bytes", "move text to the body")
    FENCE_LEADING_BLANK = (_E, "blank lines stand before the opening ---", "remove them")
    FENCE_TEXT_BEFORE = (_E, "text stands before the opening ---", "make --- the first line of the file")
    FENCE_COMMENT_BEFORE = (_E, "a comment stands before the opening ---", "move it below the frontmatter")
    FENCE_IN_CODE = (_E, "the frontmatter is inside a code block", "remove the ``` around it")
    FENCE_ODD_OPEN = (_E, "the opening fence is {shown}", "write exactly --- on that line")
    FENCE_NO_OPEN = (_E, "fields start without an opening ---", "add a line --- before them")
    FENCE_NO_CLOSE = (_E, "the closing --- is missing", "add a line --- after the last field")
    FENCE_GLUED_CLOSE = (_E, "text is glued to the closing ---", "put {shown} on the next line")
    FENCE_ODD_CLOSE = (_E, "the closing fence is {shown}", "write exactly --- on that line")
    FENCE_ONE_LINE = (_E, "the whole frontmatter stands on one line", "put each field on its own line")

    # The YAML
    YAML_INVALID = (_E, "not valid YAML: {reason}", "correct this place; quote text that holds : or #")
    YAML_NOT_MAPPING = (_E, "the frontmatter is {shape}, not fields", "write `field: value` lines")
    YAML_TOO_DEEP = (_E, "values are nested deeper than {limit} levels", "flatten them")
    YAML_ANCHOR = (_E, "anchors (&) are refused", "write the value out, or quote a text that starts with &")
    YAML_ALIAS = (_E, "aliases (*) are refused", "write the value out, or quote a text that starts with *")
    YAML_TAG = (_E, "tags (!) are refused", "remove the tag, or quote a text that starts with !")
    YAML_MERGE = (_E, "merge keys (<<) are refused", "write the fields out")
    YAML_KEY = (_E, "a field's name is not text", "use a word as the name of the field")
    YAML_DUPLICATE = (_E, "the field {field} stands here again", "keep one of them; the last one counts")
    VALUE_CUT = (_W, "` #` cuts the value of {field} here", "put the whole value in quotes")

    # Repairs
    REPAIR_REFUSED = (
        _E,
        "{field} is broken and is never guessed: the field is not used",
        "correct it by hand: it decides what may run or who may call",
    )
    FIELD_UNREADABLE = (_E, "the field {field} cannot be read", "correct its YAML")
    REPAIR_LINE = (_W, "this line belongs to no field and was ignored", "remove it or make it a field")
    REPAIR_COLON = (_W, "{field} holds `: ` and was read as text", "put the value in quotes")
    REPAIR_BLOCK = (_W, "{field} has text on the line of > or |", "move the text to the next line, indented")
    REPAIR_INDICATOR = (_W, "{field} starts with {shown} and was read as text", "put the value in quotes")
    REPAIR_QUOTES = (_W, "the quotes of {field} are broken; read as text", "close or double the quotes")
    REPAIR_FLOW = (_W, "the brackets of {field} are broken; read as text", "close them, or quote the value")
    REPAIR_INDENT = (_W, "the lines after {field} are not indented; joined to it", "indent them")
    REPAIR_TABS = (_W, "{field} is indented with tabs; read as spaces", "indent with spaces")
    REPAIR_CONTROL = (_W, "{field} holds control characters", "remove them")
    REPAIR_ESCAPE = (_W, "{field} escapes half characters; joined", "write the character itself")
    REPAIR_NESTED = (_W, "a value inside {field} was read as text", "put that value in quotes")

    # The standard's fields
    NAME_MISSING = (_E, "there is no name; the folder's is used", "add `name: {name}`")
    NAME_NOT_TEXT = (_E, "the name is not text", "write `name: some-name`")
    NAME_INVALID = (
        _W,
        "the name {name} has other characters than a-z, 0-9 and single hyphens between",
        "rename it to {better}",
    )
    NAME_TOO_LONG = (_E, "the name has {count} characters", "use at most {limit}")
    NAME_NOT_FOLDER = (_W, "the name {name} is not its folder's, {folder}", "rename one of them")
    DESCRIPTION_MISSING = (
        _E,
        "there is no description; the text's first paragraph is used",
        "add `description:` saying what the skill does and when to use it",
    )
    DESCRIPTION_NOT_TEXT = (_E, "the description is not text", "write it as one text, in quotes")
    DESCRIPTION_TOO_LONG = (_E, "the description has {count} characters", "use at most {limit}")
    DESCRIPTION_XML = (_W, "the description holds the tag {shown}", "agents put it into XML: remove the tag")
    COMPATIBILITY_TOO_LONG = (_E, "compatibility has {count} characters", "use at most {limit}")
    FIELD_TYPE = (_W, "{field} is {shape}; it should be {wanted}", "write it as {wanted}")
    METADATA_VALUES = (_N, "metadata.{field} is not text", "the standard wants text values: quote it")
    BODY_EMPTY = (_W, "there is no text below the frontmatter", "say what the agent should do")
    BODY_LONG = (_N, "the text has {count} lines", "keep it below {limit}; move details to references/")
    HIDDEN_CHARACTERS = (_W, "a hidden character, {shown}, stands here", "remove it: readers cannot see it")

    # What runs
    COMMAND_EMPTY = (_W, "command is empty: this is a prompt skill", "remove it, or write the program")
    COMMAND_SLASH = (_W, "{name} is a slash command's name, no program", "remove `command`")
    COMMAND_NOT_TEXT = (_E, "command is {shape}, not text", "write the command line as one text")
    COMMAND_QUOTES = (_E, "the command's quotes are not closed", "close them")
    COMMAND_SHELL = (_E, "the command holds {shown}, which needs a shell", "put it in a script and call that")
    ENTRY_MISSING = (_E, "protocol is json, but there is no entry", "add `entry:` with the program's path")
    ENTRY_OUTSIDE = (_E, "the entry {name} leaves the skill's folder", "name a file inside the folder")
    PROTOCOL_UNKNOWN = (_W, "the protocol {name} is unknown", "write `protocol: json`, or remove it")
    TIMEOUT_INVALID = (_W, "timeout {name} is no number of seconds above 0", "write a number of seconds")
    PARAMS_SHAPE = (_E, "{field} is {shape}, not a mapping or a list", "list the params by name")
    PARAM_NAME = (_E, "a param has no usable name", "name it with letters, digits, _ and -")
    PARAM_SHAPE = (_E, "the param {name} is {shape}", "write {{required: true, type: string}}")
    PARAM_TYPE = (_W, "the param {name} has the unknown type {type}", "use one of: {known}")
    PARAM_VALIDATION = (_W, "the param {name} has the unknown validation {check}", "use one of: {known}")
    PARAM_FLAG = (_W, "`{flag}` of the param {name} is not true or false", "write true or false")
    PARAM_CHOICES = (_E, "the enum {name} lists no choices", "add `choices: [one, two]`")
    PARAM_DEFAULT = (_E, "the default of {name} is not of its type, {type}", "correct the default")
    PARAM_TWICE = (_W, "the param {name} is declared twice", "keep one; the first one counts")
    PARAM_UNUSED = (_W, "the command has no slot for the param {name}", "add {{{name}}} to the command")
    PARAM_UNDECLARED = (_N, "the slot {{{name}}} is not declared", "declare it with type and description")

    # The roles: agents/<role>/agent.yaml
    ROLE_UNREADABLE = (_E, "the file cannot be read: {reason}", "correct agent.yaml")
    ROLE_OUTSIDE = (_E, "the role leads out of the project through a link", "put its folder into agents/")
    ROLE_VALUE = (_E, "a value is not as the schema says", "see docs/reference/agent-yaml.md")
    ROLE_KEY = (_W, "a key is not known", "see docs/reference/agent-yaml.md")
    ROLE_ENTRY = (_E, "the entry of {name} must be a path inside the role's folder", "put the program there")
    ROLE_FLOW_MISSING = (_W, "there is no workflow {name} in workflows/", "write it, or correct the name")
    ROLE_ENTRY_MISSING = (_W, "the entry of {name} is not there: {entry}", "write the program, or correct the path")

    # workflow.yaml
    FLOW_UNREADABLE = (_E, "the file cannot be read: {reason}", "correct the workflow's file")
    FLOW_VALUE = (_E, "a value is not as it should be", "see docs/reference/workflow-yaml.md")
    FLOW_KEY = (_W, "a key is not known", "see docs/reference/workflow-yaml.md")

    # Other agents
    FIELD_EXTENSION = (_N, "{field} means something only to {agents}", "other agents ignore it")
    FIELD_UNKNOWN = (_N, "{field} is no field of the standard", "put it under metadata")
    TOOLS_LIST = (_N, "allowed-tools is a list", "the standard wants one text, separated by spaces")
    PORTABLE_ARGUMENTS = (_N, "{shown} is filled in by Claude Code only", "say in words what goes here")
    PORTABLE_INJECTION = (_W, "{shown} runs a command when Claude Code loads it", "ask the agent to run it")
    PORTABLE_FILE = (_N, "{shown} is replaced by the file in some agents only", "name the file in words")
    PORTABLE_VARIABLE = (_N, "{shown} is known to Claude Code only", "write paths relative to the skill")
    CATALOG_COST = (_N, "name and description cost {count} characters in every catalog", "keep it short")

    def __init__(self, severity: Severity, message: str, advice: str) -> None:
        self.code = self._name_.lower().replace("_", "-")
        self.severity = severity
        self.message = Message(message)
        self.advice = Message(advice)

    def at(self, line: int = 1, column: int = 1, /, **values: object) -> Finding:
        """Return the finding at this position of the file."""
        shown = {name: _shorten(value) for name, value in values.items()}
        said = (Message(self.message.template, **shown), Message(self.advice.template, **shown))
        return Finding(self.code, self.severity, *said, line, column)


def position_in(text: str, index: int, first_line: int = 1) -> Position:
    """Return the position of a character in a text whose first line has this number."""
    return text.count("\n", 0, index) + first_line, index - text.rfind("\n", 0, index)


def one_line(text: str) -> str:
    """Return the text without control characters: findings are printed on terminals."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def _shorten(value: object) -> str:
    text = str(value)  # a message stays one
    longest = 3 * _LONGEST_VALUE if isinstance(value, Message) else _LONGEST_VALUE  # a sentence of ours about a value
    return one_line(text if len(text) <= longest else text[: longest - 1] + "…")
