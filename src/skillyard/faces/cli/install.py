"""Commands that install skills: add, update, remove, restore, verify."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message, join_messages
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import ask, on_terminal, require_yes
from skillyard.faces.cli.link import links_data, links_page
from skillyard.faces.cli.review import answer_of_install
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.present import Lines, Steps, write_lines
from skillyard.install.names import as_slug
from skillyard.install.offers import choose

if TYPE_CHECKING:
    from skillyard.install.links import LinkStep
    from skillyard.install.offers import Offer, ScannedSkill
    from skillyard.install.tree import Drift
    from skillyard.install.update import UpdatePlan


def _add_scope(parser: Parser, says: str = "the user's own skills") -> None:
    parser.add_argument("--global", dest="is_global", action="store_true", help=says)


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
    _add_scope(parser, "for every project of yours")
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
    with open_project() as project:
        installer = project.installer(is_global=options.is_global)
        with installer.open_staging() as staging:
            with Steps(Message("adding"), lang) as steps:
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
                        ask=_chooser(text, lang) if terminal else None,
                    )
                ]
            if options.name and len(found) != 1:
                raise InvalidArgs(Message("--as names one skill, not {count}", count=len(found)))
            folders = [each.skill.folder for each in found]
            if twice := sorted({folder for folder in folders if folders.count(folder) > 1}):
                raise InvalidArgs(
                    Message("two of these would be {twice}: add one of them by itself, with --as", twice=twice[0])
                )
            if options.dry_run:
                return _planned(found)
            return answer_of_install(project, installer.bring_in(found), options)


def _chooser(source: str, lang: Lang) -> "Callable[[Sequence[Offer]], Sequence[Offer]]":
    def choose_offers(offers: "Sequence[Offer]") -> "Sequence[Offer]":
        lines = "\n".join(f"  {number:>3}  {offer.name}" for number, offer in enumerate(offers, 1))
        told = {"source": source, "count": len(offers), "lines": lines}
        question = Message("\n{source} holds {count} skills:\n{lines}\nWhich? Numbers or names, or all: ", **told)
        words = (ask(question.render(lang)) or "").replace(",", " ").split()
        if words in (["all"], ["全部"]):
            return offers
        if not words:
            raise InvalidArgs(Message("nothing was chosen, and nothing installed"))
        numbered = {str(number): offer.path or offer.name for number, offer in enumerate(offers, 1)}
        return choose(offers, [numbered.get(word, word) for word in words])

    return choose_offers


def _planned(found: "Sequence[ScannedSkill]") -> Answer:
    skills: list[Json] = []
    lines: list[str] = []
    for each in found:
        skill, verdict = each.skill, each.verdict
        told: dict[str, Json] = {"folder": skill.folder, "files": len(skill.files), "severity": str(verdict.severity)}
        lines.append(
            Message("would hold back {folder} ({files} files, {severity})", **told)
            if verdict.held
            else Message("would add {folder} ({files} files, {severity})", **told)
        )
        skills.append(
            {
                "name": skill.name,
                **told,
                "source": skill.source,
                "commit": skill.commit,
                "held_back": verdict.held,
                "findings": [hit.as_dict() for hit in verdict.hits[:20]],
            }
        )
    summary = Message("would install {count} skills (nothing was installed)", count=len(found))
    return Answer(summary, {"skills": skills}, Lines(lines))


def update_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder or name of an installed skill")
    parser.add_argument("--all", action="store_true", help="every installed skill")
    _add_scope(parser)
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
    with open_project() as project:
        installer = project.installer(is_global=options.is_global)
        with installer.open_staging() as staging:
            with Steps(Message("updating"), lang_of(options)) as steps:
                plan = installer.plan_update(None if options.all else options.names, staging, steps)
            if options.dry_run:
                return _told(plan, Message("{count} skills would change", count=_count(plan)))
            if not (options.keep or options.theirs):
                _refuse_edits(plan, options)
            brought = installer.apply_update(plan, keep=options.keep, theirs=options.theirs)
            if brought.review:
                return answer_of_install(project, brought, options)
            return _told(plan, Message("{count} skills updated", count=_count(plan)), brought.links)


def _count(plan: "UpdatePlan") -> int:
    return sum(step.state == "changed" for step in plan.steps)


def _refuse_edits(plan: "UpdatePlan", options: Options) -> None:
    edited = [step for step in plan.steps if step.edited]
    if edited:
        diff = [line for step in edited for line in step.diff()]
        shown = ", ".join(f"{step.skill.folder}/{path}" for step in edited for path in step.edited[:5])
        if not options.json:
            write_lines(diff, lang_of(options))
        raise InvalidArgs(
            Message("changed here: {shown}; --keep keeps yours, --theirs takes the source's", shown=shown),
            details={"edited": {step.skill.folder: list(step.edited) for step in edited}, "diff": "\n".join(diff)},
        )


def _told(plan: "UpdatePlan", summary: Message, links: "Sequence[LinkStep]" = ()) -> Answer:
    skills: list[Json] = []
    lines: list[str] = []
    for step in plan.steps:
        diff = list(step.diff())
        skills.append(
            {
                "folder": step.skill.folder,
                "standing": str(step.state),
                "from": step.skill.commit,
                "to": step.candidate.skill.commit if step.candidate else "",
                **_drift_data(step.drift),
                "edited": list(step.edited),
                "diff": "\n".join(diff),
                "reason": step.reason,
            }
        )
        reason = ("  (", step.reason, ")") if step.reason else ()
        lines.append(join_messages("", (f"{step.state:<8} {step.skill.folder}", *reason)))
        lines += [f"    {line}" for line in _drift_lines(step.drift)]
        lines += [f"         {line}" for line in diff]
    lines = lines or [Message("nothing installed")]
    lines += [Message("new      {name}  (in {source})", name=name, source=source) for source, name in plan.new]
    new: list[Json] = [{"source": source, "name": name} for source, name in plan.new]
    failed = any(step.state == "failed" for step in plan.steps)
    return Answer(
        summary,
        {"skills": skills, "new": new, "links": links_data(links)},
        Lines([*lines, *(links_page(links).lines if links else ())]),
        (State.PARTIAL if _count(plan) else State.ERROR) if failed else State.SUCCESS,
    )


def _drift_data(drift: "Drift") -> dict[str, Json]:
    return {what: list(paths) for what, paths in drift._asdict().items()}


def _drift_lines(drift: "Drift") -> list[str]:
    return [f"     {what:<8} {path}" for what, paths in drift._asdict().items() for path in paths]


def remove_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder or name of an installed skill")
    parser.add_argument("--source", default="", help="everything that came from there, as skillyard.lock spells it")
    _add_scope(parser, "of the user's own skills")
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
    with open_project() as project:
        installer = project.installer(is_global=options.is_global)
        folders = [skill.folder for skill in installer.find(options.names, options.source)]
        question = Message("Remove {names}?", names=", ".join(folders)).render(lang_of(options))
        refused = Message("nothing was removed: say yes on a terminal, or give --yes")
        require_yes(question, refused, accepted=options.yes, details={"skills": [*folders]})
        links = installer.unlink(folders)
        kept = installer.remove(folders)
        project.contents.forget([installer.target.skills / folder for folder in folders])
    lines: list[str] = [Message("removed {folder}", folder=folder) for folder in folders]
    lines += [Message("kept {path}", path=f"{folder}/{path}") for folder, paths in kept.items() for path in paths]
    for step in links:
        line = Message("{outcome} {path} (for {agent})", outcome=step.outcome, path=step.path, agent=step.agent)
        lines.append(join_messages(": ", (line, step.note)) if step.note else line)
    data: dict[str, Json] = {
        "removed": [*folders],
        "kept": {folder: list(paths) for folder, paths in kept.items()},
        "links": links_data(links),
    }
    return Answer(Message("{count} skills removed", count=len(folders)), data, Lines(lines))


def restore_arguments(parser: Parser) -> None:
    _add_scope(parser)
    parser.add_argument("--theirs", action="store_true", help="replace files that were edited here")


def answer_restore(options: Options) -> Answer:
    """Install exactly what skillyard.lock says, on this machine too.

    Skills that are there already stay as they are; files that you edited stay, unless --theirs says otherwise. A
    source that has other bytes now is an error: nothing else is installed in its place.

    examples:
      skillyard restore
      skillyard restore --global
    """
    with open_project() as project:
        with Steps(Message("restoring"), lang_of(options)) as steps:
            brought = project.installer(is_global=options.is_global).restore(steps, theirs=options.theirs)
        return answer_of_install(project, brought, options)


def verify_arguments(parser: Parser) -> None:
    _add_scope(parser)


def answer_verify(options: Options) -> Answer:
    """Compare the installed skills with skillyard.lock: changed, missing and added files.

    examples:
      skillyard verify
      skillyard verify --json
    """
    with open_project() as project:
        found = project.installer(is_global=options.is_global).compare()
    bad = sum(not drift.is_none for drift in found.values())
    skills: list[Json] = [{"folder": folder, **_drift_data(drift)} for folder, drift in found.items()]
    lines: list[str] = []
    for folder, drift in found.items():
        lines += [f"{'ok  ' if drift.is_none else 'FAIL'} {folder}", *_drift_lines(drift)]
    return Answer(
        Message("{total} skills compared: {bad} differ from the lock", total=len(found), bad=bad),
        {"skills": skills},
        Lines(lines or [Message("nothing installed")]),
        State.ERROR if bad else State.SUCCESS,
    )
