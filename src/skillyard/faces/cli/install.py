"""Commands that install skills: add, update, remove, restore, verify, link, unlink, review."""

import shlex
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.errors import AgentNotInstalled, InvalidArgs
from skillyard.core.messages import Lang, Message, join_messages
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import (
    Answer,
    Options,
    ask,
    ask_key,
    comma_list,
    on_terminal,
    read_object,
    require_yes,
    takes,
)
from skillyard.faces.present import StatusLine, Table, write_lines
from skillyard.faces.skill_data import fields_of

if TYPE_CHECKING:
    from skillyard.install.installer import InstallResult, SkillSelection, UpdatePlan
    from skillyard.install.links import LinkStep, LinkView
    from skillyard.install.offers import Offer
    from skillyard.install.review import Review
    from skillyard.install.target import Drift, ScannedSkill
    from skillyard.install.threats.rule import ThreatHit

_AGENTS = ("claude-code", "codex", "opencode")
_MOST_FILES = 40


_SCOPE = takes("--global", "the user's own skills", dest="is_global", action="store_true")


@takes(
    "sources",
    "a folder, an archive, a git address (…/tree/REF/PATH), owner/repo[/path][@skill][#ref], an http(s) archive, "
    "…/.well-known/agent-skills/index.json, or mcp:SERVER[/skill]",
    nargs="+",
    metavar="SOURCE",
)
@takes("--skill", "only this one; can be repeated", action="append", default=[], metavar="NAME")
@takes("--all", "every skill that the source holds")
@takes("--global", "for every project of yours", dest="is_global", action="store_true")
@takes("--ref", "a branch, a tag or a commit of a git source", default="")
@takes("--as", "another name for its folder", dest="name", default="", metavar="NAME")
@takes("--yes", "take all of several without being asked")
@takes("--dry-run", "only tell what would be installed")
def answer_add(options: Options) -> Answer:
    """Install skills from a folder, an archive, a git repository, the web or an MCP server.

    They go into .claude/skills/ of the project, or with --global into the user's own; skillyard.lock says what came
    from where. Every file is checked and scanned before anything is written. What looks doubtful is held back until
    you decide; --yes never decides that.

    examples:
      skillyard add ./my-skill
      skillyard add anthropics/skills@pdf
      skillyard add https://example.org/skills.git --ref v2 --all
      skillyard add skills.zip --skill docx --as word
      skillyard add mcp:docs/pdf-processing
    """

    def choose_names(source: str, offers: "Sequence[Offer]") -> Sequence[str]:
        lines = "\n".join(f"  {number:>3}  {offer.name}" for number, offer in enumerate(offers, 1))
        told = {"source": source, "count": len(offers), "lines": lines}
        question = Message("\n{source} holds {count} skills:\n{lines}\nWhich? Numbers or names, or all: ", **told)
        words = (ask(question.render(options.lang)) or "").replace(",", " ").split()
        numbered = {str(number): offer.path or offer.name for number, offer in enumerate(offers, 1)}
        if words in (["all"], ["全部"]):
            return list(numbered.values())
        if not words:
            raise InvalidArgs(Message("nothing was chosen, and nothing installed"))
        return [numbered.get(word, word) for word in words]

    with open_project() as project:
        installer = project.installer(is_global=options.is_global)
        with installer.open_staging() as staging:
            with StatusLine(Message("adding"), options.lang) as steps:
                found = installer.look(
                    options.sources,
                    staging,
                    steps,
                    ref=options.ref,
                    names=options.skill,
                    everything=options.all or options.yes,
                    folder=options.name,
                    ask=choose_names if on_terminal() and not options.json else None,
                )
            if options.dry_run:
                return _planned(found)
            return _answer_of_install(project, installer.bring_in(found.skills), options, found)


def _planned(found: "SkillSelection") -> Answer:
    skills, lines = list[Json](), list[str]()
    for each in found.skills:
        skill, verdict = each.skill, each.verdict
        told: dict[str, Json] = {"folder": skill.folder, "files": len(skill.files), "severity": str(verdict.severity)}
        if verdict.held:
            lines += [Message("would hold back {folder} ({files} files, {severity})", **told), *_hit_lines(each)]
        else:
            lines.append(Message("would add {folder} ({files} files, {severity})", **told))
        findings: list[Json] = [hit.as_dict() for hit in verdict.hits[:20]]
        told |= {"source": skill.source, "commit": skill.commit, "held_back": verdict.held, "findings": findings}
        skills.append({"name": skill.name, **told})
    summary = Message("would install {count} skills (nothing was installed)", count=len(found.skills))
    left, left_lines = _left_out(found)
    return Answer(summary, {"skills": skills, **left}, [*lines, *left_lines])


