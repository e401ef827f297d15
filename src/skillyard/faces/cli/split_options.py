"""Options of ours among the words of a skill: before its name always, after it unless the skill has such a param."""

from collections.abc import Sequence

from skillyard.app.project import Project
from skillyard.core.errors import SkillError
from skillyard.core.request import Request
from skillyard.faces.command import Options, Parser


def take_ours(yard: Project, target: Request, options: Options, parser: Parser, words: Sequence[str]) -> list[str]:
    """The skill's own words; ours are put into the options. A question for help after the name is the skill's."""
    actions = [action for action in parser._actions if action.dest != "help"]  # noqa: SLF001
    known = {text: action for action in actions for text in action.option_strings}
    if not any(word.partition("=")[0] in known for word in words):
        return list(words)
    declared = _declared(yard, target)
    ours: list[str] = []
    theirs: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        option = word.partition("=")[0]
        if word == "--":
            theirs += [word, *left]
            break
        if option not in known or option in declared:
            theirs.append(word)
        else:
            takes = known[option].nargs != 0 and "=" not in word
            ours += [word, *([left.pop(0)] if takes and left else [])]
    positional = [getattr(options, action.dest) for action in actions if not action.option_strings]
    parser.parse_args([*ours, *(each for each in positional if isinstance(each, str))], namespace=options)
    return theirs


def _declared(yard: Project, target: Request) -> frozenset[str]:
    try:
        skill = yard.runtime.resolve(target)
    except SkillError:
        return frozenset()
    return frozenset(f"--{param.name.replace('_', '-')}" for param in skill.params)
