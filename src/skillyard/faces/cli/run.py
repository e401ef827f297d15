"""Run a skill and print one result.

Options of ours may stand anywhere before or after the name, unless the skill has a param of that name; after
`@name:script` every word is the script's. Piped input goes to the program.

A word that starts with @ is an installed skill. A folder is run as it is. Anything else with a slash, or an archive, is
SOURCE[@skill][#ref][:script], with the sources of `skillyard add`: it is fetched, scanned and run, and not installed.
What the scan holds back runs only after a key of yours; off a terminal it does not run (exit code 5). The copy is kept
for a month, and used again for the same commit.

examples:
  skillyard run @markdown-converter README.md
  skillyard run @word-count --json notes.txt
  skillyard run @changelog-writer:scripts/commits.py v1.0..HEAD
  skillyard run ./some/folder:scripts/tool.py input.csv
  skillyard run owner/repo@pdf-tools:scripts/pages.py report.pdf
  skillyard run ./pack.zip@word-count notes.txt
  skillyard run --dry-run @csv-summary sales.csv
  skillyard run --to claude-code --model haiku @marketing-ideas "my product"
"""

import argparse
import os
import select
import stat
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from skillyard.app.project import Project, open_project
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import PermissionDenied, SkillError
from skillyard.core.messages import Message
from skillyard.core.result import Request, Result, make_meta, split_name
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import ask, confirm, on_terminal
from skillyard.faces.command import Options, Parser, ProgramLines, lang_of, show_and_exit, style_of
from skillyard.faces.passthrough import pass_through
from skillyard.faces.present import Steps, one_line, write_lines
from skillyard.scripts.prompt_grammar import may_name_source
from skillyard.trust.grant_rules import grant, mark_of_skill, refuse_inside_agents

if TYPE_CHECKING:
    from skillyard.install.source_run import SourceRun

#: As long as we wait to see whether a pipe brings anything.
_PIPE_SECONDS = 0.2
_MOST_QUESTIONS = 20


def arguments(parser: Parser) -> None:
    parser.add_argument("name", help="@name, @name:script, ./folder[:script], or SOURCE[@skill][#ref][:script]")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its params: value, --key value or key=value")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds that the run may take")
    parser.add_argument("--dry-run", action="store_true", help="show what would be started, and start nothing")
    parser.add_argument("--non-interactive", action="store_true", help="a missing param is an error, not a question")
    parser.add_argument("--no-sandbox", action="store_true", help="run it with everything that you may do yourself")
    parser.add_argument(
        "--weak-sandbox",
        action="store_true",
        help="as root: run even where the sandbox has no namespaces (skillyard doctor tells what is not covered)",
    )
    parser.add_argument("--strict", action="store_true", help="JSON skills: refuse what differs from the protocol")
    parser.add_argument("--stdin", action="store_true", help="wait for piped input, however long it takes")
    parser.add_argument("--to", metavar="BACKEND", help="let this agent do what a prompt skill says")
    parser.add_argument("--model", metavar="M", help="the agent's model")


def answer(options: Options) -> NoReturn:
    with open_project(ends_with_process=True) as project:
        target, source = _target(project, options)
        words = options.args if target.script else take_ours(project, target, options, options.args)
        if options.model and not options.to:
            options.parser.error(Message("argument {name}: {reason}", name="--model", reason=Message("only with --to")))
        if options.no_sandbox or options.weak_sandbox:
            refuse_inside_agents()
        if options.weak_sandbox:
            project.accept_weak_sandbox()
        request = target._replace(
            args=tuple(words),
            timeout_seconds=options.timeout,
            interactive=not options.non_interactive,
            strict=options.strict,
            sandboxed=not options.no_sandbox,
            stdin=_piped(wait=options.stdin),
            lang=lang_of(options),
        )
        result = _run_source(project, request, source, options) if source else _result(project, request, options)
        style = style_of(options)
        show_and_exit(result if style.json else pass_through(result, project.root), style)


def _target(project: Project, options: Options) -> "tuple[Request, SourceRun | None]":
    """An installed skill, a folder as it is, or a skill of a source: then it is fetched, and the copy is what runs."""
    text = options.name
    name, script = split_name(text)
    here = None if os.environ.get(DEPTH) else Path.cwd()
    target = Request(name=name, script=script, typed_in=here)
    if text.startswith("@") or not ("/" in text or "." in text):
        return target, None
    if not name.startswith(("./", "../", "/", "~/")) and "://" not in text:
        project.catalog.sync()
        if project.catalog.knows(name):
            return target, None
        if here and "/" in name and (here / name).is_dir():
            target = target._replace(name=f"./{name}")
    if not may_name_source(text, Path.cwd()):
        return target, None
    if here is None:
        raise PermissionDenied(
            Message("an agent runs only what is installed: a person runs other things, or installs them")
        )
    from skillyard.install.source_run import split_source

    asked, lang = split_source(text, Path.cwd()), lang_of(options)
    with Steps(Message("fetching"), lang) as steps:
        source = project.installer().prepare_run(asked, steps)
    if source.reused:
        state = source.staged.skill.commit or source.staged.skill.hash
        write_lines([Message("using the copy of {state} that was fetched before", state=state)], lang)
    return Request(name=asked.name, script=asked.script, typed_in=here, staged=source.staged.at), source