def _left_out(found: "SkillSelection") -> tuple[dict[str, Json], list[str]]:
    """What was left out: each with why, and the command that installs it; identical ones only counted."""
    lines: list[str] = []
    for each in found.left_out:
        name = f"{each.name} ({each.path})" if each.path not in {"", each.name} else each.name
        lines.append(Message("left out {name}: {reason}", name=name, reason=each.reason))
        if each.command:
            lines.append(f"  → {each.command}")
    if found.copies:
        lines.append(Message("{count} identical copies of these were left out", count=found.copies))
    data: dict[str, Json] = {"left_out": [each._asdict() for each in found.left_out], "copies": found.copies}
    return data if lines else {}, lines


def _answer_of_install(
    project: Project,
    brought: "InstallResult",
    options: Options,
    found: "SkillSelection | None" = None,
    told: Answer | None = None,
) -> Answer:
    """What an install answers, after what an update `told`. On a terminal the person decides at once on what was held
    back."""
    installed, uninstalled = [skill.folder for skill in brought.installed], list[str]()
    review = brought.review
    if review and on_terminal() and not options.json:
        decisions = _ask_decisions(review, options.lang)
        resumed = project.reviews.resume(review, decisions, on_terminal=True)
        review = resumed.review
        installed, uninstalled = [*installed, *resumed.installed], list(resumed.uninstalled)
    data: dict[str, Json] = {"installed": [*installed], "uninstalled": [*uninstalled]}
    lines = _outcome_lines(installed, uninstalled)
    if told and isinstance(told.page, list):
        data, lines = {**told.data, **data}, [*told.page, *lines]
    if found:
        left, left_lines = _left_out(found)
        data, lines = {**data, **left}, [*lines, *left_lines]
    if review and review.held:
        summary = Message("{count} skills are held back until somebody decides", count=len(review.held))
        return Answer(summary, {**review.as_data(), **data}, [*lines, *_waiting_lines(review)], State.INTERRUPTED)
    summary, state = Message("{count} skills installed", count=len(installed)), State.SUCCESS
    if count := len(found.left_out) if found else 0:
        summary = Message("{count} skills installed, {left} left out", count=len(installed), left=count)
        state = State.PARTIAL if installed else State.ERROR
    return Answer(summary, data, lines or [Message("nothing to do")], state)


@takes("names", "folder or name of an installed skill", nargs="*", metavar="NAME")
@takes("--all", "every installed skill")
@_SCOPE
@takes("--dry-run", "only tell what would change")
@takes("--keep", "keep files that were edited here", one_of="scope")
@takes("--theirs", "replace files that were edited here", one_of="scope")
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
            with StatusLine(Message("updating"), options.lang) as steps:
                plan = installer.plan_update(None if options.all else options.names, staging, steps)
            states = [str(step.state) for step in plan.steps]
            counts = {"count": states.count("changed"), "moved": states.count("moved")}
            if options.dry_run:
                return _told(plan, Message("{count} skills would change, {moved} moved", **counts))
            edited = [step for step in plan.steps if step.edited]
            if edited and not (options.keep or options.theirs):
                diff = [line for step in edited for line in step.diff]
                if not options.json:
                    write_lines(diff, options.lang)
                shown = ", ".join(f"{step.skill.folder}/{path}" for step in edited for path in step.edited[:5])
                paths: dict[str, Json] = {step.skill.folder: list(step.edited) for step in edited}
                why = Message("changed here: {shown}; --keep keeps yours, --theirs takes the source's", shown=shown)
                raise InvalidArgs(why, details={"edited": paths, "diff": "\n".join(diff)})
            brought = installer.apply_update(plan, keep=options.keep, theirs=options.theirs)
            told = _told(plan, Message("{count} skills updated, {moved} moved", **counts), brought.links)
            return _answer_of_install(project, brought, options, told=told) if brought.review else told


