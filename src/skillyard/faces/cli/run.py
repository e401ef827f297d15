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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from skillyard.app.project import Project, open_project
from skillyard.core.child_process import DEPTH
from skillyard.core.messages import Lang, Message
from skillyard.core.request import Request
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.faces.ask import ask, confirm, on_terminal
from skillyard.faces.cli.split_options import take_ours
from skillyard.faces.command import (
    Options,
    Parser,
    ProgramLines,
    add_output_options,
    lang_of,
    show_and_exit,
    style_of,
)
from skillyard.faces.passthrough import pass_through
from skillyard.faces.present import one_line
from skillyard.scripts.prompt_grammar import may_name_source, split_name
from skillyard.trust.grant_rules import grant, mark_of_skill, refuse_inside_agents

if TYPE_CHECKING:
    from skillyard.install.source_run import SourceRun

#: As long as we wait to see whether a pipe brings anything.
_PIPE_SECONDS = 0.2
_MOST_QUESTIONS = 20
_ASKED = Message("the program of @{skill} asks for {name}: ")
_ALLOW = Message("{name} asks for: {capabilities}. Allow it, for this version of the skill?")


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
    add_output_options(parser)
    parser.set_defaults(answer=lambda options: _answer(options, parser))


def _answer(options: Options, parser: Parser) -> NoReturn:
    with open_project(ends_with_process=True) as yard:
        target, ready = _target(yard, options.name, lang_of(options))
        words = options.args if target.script else take_ours(yard, target, options, parser, options.args)
        style = style_of(options)
        if options.model and not options.to:
            parser.error(Message("argument {name}: {reason}", name="--model", reason=Message("only with --to")))
        if options.no_sandbox or options.weak_sandbox:
            refuse_inside_agents()
        if options.weak_sandbox:
            yard.accept_weak_sandbox()
        request = target._replace(
            args=tuple(words),
            timeout_seconds=options.timeout,
            interactive=not options.non_interactive,
            strict=options.strict,
            sandboxed=not options.no_sandbox,
            stdin=_piped(wait=options.stdin),
            lang=style.lang,
        )
        result = _from_outside(yard, request, ready, options) if ready else _result(yard, request, options)
        show_and_exit(result if style.json else pass_through(result, yard.root), style)


def _target(yard: Project, text: str, lang: Lang) -> "tuple[Request, SourceRun | None]":
    """An installed skill, a folder as it is, or a skill of a source: then it is fetched, and the copy is what runs."""
    name, script = split_name(text)
    here = None if os.environ.get(DEPTH) else Path.cwd()
    target = Request(name=name, script=script, typed_in=here)
    if text.startswith("@") or not ("/" in text or "." in text):
        return target, None
    if not name.startswith(("./", "../", "/", "~/")) and "://" not in text:
        yard.catalog.sync()
        if yard.catalog.knows(name):
            return target, None
        if here and "/" in name and (here / name).is_dir():
            target = target._replace(name=f"./{name}")
    if not may_name_source(text, Path.cwd()):
        return target, None
    from skillyard.faces.cli import run_source
    from skillyard.install.source_run import split_source

    asked = split_source(text, Path.cwd())
    ready = run_source.fetch(yard, asked, lang)
    return Request(name=asked.name, script=asked.script, typed_in=here, staged=ready.staged.at), ready


def _from_outside(yard: Project, request: Request, ready: "SourceRun", options: Options) -> Result:
    """A dry run starts nothing, so it asks nothing."""
    from skillyard.faces.cli import run_source

    if not options.dry_run and not run_source.may_run(
        ready, request.lang, on_terminal=request.interactive and on_terminal()
    ):
        return run_source.not_run(ready, request.agent, request.lang)
    result = _result(yard, request, options)
    return result._replace(meta={**result.meta, **run_source.about(ready)})


def _result(yard: Project, request: Request, options: Options) -> Result:
    if options.dry_run:
        return yard.runtime.plan(request)
    if options.to:
        return _converse(yard, request, lambda asked: _by_agent(yard, asked, options))
    return _converse(yard, request, lambda asked: _run_shown(yard, asked))


def _run_shown(yard: Project, request: Request) -> Result:
    with ProgramLines() as lines:
        return yard.runtime.run(request, lines)


def _by_agent(yard: Project, request: Request, options: Options) -> Result:
    from skillyard.faces.cli.agents import Watching

    watched = Watching(request.lang)
    with watched.watching(stream=False) as tell:
        return yard.dispatcher.run_prompt(
            yard.runtime, request, to=options.to, model=options.model, tell=tell, ask=watched.allows, stop=watched.stop
        )


def _converse(yard: Project, request: Request, run: Callable[[Request], Result]) -> Result:
    """Run it; on a terminal ask for what is missing and go on with the answers."""
    result = run(request)
    for _ in range(_MOST_QUESTIONS):
        if not (request.interactive and on_terminal()):
            break
        answered = _answered(yard, request, result)
        if answered is None:
            break
        request = answered
        result = run(request)
    return result


def _answered(yard: Project, request: Request, result: Result) -> Request | None:
    """The request with the person's answers in it; None where there is nothing to ask or they say no."""
    if result.state is State.PENDING:
        declared = frozenset(param.name for param in yard.runtime.resolve(request).params)
        return _with_params(request, result, declared | {"action"})
    if result.state is not State.ERROR or result.data.get("type") != "NotGranted":
        return None
    if result.data.get("capability") == "packages":
        from skillyard.faces.cli.env import build_on_yes

        return request if build_on_yes(yard, request) else None
    asked = result.data.get("capabilities")
    if not isinstance(asked, list):
        return None
    capabilities = tuple(map(str, asked))
    spoken = request.name if request.staged else f"@{request.name}"
    skill = yard.runtime.resolve(request)
    mark = mark_of_skill(skill)  # before the question: the answer is for these bytes
    if confirm(_ALLOW.render(request.lang, name=spoken, capabilities=", ".join(capabilities))):
        grant(yard.grants, skill, capabilities, mark)
        return request
    return None


def _with_params(request: Request, result: Result, declared: frozenset[str]) -> Request | None:
    prompts = result.data.get("prompts")
    required = result.data.get("required")
    answers = dict(request.params)
    for name in required if isinstance(required, list) else ():
        said = prompts.get(name, "") if isinstance(prompts, dict) else ""
        question = f"{name}{f' ({said})' if said else ''}: "
        if name not in declared:  # only the program gave this name: it is the program that asks
            question = _ASKED.render(request.lang, skill=request.name, name=name)
        answer = ask(one_line(question))
        if not answer:
            return None
        answers[str(name)] = answer
    if "action" in answers and request.action is None:
        return request._replace(
            params={k: v for k, v in answers.items() if k != "action"}, action=str(answers["action"])
        )
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
