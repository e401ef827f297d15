"""Commands that install skills: add, update, remove, restore, verify."""

import sys
from collections.abc import Sequence
from functools import partial

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message, render
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import ask, confirm, on_terminal
from skillyard.faces.cli.link import links_data, links_page
from skillyard.faces.cli.review_prompt import NOTHING_INSTALLED, answer_of
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.present import Lines, Steps, one_line
from skillyard.install.links import LinkStep
from skillyard.install.names import as_slug
from skillyard.install.offers import Offer, ScannedSkill, choose
from skillyard.install.tree import Drift
from skillyard.install.update import UpdatePlan, UpdateState, UpdateStep

_ADDING = Message("adding")
_WHICH = Message("\n{source} holds {count} skills:\n{lines}\nWhich? Numbers or names, or all: ")
_WOULD_ADD = Message("would add {folder} ({files} files, {severity})")
_WOULD_HOLD = Message("would hold back {folder} ({files} files, {severity})")


def add_arguments(parser: Parser) -> None:
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


def answer_add(options: Options) -> Answer:
    """Install skills from a folder, an archive, a git repository or the web.

    They go into .claude/skills/ of the project, or with --global into the user's own; skillyard.lock says what came
    from where. Every file is checked and scanned before anything is written. What looks doubtful is held back until
    you decide; --yes never decides that.

    examples:
      skillyard add ./my-skill
      skillyard add anthropics/skills@pdf
      skillyard add https://example.org/skills.git --ref v2 --all
      skillyard add skills.zip --skill docx --as word
    """
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


_UPDATING = Message("updating")
_WOULD = Message("{count} skills would change")
_DID = Message("{count} skills updated")
_NEW = Message("new      {name}  (in {source})")


def update_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder or name of an installed skill")
    parser.add_argument("--all", action="store_true", help="every installed skill")
    parser.add_argument("--global", dest="is_global", action="store_true", help="the user's own skills")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would change")
    edits = parser.add_mutually_exclusive_group()
    edits.add_argument("--keep", action="store_true", help="keep files that were edited here")
    edits.add_argument("--theirs", action="store_true", help="replace files that were edited here")


def answer_update(options: Options) -> Answer:
    """Bring installed skills to what their sources have now, after telling what would change.

    Files that you edited are never overwritten unasked: the difference is shown, --keep keeps yours, --theirs takes
    the source's. Files that you added stay in any case. What the scan holds back waits for a decision, as with
    `add`. Copies that `skillyard link --copy` made follow, but for those that you edited.

    examples:
      skillyard update --dry-run --all
      skillyard update pdf
      skillyard update --all --keep
    """
    if bool(options.names) == options.all:
        raise InvalidArgs(Message("say which: names, or --all"))
    lang = lang_of(options)
    with open_project() as yard:
        installer = yard.installer(is_global=options.is_global)
        with installer.open_staging() as staging:
            with Steps(_UPDATING.render(lang), lang=lang) as steps:
                plan = installer.plan_update(None if options.all else options.names, staging, steps)
            if options.dry_run:
                return _told(plan, _WOULD, lang)
            if not (options.keep or options.theirs):
                _refuse_edits(plan, show=not options.json)
            brought = installer.apply_update(plan, keep=options.keep, theirs=options.theirs)
            if brought.review:
                return answer_of(yard, brought, lang, terminal=on_terminal() and not options.json)
            return _told(plan, _DID, lang, brought.links)


def _refuse_edits(plan: UpdatePlan, *, show: bool) -> None:
    edited = [step for step in plan.steps if step.edited]
    if edited:
        diff = [line for step in edited for line in step.diff()]
        shown = ", ".join(f"{step.skill.folder}/{path}" for step in edited for path in step.edited[:5])
        told = "\n".join(diff)
        if show:
            sys.stderr.write("".join(f"{one_line(line)}\n" for line in diff))
        raise InvalidArgs(
            Message("changed here: {shown}; --keep keeps yours, --theirs takes the source's", shown=shown),
            details={"edited": {step.skill.folder: list(step.edited) for step in edited}, "diff": told},
        )


