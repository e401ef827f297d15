"""Remove installed skills; files that you made or edited stay.

What `skillyard link` made of them goes too, but for copies that you edited.

examples:
  skillyard remove pdf docx
  skillyard remove --source https://github.com/anthropics/skills
"""

from functools import partial

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message, render
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.cli.link import links_data
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Lines

_QUESTION = Message("Remove {names}?")
_KEPT, _REMOVED = Message("kept {path}"), Message("removed {folder}")
_LINK = Message("{outcome} {path} (for {agent})")


def arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder or name of an installed skill")
    parser.add_argument("--source", default="", help="everything that came from there, as skillyard.lock spells it")
    parser.add_argument("--global", dest="is_global", action="store_true", help="of the user's own skills")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    if not options.names and not options.source:
        raise InvalidArgs(Message("say which: names, or --source"))
    with open_project() as yard:
        return _remove(yard, options)


def _remove(yard: Project, options: Options) -> Answer:
    lang = lang_of(options)
    installer = yard.installer(is_global=options.is_global)
    folders = [skill.folder for skill in installer.find(options.names, options.source)]
    if not options.yes and not (on_terminal() and confirm(_QUESTION.render(lang, names=", ".join(folders)))):
        raise InvalidArgs(
            Message("nothing was removed: say yes on a terminal, or give --yes"), details={"skills": folders}
        )
    links = installer.unlink(folders)
    kept = installer.remove(folders)
    yard.contents.forget([installer.target.skills / folder for folder in folders])
    notes = [_KEPT.render(lang, path=f"{folder}/{path}") for folder, paths in kept.items() for path in paths]
    notes += [
        _LINK.render(lang, **step._asdict()) + (f": {render(step.note, lang)}" if step.note else "") for step in links
    ]
    return Answer(
        summary=Message("{count} skills removed"),
        words={"count": len(folders)},
        data={
            "removed": folders,
            "kept": {folder: list(paths) for folder, paths in kept.items()},
            "links": links_data(links),
        },
        page=Lines([*(_REMOVED.render(lang, folder=folder) for folder in folders), *notes]),
    )
