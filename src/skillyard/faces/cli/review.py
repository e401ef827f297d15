"""Decide on skills that were held back: keep installs them, uninstall does not.

On a terminal `review resume ID` shows three lines for each and takes one key. Off a terminal --decisions says it, and
nothing above MEDIUM is kept; inside an agent nothing is kept at all. What is not decided stays held back.

examples:
  skillyard review
  skillyard review show 3f9a1c0b22de
  skillyard review resume 3f9a1c0b22de --decisions '{"pdf": "keep", "odd": "uninstall"}'
  skillyard review drop 3f9a1c0b22de
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message, join_messages
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import ask_key, on_terminal
from skillyard.faces.command import Answer, Options, Parser, lang_of, read_object
from skillyard.faces.present import Lines, Table, write_lines

if TYPE_CHECKING:
    from skillyard.install.installer import InstallResult
    from skillyard.install.offers import ScannedSkill
    from skillyard.install.review import Review

_SHOWN_FILES = 40


def arguments(parser: Parser) -> None:
    verbs = ("list", "show", "resume", "drop")
    parser.add_argument("verb", nargs="?", default="list", choices=verbs, help="list where nothing is said")
    parser.add_argument("review", nargs="?", default="", metavar="ID", help="as `skillyard review` lists it")
    parser.add_argument("--decisions", default="", metavar="JSON", help='{"skill": "keep" or "uninstall"}')


def answer(options: Options) -> Answer:
    with open_project() as project:
        if options.verb == "list":
            return _list(project.reviews.list())
        if not options.review:
            raise InvalidArgs(
                Message("say which: `skillyard review {verb} ID`; `skillyard review` lists them", verb=options.verb)
            )
        if options.verb == "drop":
            project.reviews.drop(options.review)
            return Answer(Message("dropped: {id}", id=options.review), {"review": options.review})
        review = project.reviews.read(options.review)
        if options.verb == "resume":
            return _resume(project, review, options)
    lines = [line for held in review.held.values() for line in (held_lines(held)[0], *all_lines(held))]
    return Answer(Message("review: {id}", id=review.id), review.as_data(), Lines(lines))


def _list(reviews: "Sequence[Review]") -> Answer:
    rows = [
        (review.id, ", ".join(f"{name} ({held.verdict.severity})" for name, held in sorted(review.held.items())))
        for review in reviews
    ]
    return Answer(
        Message("{count} reviews wait", count=len(reviews)),
        {"reviews": [review.as_data() for review in reviews]},
        Table(("id", "held back"), rows, empty=Message("Nothing is held back.")),
    )


def _resume(project: Project, review: "Review", options: Options) -> Answer:
    decisions: dict[str, Json] = {}
    if options.decisions:
        decisions = read_object(options.decisions, "--decisions")
    elif on_terminal() and not options.json:
        decisions = _ask_decisions(review, lang_of(options))
    unknown = sorted(decisions.keys() - review.held.keys())
    resumed = project.reviews.resume(review, decisions, on_terminal=on_terminal())
    review, installed, uninstalled = resumed.review, resumed.installed, resumed.uninstalled
    lines = _outcome_lines(installed, uninstalled)
    lines += [Message("changed since it was shown, scanned again: {name}", name=name) for name in resumed.changed]
    lines += [Message("nothing here is called {name}", name=name) for name in unknown]
    data: dict[str, Json] = {
        "installed": list(installed),
        "uninstalled": list(uninstalled),
        "changed": list(resumed.changed),
        "unknown": [*unknown],
    }
    if not review.held:
        done = Message("review done: {kept} installed, {gone} not", kept=len(installed), gone=len(uninstalled))
        return Answer(done, {"review": review.id, **data}, Lines(lines))
    summary = Message("{count} skills are still held back", count=len(review.held))
    return Answer(summary, {**review.as_data(), **data}, Lines([*lines, *_waiting_lines(review)]), State.INTERRUPTED)


def answer_of_install(project: Project, brought: "InstallResult", options: Options) -> Answer:
    """What an install answers. On a terminal the person decides at once on what was held back."""
    installed, uninstalled = [skill.folder for skill in brought.installed], list[str]()
    review = brought.review
    if review and on_terminal() and not options.json:
        decisions = _ask_decisions(review, lang_of(options))
        resumed = project.reviews.resume(review, decisions, on_terminal=True)
        review = resumed.review
        installed, uninstalled = [*installed, *resumed.installed], list(resumed.uninstalled)
    data: dict[str, Json] = {"installed": [*installed], "uninstalled": [*uninstalled]}
    lines = _outcome_lines(installed, uninstalled)
    if not review or not review.held:
        summary = Message("{count} skills installed", count=len(installed))
        return Answer(summary, data, Lines(lines or [Message("nothing to do")]))
    summary = Message("{count} skills are held back until somebody decides", count=len(review.held))
    return Answer(summary, {**review.as_data(), **data}, Lines([*lines, *_waiting_lines(review)]), State.INTERRUPTED)


def _outcome_lines(installed: Sequence[str], uninstalled: Sequence[str]) -> list[str]:
    lines: list[str] = [Message("added {name}", name=name) for name in installed]
    return lines + [Message("not installed {name}", name=name) for name in uninstalled]


def _waiting_lines(review: "Review") -> list[str]:
    lines = [line for held in review.held.values() for line in held_lines(held)]
    example = ", ".join(f'"{name}": "keep"' for name in sorted(review.held)[:1])
    command = f"{review.resume_command} --decisions '{{{example}}}'"
    return [*lines, Message("decide: {command}", command=command)]


def held_lines(held: "ScannedSkill") -> list[str]:
    """What it is, and the two worst things about it."""
    skill, verdict = held.skill, held.verdict
    commit = f" @ {skill.commit[:12]}" if skill.commit and not skill.commit.startswith("sha256:") else ""
    words = {"folder": skill.folder, "severity": verdict.severity, "source": f"{skill.source}{commit}"}
    head = Message("held back {folder}: {severity}, from {source}", **words)
    hits: list[str] = [f"  {hit.severity.name:<8} {hit.where}  {hit.excerpt}" for hit in verdict.lines_that_matter[:2]]
    more = len(verdict.hits) - len(hits)
    if more and hits:
        hits[-1] = join_messages("", (hits[-1], Message("  (and {count} more)", count=more)))
    return [head, *hits]


def all_lines(held: "ScannedSkill") -> list[str]:
    hits = [f"  {hit.severity.name:<8} {hit.where}  {hit.rule}: {hit.excerpt}" for hit in held.verdict.hits[:100]]
    files = [f"  {path}" for path in list(held.skill.files)[:_SHOWN_FILES]]
    return [*hits, Message("  staged in {path}", path=held.at), *files]


def ask_about(held: "ScannedSkill", question: Message, keys: str, lang: Lang) -> str:
    """Return the key that a person presses at what was held back; s shows more and asks again."""
    write_lines(held_lines(held), lang)
    while (key := ask_key(question.render(lang), keys)) == "s":
        write_lines(all_lines(held), lang)
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
