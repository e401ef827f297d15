"""Install skills from a folder, an archive, a git repository or the web.

They go into .claude/skills/ of the project, or with --global into the user's own; skillyard.lock says what came from
where. Every file is checked and scanned before anything is written. What looks doubtful is held back until you decide;
--yes never decides that.

examples:
  skillyard add ./my-skill
  skillyard add anthropics/skills@pdf
  skillyard add https://example.org/skills.git --ref v2 --all
  skillyard add skills.zip --skill docx --as word
"""

from collections.abc import Sequence
from functools import partial

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.values import Json
from skillyard.faces.ask import ask, on_terminal
from skillyard.faces.cli.review_prompt import answer_of
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Lines, Steps
from skillyard.install.names import as_slug
from skillyard.install.offers import Offer, ScannedSkill, choose

_ADDING = Message("adding")
_WHICH = Message("\n{source} holds {count} skills:\n{lines}\nWhich? Numbers or names, or all: ")
_WOULD_ADD = Message("would add {folder} ({files} files, {severity})")
_WOULD_HOLD = Message("would hold back {folder} ({files} files, {severity})")


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="a folder, an archive, a git address (…/tree/REF/PATH), owner/repo[/path][@skill][#ref], an http(s) "
        "archive, or …/.well-known/agent-skills/index.json",
    )
    parser.add_argument("--skill", action="append", default=[], metavar="NAME", help="only this one; can be repeated")
    parser.add_argument("--all", action="store_true", help="every skill that the source holds")
    parser.add_argument("--global", dest="is_global", action="store_true", help="for every project of yours")
    parser.add_argument("--ref", default="", help="a branch, a tag or a commit of a git source")
    parser.add_argument("--as", dest="name", default="", metavar="NAME", help="another name for its folder")
    parser.add_argument("--yes", action="store_true", help="take all of several without being asked")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be installed")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    terminal = on_terminal() and not options.json
    with open_project() as yard:
        installer = yard.installer(is_global=options.is_global)
        with installer.open_staging() as staging:
            with Steps(_ADDING.render(lang), lang=lang) as steps:
                found = [
                    each
                    for text in options.sources
                    for each in installer.look(
                        text,
                        staging,
                        steps,
                        ref=options.ref,
                        names=options.skill,
                        everything=options.all or options.yes,
                        folder=as_slug(options.name) if options.name else "",
                        ask=partial(_ask, text, lang) if terminal else None,
                    )
                ]
            if options.name and len(found) != 1:
                raise InvalidArgs(Message("--as names one skill, not {count}", count=len(found)))
            _check_apart(found)
            if options.dry_run:
                return _planned(found, lang)
            return answer_of(yard, installer.bring_in(found), lang, terminal=terminal)


def _ask(text: str, lang: Lang, offers: Sequence[Offer]) -> Sequence[Offer]:
    lines = "\n".join(f"  {number:>3}  {offer.name}" for number, offer in enumerate(offers, 1))
    said = ask(_WHICH.render(lang, source=text, count=len(offers), lines=lines)) or ""
    words = said.replace(",", " ").split()
    if words in (["all"], ["全部"]):
        return offers
    if not words:
        raise InvalidArgs(Message("nothing was chosen, and nothing installed"))
    return choose(offers, [_named(word, offers) for word in words])


def _named(word: str, offers: Sequence[Offer]) -> str:
    if word.isdecimal() and 1 <= int(word) <= len(offers):
        return offers[int(word) - 1].path or offers[int(word) - 1].name
    return word


def _check_apart(found: Sequence[ScannedSkill]) -> None:
    folders = [each.skill.folder for each in found]
    twice = sorted({folder for folder in folders if folders.count(folder) > 1})
    if twice:
        raise InvalidArgs(
            Message("two of these would be {twice}: add one of them by itself, with --as", twice=twice[0])
        )


def _planned(found: Sequence[ScannedSkill], lang: Lang) -> Answer:
    skills: list[Json] = [
        {
            "name": each.skill.name,
            "folder": each.skill.folder,
            "source": each.skill.source,
            "commit": each.skill.commit,
            "files": len(each.skill.files),
            "severity": str(each.verdict.severity),
            "held_back": each.verdict.held,
            "findings": [hit.as_dict() for hit in each.verdict.hits[:20]],
        }
        for each in found
    ]
    lines = [
        (_WOULD_HOLD if each.verdict.held else _WOULD_ADD).render(
            lang, folder=each.skill.folder, files=len(each.skill.files), severity=each.verdict.severity
        )
        for each in found
    ]
    return Answer(
        summary=Message("would install {count} skills (nothing was installed)"),
        words={"count": len(found)},
        data={"skills": skills},
        page=Lines(lines),
    )