def _told(plan: "UpdatePlan", summary: Message, links: "Sequence[LinkStep]" = ()) -> Answer:
    skills, lines = list[Json](), list[str]()
    for step in plan.steps:
        old, new = step.skill, step.candidate.skill if step.candidate else step.skill
        places = [(old.commit[:12], new.commit[:12]), (old.path, new.path)]
        skills.append(
            {
                "folder": old.folder,
                "standing": str(step.state),
                "from": old.commit,
                "to": step.candidate.skill.commit if step.candidate else "",
                "path": new.path,
                **fields_of(step.drift, *step.drift._fields),
                "edited": list(step.edited),
                "diff": "\n".join(step.diff),
                "reason": step.reason,
            }
        )
        notes = filter(None, (step.reason, *(f"{was} → {now}" for was, now in places if was != now)))
        note = join_messages(", ", notes)
        lines.append(join_messages("", (f"{step.state:<8} {old.folder}", *(("  (", note, ")") if note else ()))))
        lines += [f"    {line}" for line in _drift_lines(step.drift)]
        lines += [f"         {line}" for line in step.diff]
    lines = lines or [Message("nothing installed")]
    lines += [Message("new      {name}  (in {source})", name=name, source=source) for source, name in plan.new]
    new_skills: list[Json] = [{"source": source, "name": name} for source, name in plan.new]
    data: dict[str, Json] = {"skills": skills, "new": new_skills, "links": _links_data(links)}
    states, state = {str(step.state) for step in plan.steps}, State.SUCCESS
    if "failed" in states:
        state = State.PARTIAL if states & {"changed", "moved"} else State.ERROR
    return Answer(summary, data, [*lines, *(_link_lines(links) if links else ())], state)


def _drift_lines(drift: "Drift") -> list[str]:
    return [f"     {what:<8} {path}" for what, paths in drift._asdict().items() for path in paths]


@takes("names", "folder or name of an installed skill", nargs="*", metavar="NAME")
@takes("--source", "everything that came from there, as skillyard.lock spells it", default="")
@takes("--global", "of the user's own skills", dest="is_global", action="store_true")
@takes("--yes", "do not ask")
def answer_remove(options: Options) -> Answer:
    """Remove installed skills; files that you made or edited stay.

    What `skillyard link` made of them goes too, but for copies that you edited. A skill that was not installed but
    written here is moved to a trash; `skillyard restore NAME` brings it back.

    examples:
      skillyard remove pdf docx
      skillyard remove --source https://github.com/anthropics/skills
    """
    if not options.names and not options.source:
        raise InvalidArgs(Message("say which: names, or --source"))
    with open_project() as project:
        installer = project.installer(is_global=options.is_global)
        removal = project.plan_removal(options.names, options.source, is_global=options.is_global)
        folders, own = removal.installed, [entry.folder for entry in removal.own]
        named = ", ".join((*folders, *map(str, own)))
        question = Message("Remove {names}?", names=named).render(options.lang)
        if own:
            what = Message(
                "{names} was not installed: it is moved to the trash. Remove {all}?",
                names=", ".join(map(str, own)),
                all=named,
            )
            question = what.render(options.lang)
        refused = Message("nothing was removed: say yes on a terminal, or give --yes")
        require_yes(question, refused, accepted=options.yes, details={"skills": [*folders, *map(str, own)]})
        links = installer.unlink(folders)
        kept = installer.remove(folders)
        trash = project.trash(is_global=options.is_global)
        for entry in removal.own:
            trash.put(entry.folder, entry.name)
        project.contents.forget([*(installer.target.skills / folder for folder in folders), *own])
    lines: list[str] = [Message("removed {folder}", folder=folder) for folder in folders]
    back = Message("moved {folder} to the trash; `skillyard restore {name}` brings it back")
    lines += [Message(back.template, folder=folder, name=shlex.quote(folder.name)) for folder in own]
    lines += [Message("kept {path}", path=f"{folder}/{path}") for folder, paths in kept.items() for path in paths]
    for step in links:
        line = Message("{outcome} {path} (for {agent})", outcome=step.outcome, path=step.path, agent=step.agent)
        lines.append(join_messages(": ", (line, step.note)) if step.note else line)
    data: dict[str, Json] = {"removed": [*folders], "kept": {folder: list(paths) for folder, paths in kept.items()}}
    data |= {"trashed": list(map(str, own))} if own else {}
    return Answer(
        Message("{count} skills removed", count=len(folders) + len(own)), {**data, "links": _links_data(links)}, lines
    )


