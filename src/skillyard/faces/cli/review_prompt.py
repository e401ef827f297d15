"""What an install answers, and the moment when a person decides on what was held back: three lines, one key."""

import sys

from skillyard.app.project import Project
from skillyard.core.messages import Lang, Message
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import ask_key
from skillyard.faces.command import Answer
from skillyard.faces.present import Lines, one_line
from skillyard.install.installer import InstallResult
from skillyard.install.offers import ScannedSkill
from skillyard.install.review import KEEP, UNINSTALL, Review

_ADDED = Message("{count} skills installed")
_PAUSED = Message("{count} skills are held back until somebody decides")
ADDED = Message("added {name}")
NOT_INSTALLED = Message("not installed {name}")
NOTHING_INSTALLED = Message("nothing installed")
_NOTHING = Message("nothing to do")
_DECIDE = Message("decide: {command}")
_HELD = Message("held back {folder}: {severity}, from {source}")
_MORE = Message("  (and {count} more)")
_QUESTION = Message("  k keep · u uninstall · s show · q leave it ")
_STAGED = Message("  staged in {path}")
_SHOWN_FILES = 40


def answer_of(yard: Project, brought: InstallResult, lang: Lang, *, terminal: bool) -> Answer:
    installed = [skill.folder for skill in brought.installed]
    review, uninstalled = brought.review, list[str]()
    if review and terminal:
        resumed = yard.reviews.resume(review, ask_decisions(review, lang), on_terminal=True)
        review = resumed.review
        installed, uninstalled = [*installed, *resumed.installed], list(resumed.uninstalled)
    waiting = review if review and review.held else None
    data: dict[str, Json] = {"installed": list(installed), "uninstalled": list(uninstalled)}
    lines = [ADDED.render(lang, name=name) for name in installed]
    lines += [NOT_INSTALLED.render(lang, name=name) for name in uninstalled]
    if waiting:
        data = {**waiting.as_data(), **data}
        lines += waiting_lines(waiting, lang)
    return Answer(
        summary=_PAUSED if waiting else _ADDED,
        words={"count": len(waiting.held) if waiting else len(installed)},
        data=data,
        page=Lines(lines or [_NOTHING.render(lang)]),
        state=State.INTERRUPTED if waiting else State.SUCCESS,
    )


def waiting_lines(review: Review, lang: Lang) -> list[str]:
    lines = [line for held in review.held.values() for line in three_lines(held, lang)]
    example = ", ".join(f'"{name}": "keep"' for name in sorted(review.held)[:1])
    return [*lines, _DECIDE.render(lang, command=f"{review.resume_command} --decisions '{{{example}}}'")]


def three_lines(held: ScannedSkill, lang: Lang) -> list[str]:
    """What it is, and the two worst things about it."""
    skill, verdict = held.skill, held.verdict
    commit = f" @ {skill.commit[:12]}" if skill.commit and not skill.commit.startswith("sha256:") else ""
    hits = [f"  {hit.severity.name:<8} {hit.where}  {hit.excerpt}" for hit in verdict.lines_that_matter[:2]]
    more = len(verdict.hits) - len(hits)
    if more and hits:
        hits[-1] += _MORE.render(lang, count=more)
    words = {"folder": skill.folder, "severity": verdict.severity, "source": f"{skill.source}{commit}"}
    return [_HELD.render(lang, **words), *hits]


def ask_decisions(review: Review, lang: Lang) -> dict[str, Json]:
    """One key for each: k keeps, u does not install, s shows more, q leaves the rest for later."""
    decisions: dict[str, Json] = {}
    for name, held in sorted(review.held.items()):
        tell_lines(three_lines(held, lang))
        key = ask_key(_QUESTION.render(lang), "kusq")
        while key == "s":
            tell_lines(all_lines(held, lang))
            key = ask_key(_QUESTION.render(lang), "kusq")
        if key not in {"k", "u"}:
            break
        decisions[name] = KEEP if key == "k" else UNINSTALL
    return decisions


def all_lines(held: ScannedSkill, lang: Lang) -> list[str]:
    hits = [f"  {hit.severity.name:<8} {hit.where}  {hit.rule}: {hit.excerpt}" for hit in held.verdict.hits[:100]]
    files = [f"  {path}" for path in list(held.skill.files)[:_SHOWN_FILES]]
    return [*hits, _STAGED.render(lang, path=held.at), *files]


def tell_lines(lines: list[str]) -> None:
    sys.stderr.write("".join(f"{one_line(line)}\n" for line in lines))