def _told(plan: UpdatePlan, summary: Message, lang: Lang, links: Sequence[LinkStep] = ()) -> Answer:
    changed = sum(step.state is UpdateState.CHANGED for step in plan.steps)
    failed = any(step.state is UpdateState.FAILED for step in plan.steps)
    new: list[Json] = [{"source": source, "name": name} for source, name in plan.new]
    return Answer(
        summary=summary,
        words={"count": changed},
        data={"skills": [_as_data(step) for step in plan.steps], "new": new, "links": links_data(links)},
        page=Lines(
            [
                *_lines(plan.steps, lang),
                *(_NEW.render(lang, name=name, source=source) for source, name in plan.new),
                *(links_page(links, lang).lines if links else ()),
            ]
        ),
        state=(State.PARTIAL if changed else State.ERROR) if failed else State.SUCCESS,
    )


def _as_data(step: UpdateStep) -> dict[str, Json]:
    return {
        "folder": step.skill.folder,
        "standing": str(step.state),
        "from": step.skill.commit,
        "to": step.candidate.skill.commit if step.candidate else "",
        **{key: list(paths) for key, paths in step.drift._asdict().items()},
        "edited": list(step.edited),
        "diff": "\n".join(step.diff()),
        "reason": step.reason,
    }


def _lines(steps: Sequence[UpdateStep], lang: Lang) -> list[str]:
    lines: list[str] = []
    for step in steps:
        lines.append(f"{step.state:<8} {step.skill.folder}{f'  ({render(step.reason, lang)})' if step.reason else ''}")
        lines += [f"         {what:<8} {path}" for what, paths in step.drift._asdict().items() for path in paths]
        lines += [f"         {line}" for line in step.diff()]
    return lines or [NOTHING_INSTALLED.render(lang)]


_QUESTION = Message("Remove {names}?")
_KEPT, _REMOVED = Message("kept {path}"), Message("removed {folder}")
_LINK = Message("{outcome} {path} (for {agent})")


def remove_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder or name of an installed skill")
    parser.add_argument("--source", default="", help="everything that came from there, as skillyard.lock spells it")
    parser.add_argument("--global", dest="is_global", action="store_true", help="of the user's own skills")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def answer_remove(options: Options) -> Answer:
    """Remove installed skills; files that you made or edited stay.

    What `skillyard link` made of them goes too, but for copies that you edited.

    examples:
      skillyard remove pdf docx
      skillyard remove --source https://github.com/anthropics/skills
    """
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


_RESTORING = Message("restoring")


def restore_arguments(parser: Parser) -> None:
    parser.add_argument("--global", dest="is_global", action="store_true", help="the user's own skills")
    parser.add_argument("--theirs", action="store_true", help="replace files that were edited here")


def answer_restore(options: Options) -> Answer:
    """Install exactly what skillyard.lock says, on this machine too.

    Skills that are there already stay as they are; files that you edited stay, unless --theirs says otherwise. A
    source that has other bytes now is an error: nothing else is installed in its place.

    examples:
      skillyard restore
      skillyard restore --global
    """
    lang = lang_of(options)
    with open_project() as yard:
        with Steps(_RESTORING.render(lang), lang=lang) as steps:
            brought = yard.installer(is_global=options.is_global).restore(steps, theirs=options.theirs)
        return answer_of(yard, brought, lang, terminal=on_terminal() and not options.json)


def verify_arguments(parser: Parser) -> None:
    parser.add_argument("--global", dest="is_global", action="store_true", help="the user's own skills")


def answer_verify(options: Options) -> Answer:
    """Compare the installed skills with skillyard.lock: changed, missing and added files.

    examples:
      skillyard verify
      skillyard verify --json
    """
    with open_project() as yard:
        found = yard.installer(is_global=options.is_global).compare()
    bad = sum(not drift.is_none for drift in found.values())
    skills: list[Json] = [
        {"folder": folder, **{key: list(paths) for key, paths in drift._asdict().items()}}
        for folder, drift in found.items()
    ]
    return Answer(
        summary=Message("{total} skills compared: {bad} differ from the lock"),
        words={"total": len(found), "bad": bad},
        data={"skills": skills},
        page=Lines(
            [line for folder, drift in found.items() for line in _lines_verify(folder, drift)]
            or [NOTHING_INSTALLED.render(lang_of(options))]
        ),
        state=State.ERROR if bad else State.SUCCESS,
    )


def _lines_verify(folder: str, drift: Drift) -> list[str]:
    files = [f"     {what:<8} {path}" for what, paths in drift._asdict().items() for path in paths]
    return [f"{'ok  ' if drift.is_none else 'FAIL'} {folder}", *files]