@takes("names", "skills that `remove` moved to the trash; without any, what the lock says", nargs="*", metavar="NAME")
@_SCOPE
@takes("--theirs", "replace files that were edited here")
def answer_restore(options: Options) -> Answer:
    """Install exactly what skillyard.lock says, on this machine too, or bring back what is in the trash.

    Skills that are there already stay as they are; files that you edited stay, unless --theirs says otherwise. A
    source that has other bytes now is an error: nothing else is installed in its place.

    examples:
      skillyard restore
      skillyard restore my-own-skill
      skillyard restore --global
    """
    with open_project() as project:
        if options.names:
            trash = project.trash(is_global=options.is_global)
            back = [trash.restore(name.removeprefix("@")) for name in options.names]
            told = [Message("restored {folder}", folder=folder) for folder in back]
            return Answer(Message("{count} skills restored", count=len(back)), {"restored": list(map(str, back))}, told)
        with StatusLine(Message("restoring"), options.lang) as steps:
            brought = project.installer(is_global=options.is_global).restore(steps, theirs=options.theirs)
        return _answer_of_install(project, brought, options)


@_SCOPE
def answer_verify(options: Options) -> Answer:
    """Compare the installed skills with skillyard.lock: changed, missing and added files.

    examples:
      skillyard verify
      skillyard verify --json
    """
    with open_project() as project:
        found = project.installer(is_global=options.is_global).compare()
    bad = sum(not drift.is_none for drift in found.values())
    skills, lines = list[Json](), list[str]()
    for folder, drift in found.items():
        skills.append({"folder": folder, **fields_of(drift, *drift._fields)})
        lines += [f"{'ok  ' if drift.is_none else 'FAIL'} {folder}", *_drift_lines(drift)]
    summary = Message("{total} skills compared: {bad} differ from the lock", total=len(found), bad=bad)
    state = State.ERROR if bad else State.SUCCESS
    return Answer(summary, {"skills": skills}, lines or [Message("nothing installed")], state)


def _agents(text: str) -> tuple[str, ...]:
    """An argument type: agents by name, with commas between."""
    names = comma_list(text)
    unknown = ", ".join(name for name in names if name not in _AGENTS)
    if unknown or not names:
        words = {"unknown": unknown or "?", "agents": ", ".join(_AGENTS)}
        raise ArgumentTypeError(Message("{unknown}: the agents are {agents}", **words))
    return names


def _where(answer: Callable[[Options], Answer]) -> Callable[[Options], Answer]:
    """Which agents' folders, and whose."""
    answer = takes("--user", "your own skills, for all your projects", one_of="scope")(answer)
    answer = takes("--project", "the project's skills (the default)", one_of="scope")(answer)
    return takes("--to", f"of {', '.join(_AGENTS)}", type=_agents, metavar="AGENT,…")(answer)


@takes("names", "a skill; without one, every installed skill", nargs="*", metavar="NAME")
@_where
@takes("--copy", "copy instead of a symlink; `update` refreshes it")
@takes("--check", "ask the agents what they see, and change nothing")
@takes("--dry-run", "only tell what would be made")
def answer_link(options: Options) -> Answer:
    """Make installed skills visible to Claude Code, Codex and OpenCode in their own folders.

    Without NAME: every skill that skillyard.lock says was installed. Other skills of the project are linked by
    name. With --user: your own skills, for all your projects. A symlink is made, or with --copy a copy; what an
    agent sees already is told and left alone, and nothing that stands there is overwritten. `skillyard unlink`
    undoes exactly this.

    --check asks the agents themselves (no model is called, nothing leaves this machine): seen, not seen, or
    shadowed by another skill of the same name.

    examples:
      skillyard link --to codex,opencode
      skillyard link pdf --to codex --copy
      skillyard link --user --to claude-code
      skillyard link --check
    """
    if not options.to and not options.check:
        raise InvalidArgs(Message("say for whom: --to {agents}", agents=",".join(_AGENTS)))
    with open_project() as project:
        linker = project.linker(is_user=options.user)
        if options.check:
            with StatusLine(Message("checking"), options.lang) as tell:
                return _checked(linker.check(options.names, options.to or _AGENTS, tell))
        steps = linker.link(options.names, options.to, copy=options.copy, dry_run=options.dry_run)
    new = sum(step.outcome in {"linked", "copied"} for step in steps)
    seen = sum(step.outcome == "visible" for step in steps)
    bad = len(steps) - new - seen
    counts = {"count": new, "seen": seen, "bad": bad}
    summary = Message("{count} linked, {seen} visible already, {bad} in conflict", **counts)
    if options.dry_run:
        summary = Message("would link {count} (nothing was made), {seen} visible already, {bad} in conflict", **counts)
    state = (State.PARTIAL if new or seen else State.ERROR) if bad else State.SUCCESS
    return Answer(summary, {"links": _links_data(steps)}, _link_lines(steps), state)


