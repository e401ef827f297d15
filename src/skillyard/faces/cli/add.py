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
from pathlib import Path

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.values import Json
from skillyard.faces.ask import ask, on_terminal
from skillyard.faces.cli.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.cli.review_prompt import answer_of
from skillyard.faces.present import Lines, Steps
from skillyard.install.candidates import Candidate, Offer, choose, open_staging
from skillyard.install.pipeline import bring_in, inner_folder, look, pick_named, place_of, wanted_from
from skillyard.install.slug import as_slug
from skillyard.install.target import Place

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
    with open_project() as yard, open_staging(yard.places.own_home) as staging:
        place = place_of(yard, is_global=options.is_global)
        with Steps(_ADDING.render(lang), lang=lang) as steps:
            found = [each for text in options.sources for each in _look(yard, place, text, options, staging, steps)]
        if options.name and len(found) != 1:
            raise InvalidArgs(Message("--as names one skill, not {count}", count=len(found)))
        _check_apart(found)
        if options.dry_run:
            return _planned(found, lang)
        return answer_of(yard, bring_in(yard, place, found), lang, terminal=on_terminal() and not options.json)


def _look(yard: Project, place: Place, text: str, options: Options, staging: Path, steps: Steps) -> Sequence[Candidate]:
    wanted = wanted_from(yard, place, text, options.ref)
    names = [*options.skill, *([wanted.skill] if wanted.skill else [])]
    folder = as_slug(options.name) if options.name else ""
    return look(wanted.narrowed(names), inner_folder(staging), partial(_pick, text, names, options), steps, folder)


def _pick(text: str, names: Sequence[str], options: Options, offers: Sequence[Offer]) -> Sequence[Offer]:
    everything = options.all or options.yes
    if len(offers) < 2 or names or everything or not on_terminal() or options.json:
        return pick_named(text, names, everything=everything)(offers)
    lines = "\n".join(f"  {number:>3}  {offer.name}" for number, offer in enumerate(offers, 1))
    said = ask(_WHICH.render(lang_of(options), source=text, count=len(offers), lines=lines)) or ""
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


def _check_apart(found: Sequence[Candidate]) -> None:
    folders = [each.skill.folder for each in found]
    twice = sorted({folder for folder in folders if folders.count(folder) > 1})
    if twice:
        raise InvalidArgs(
            Message("two of these would be {twice}: add one of them by itself, with --as", twice=twice[0])
        )


def _planned(found: Sequence[Candidate], lang: Lang) -> Answer:
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
