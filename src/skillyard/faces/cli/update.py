"""Bring installed skills to what their sources have now, after telling what would change.

Files that you edited are never overwritten unasked: the difference is shown, --keep keeps yours, --theirs takes the
source's. Files that you added stay in any case. What the scan holds back waits for a decision, as with `add`.
Copies that `skillyard link --copy` made follow, but for those that you edited.

examples:
  skillyard update --dry-run --all
  skillyard update pdf
  skillyard update --all --keep
"""

import sys
from collections.abc import Sequence
from functools import partial

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message, render
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import on_terminal
from skillyard.faces.cli.link import links_data, links_page
from skillyard.faces.cli.review_prompt import NOTHING_INSTALLED, answer_of
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Lines, Steps, one_line
from skillyard.install.links import LinkStep
from skillyard.install.update import UpdatePlan, UpdateState, UpdateStep

_UPDATING = Message("updating")
_WOULD = Message("{count} skills would change")
_DID = Message("{count} skills updated")
_NEW = Message("new      {name}  (in {source})")


def arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder or name of an installed skill")
    parser.add_argument("--all", action="store_true", help="every installed skill")
    parser.add_argument("--global", dest="is_global", action="store_true", help="the user's own skills")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would change")
    edits = parser.add_mutually_exclusive_group()
    edits.add_argument("--keep", action="store_true", help="keep files that were edited here")
    edits.add_argument("--theirs", action="store_true", help="replace files that were edited here")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
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