def _links_data(steps: "Sequence[LinkStep]") -> list[Json]:
    return [fields_of(step, *step._fields) for step in steps]


def _link_lines(steps: "Sequence[LinkStep]") -> list[str]:
    lines: list[str] = []
    for step in steps:
        lines.append(Message("{outcome:<9} {name} for {agent}: {path}", **step._asdict()))
        if step.note:
            lines.append(join_messages("", ("          ", step.note)))
        if step.next:
            lines.append(join_messages("", ("          → ", step.next)))
    return lines or [Message("nothing was linked")]


def _checked(views: "Sequence[LinkView]") -> Answer:
    asked = [view for view in views if view.standing != "not installed"]
    if not asked:
        missing = ", ".join(sorted({view.agent for view in views}))
        why = Message("not installed: {missing}", missing=missing)
        raise AgentNotInstalled(why, agent=missing, command=views[0].note)
    seen = sum(view.standing == "seen" for view in asked)
    rows = [
        (view.name, view.agent, str(view.standing), join_messages(" ", filter(None, (view.path, view.note))))
        for view in views
    ]
    return Answer(
        Message("{seen} of {asked} are seen", seen=seen, asked=len(asked)),
        {"skills": [fields_of(view, *view._fields) for view in views]},
        Table(("skill", "agent", "standing", "where"), rows),
        State.SUCCESS if seen == len(asked) else State.PARTIAL if seen else State.ERROR,
    )


@takes("names", "a linked skill", nargs="*", metavar="NAME")
@takes("--all", "everything that was linked")
@_where
@takes("--dry-run", "only tell what would go")
def answer_unlink(options: Options) -> Answer:
    """Take back what `skillyard link` made, and only that.

    A copy that you edited stays, and is told; so does whatever somebody else put in its place. Folders that link
    made and that are empty now go too.

    examples:
      skillyard unlink pdf
      skillyard unlink --all
      skillyard unlink --all --to opencode --user
    """
    if bool(options.names) == options.all:
        raise InvalidArgs(Message("say which: names, or --all"))
    names = None if options.all else [name.removeprefix("@") for name in options.names]
    with open_project() as project:
        steps = project.linker(is_user=options.user).unlink(names, options.to, dry_run=options.dry_run)
    kept = sum(step.outcome == "kept" for step in steps)
    summary = Message("{count} unlinked, {kept} kept", count=len(steps) - kept, kept=kept)
    if options.dry_run:
        summary = Message("would unlink {count} (nothing changed), {kept} kept", **summary.values)
    return Answer(summary, {"links": _links_data(steps)}, _link_lines(steps), State.PARTIAL if kept else State.SUCCESS)


@takes("verb", "list where nothing is said", nargs="?", default="list", choices=("list", "show", "resume", "drop"))
@takes("review", "as `skillyard review` lists it", nargs="?", default="", metavar="ID")
@takes("--decisions", '{"skill": "keep" or "uninstall"}', default="", metavar="JSON")
def answer_review(options: Options) -> Answer:
    """Decide on skills that were held back: keep installs them, uninstall does not.

    On a terminal `review resume ID` shows three lines for each and takes one key. Off a terminal --decisions says it,
    and nothing above MEDIUM is kept; inside an agent nothing is kept at all. What is not decided stays held back.

    examples:
      skillyard review
      skillyard review show 3f9a1c0b22de
      skillyard review resume 3f9a1c0b22de --decisions '{"pdf": "keep", "odd": "uninstall"}'
      skillyard review drop 3f9a1c0b22de
    """
    with open_project() as project:
        if options.verb == "list":
            return _list_reviews(project.reviews.list())
        if not options.review:
            why = Message("say which: `skillyard review {verb} ID`; `skillyard review` lists them", verb=options.verb)
            raise InvalidArgs(why)
        if options.verb == "drop":
            project.reviews.drop(options.review)
            return Answer(Message("dropped: {id}", id=options.review), {"review": options.review})
        review = project.reviews.read(options.review)
        if options.verb == "resume":
            return _resume(project, review, options)
    lines: list[str] = [Message("for {project}", project=_project_of(review))]
    for held in review.held.values():
        lines += [_held_lines(held)[0], *_all_lines(held)]
    return Answer(Message("review: {id}", id=review.id), review.as_data(), lines)