def take_ours(project: Project, target: Request, options: Options, words: Sequence[str]) -> list[str]:
    """Put options of ours among the words of a skill into the options, and return the skill's own words.

    Ours are those that the skill has no param for. A question for help after the name is the skill's.
    """
    parser: Parser = options.parser
    actions = [action for action in parser._actions if action.dest != "help"]  # noqa: SLF001
    known = {text: action for action in actions for text in action.option_strings}
    if not any(word.partition("=")[0] in known for word in words):
        return list(words)
    try:
        params = project.runtime.resolve(target).params
    except SkillError:
        params = ()
    for param in params:
        known.pop(f"--{param.name.replace('_', '-')}", None)
    ours: list[str] = []
    theirs: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        option = word.partition("=")[0]
        if word == "--":
            theirs += [word, *left]
            break
        if option in known:
            takes = known[option].nargs != 0 and "=" not in word
            ours += [word, *([left.pop(0)] if takes and left else [])]
        else:
            theirs.append(word)
    positional = [getattr(options, action.dest) for action in actions if not action.option_strings]
    parser.parse_args([*ours, *(each for each in positional if isinstance(each, str))], namespace=options)
    return theirs


def _run_source(project: Project, request: Request, source: "SourceRun", options: Options) -> Result:
    """Run a skill of a source. If it is held back, one key of a person decides, for this run alone.

    A dry run starts nothing, so it asks nothing.
    """
    skill, held = source.staged.skill, source.held
    about: dict[str, Json] = {"source": skill.source, "commit": skill.commit or skill.hash, "reused": source.reused}
    if options.dry_run or not source.is_held or (request.interactive and on_terminal() and _allows(source, request)):
        result = _result(project, request, options)
        return result._replace(meta={**result.meta, **about})
    name, command = held.skill.folder, source.asked.add_command(held.skill.name)
    data: dict[str, Json] = {
        "interrupted_skills": [name],
        "resume_command": command,
        "severities": {name: str(held.verdict.severity)},
        "findings": {name: [hit.as_dict() for hit in held.verdict.hits[:20]]},
    }
    summary = Message("not run: a person must decide on {name} first", name=source.asked.name).render(request.lang)
    hint = Message("look at it and decide: {command}", command=command).render(request.lang)
    meta = make_meta(request.agent, 0.0, datetime.now(UTC), **about, hint=hint)
    return Result(request.agent, State.INTERRUPTED, summary, data, meta)


def _allows(source: "SourceRun", request: Request) -> bool:
    from skillyard.faces.cli.review import ask_about

    return ask_about(source.held, Message("  r run it this once · s show · q do not run "), "rsq", request.lang) == "r"


def _result(project: Project, request: Request, options: Options) -> Result:
    if options.dry_run:
        return project.runtime.plan(request)
    if options.to:
        return _converse(project, request, partial(_run_by_agent, project, options))
    return _converse(project, request, partial(_run_shown, project))


def _run_shown(project: Project, request: Request) -> Result:
    with ProgramLines() as lines:
        return project.runtime.run(request, lines)


def _run_by_agent(project: Project, options: Options, request: Request) -> Result:
    from skillyard.faces.cli.agents import Watching

    watched, to, model = Watching(request.lang), options.to, options.model
    with watched.watching(stream=False) as tell:
        return project.dispatcher.run_prompt(
            project.runtime, request, to=to, model=model, tell=tell, ask=watched.allows, stop=watched.stop
        )


def _converse(project: Project, request: Request, run: Callable[[Request], Result]) -> Result:
    """Run it; on a terminal ask for what is missing and go on with the answers."""
    result = run(request)
    for _ in range(_MOST_QUESTIONS):
        if not (request.interactive and on_terminal()):
            break
        answered = _answered(project, request, result)
        if answered is None:
            break
        request = answered
        result = run(request)
    return result


def _answered(project: Project, request: Request, result: Result) -> Request | None:
    """The request with the person's answers in it; None where there is nothing to ask or they say no."""
    if result.state is State.PENDING:
        declared = frozenset(param.name for param in project.runtime.resolve(request).params)
        return _with_params(request, result, declared | {"action"})
    if result.state is not State.ERROR or result.data.get("type") != "NotGranted":
        return None
    if result.data.get("capability") == "packages":
        from skillyard.faces.cli.env import build_on_yes

        return request if build_on_yes(project, request) else None
    asked = result.data.get("capabilities")
    if not isinstance(asked, list):
        return None
    capabilities = tuple(map(str, asked))
    spoken = request.name if request.staged else f"@{request.name}"
    skill = project.runtime.resolve(request)
    mark = mark_of_skill(skill)  # before the question: the answer is for these bytes
    words = {"name": spoken, "capabilities": ", ".join(capabilities)}
    question = Message("{name} asks for: {capabilities}. Allow it, for this version of the skill?", **words)
    if not confirm(question.render(request.lang)):
        return None
    grant(project.grants, skill, capabilities, mark)
    return request


def _with_params(request: Request, result: Result, declared: frozenset[str]) -> Request | None:
    prompts = result.data.get("prompts")
    required = result.data.get("required")
    answers = dict(request.params)
    for name in required if isinstance(required, list) else ():
        said = prompts.get(name, "") if isinstance(prompts, dict) else ""
        question = f"{name}{f' ({said})' if said else ''}: "
        if name not in declared:  # only the program gave this name: it is the program that asks
            asked = Message("the program of @{skill} asks for {name}: ", skill=request.name, name=name)
            question = asked.render(request.lang)
        answer = ask(one_line(question))
        if not answer:
            return None
        answers[str(name)] = answer
    if "action" in answers and request.action is None:
        action = str(answers.pop("action"))
        return request._replace(params=answers, action=action)
    return request._replace(params=answers)


def _piped(*, wait: bool) -> bytes:
    """What was piped in. A pipe that brings nothing is one that somebody left open, unless they say --stdin."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return b""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if stat.S_ISREG(mode) or wait:
        return sys.stdin.buffer.read()
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return b""
    ready, _, _ = select.select([sys.stdin], [], [], _PIPE_SECONDS)
    return sys.stdin.buffer.read() if ready else b""