def _list_reviews(reviews: "Sequence[Review]") -> Answer:
    rows = []
    for review in reviews:
        sources = ", ".join(sorted({held.skill.source for held in review.held.values()}))
        names = ", ".join(f"{name} ({held.verdict.severity})" for name, held in sorted(review.held.items()))
        rows.append((review.id, _project_of(review), sources, names))
    table = Table(("id", "project", "source", "held back"), rows, empty=Message("Nothing is held back."))
    data: dict[str, Json] = {"reviews": [review.as_data() for review in reviews]}
    return Answer(Message("{count} reviews wait", count=len(reviews)), data, table)


def _project_of(review: "Review") -> str:
    return str(review.target.bounds) if review.target.is_project else Message("your own skills")


def _resume(project: Project, review: "Review", options: Options) -> Answer:
    decisions: dict[str, Json] = {}
    if options.decisions:
        decisions = read_object(options.decisions, "--decisions")
    elif on_terminal() and not options.json:
        decisions = _ask_decisions(review, options.lang)
    unknown = sorted(decisions.keys() - review.held.keys())
    resumed = project.reviews.resume(review, decisions, on_terminal=on_terminal())
    review, installed, uninstalled = resumed.review, resumed.installed, resumed.uninstalled
    lines = _outcome_lines(installed, uninstalled)
    lines += [Message("changed since it was shown, scanned again: {name}", name=name) for name in resumed.changed]
    lines += [Message("nothing here is called {name}", name=name) for name in unknown]
    data = {**fields_of(resumed, "installed", "uninstalled", "changed"), "unknown": [*unknown]}
    if not review.held:
        done = Message("review done: {kept} installed, {gone} not", kept=len(installed), gone=len(uninstalled))
        return Answer(done, {"review": review.id, **data}, lines)
    summary = Message("{count} skills are still held back", count=len(review.held))
    return Answer(summary, {**review.as_data(), **data}, [*lines, *_waiting_lines(review)], State.INTERRUPTED)


def _outcome_lines(installed: Sequence[str], uninstalled: Sequence[str]) -> list[str]:
    lines: list[str] = [Message("added {name}", name=name) for name in installed]
    return lines + [Message("not installed {name}", name=name) for name in uninstalled]


def _waiting_lines(review: "Review") -> list[str]:
    lines = [line for held in review.held.values() for line in _held_lines(held)]
    example = f"""--decisions '{{"{min(review.held)}": "keep"}}'"""
    told = {"command": review.resume_command, "example": example}
    return [*lines, Message("decide: {command}  (it asks on a terminal; elsewhere add {example})", **told)]


def _held_lines(held: "ScannedSkill") -> list[str]:
    """What it is, and the two worst things about it."""
    skill, verdict = held.skill, held.verdict
    commit = f" @ {skill.commit[:12]}" if skill.commit and not skill.commit.startswith("sha256:") else ""
    words = {"folder": skill.folder, "severity": verdict.severity, "source": f"{skill.source}{commit}"}
    return [Message("held back {folder}: {severity}, from {source}", **words), *_hit_lines(held)]


def _hit_lines(held: "ScannedSkill") -> list[str]:
    """The two worst things about it, each with its rule, and how many more there are."""
    hits: list[str] = list(map(_hit_line, held.verdict.lines_that_matter[:2]))
    more = len(held.verdict.hits) - len(hits)
    if more and hits:
        hits[-1] = join_messages("", (hits[-1], Message("  (and {count} more)", count=more)))
    return hits


def _hit_line(hit: "ThreatHit") -> str:
    return f"  {hit.severity.name:<8} {hit.where}  {hit.rule}: {hit.excerpt}"


def _all_lines(held: "ScannedSkill") -> list[str]:
    files = [f"  {path}" for path in list(held.skill.files)[:_MOST_FILES]]
    return [*map(_hit_line, held.verdict.hits[:100]), Message("  staged in {path}", path=held.at), *files]


def ask_about(held: "ScannedSkill", question: Message, keys: str, lang: Lang) -> str:
    """Return the key that a person presses at what was held back; s shows more and asks again."""
    write_lines(_held_lines(held), lang)
    while (key := ask_key(question.render(lang), keys)) == "s":
        write_lines(_all_lines(held), lang)
    return key


def _ask_decisions(review: "Review", lang: Lang) -> dict[str, Json]:
    """One key for each: k keeps, u does not install, s shows more, q leaves the rest for later."""
    decisions: dict[str, Json] = {}
    question = Message("  k keep · u uninstall · s show · q leave it ")
    for name, held in sorted(review.held.items()):
        key = ask_about(held, question, "kusq", lang)
        if key not in {"k", "u"}:
            break
        decisions[name] = "keep" if key == "k" else "uninstall"
    return decisions
