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
  skillyard run --apply @code-formatter src
  skillyard run --to claude-code --model haiku @marketing-ideas "my product"
"""

import argparse
import os
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from skillyard.app.project import Project, open_project
from skillyard.core.capability import is_network
from skillyard.core.child_process import DEPTH, refuse_inside_agents
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError
from skillyard.core.messages import Message
from skillyard.core.result import Clock, Request, Result, split_name
from skillyard.core.skill import as_exit_codes
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import (
    Options,
    Parser,
    ProgramLines,
    ask,
    confirm,
    finish_run,
    on_terminal,
    show_and_exit,
    split_options,
    takes,
)
from skillyard.faces.present import StatusLine, one_line, write_lines

if TYPE_CHECKING:
    from skillyard.install.offers import SourceRun

#: As long as we wait to see whether a pipe brings anything.
_PIPE_SECONDS = 0.2
_MOST_QUESTIONS = 20
_HELP = (["--help"], ["-h"])


@takes("name", "@name, @name:script, ./folder[:script], or SOURCE[@skill][#ref][:script]")
@takes("args", "its params: value, --key value or key=value", nargs=argparse.REMAINDER)
@takes("--timeout", "seconds that the run may take", type=float, metavar="S")
@takes("--dry-run", "show what would be started, and start nothing")
@takes("--non-interactive", "a missing param is an error, not a question")
@takes("--apply", "apply what it changes in the project, if it succeeds")
@takes("--no-sandbox", "run it with everything that you may do yourself")
@takes(
    "--weak-sandbox",
    "as root: run even where the sandbox has no namespaces (skillyard doctor tells what is not covered)",
)
@takes("--check-exit", "exit codes that count as success, like 0,1", metavar="CODES")
@takes("--strict", "JSON skills: refuse what differs from the protocol")
@takes("--show-secrets", "show keys and tokens in this result, on a terminal only")
@takes("--stdin", "wait for piped input, however long it takes")
@takes("--to", "let this agent do what a prompt skill says", metavar="BACKEND")
@takes("--model", "the agent's model", metavar="M")
def answer(options: Options) -> NoReturn:
    with open_project(ends_with_process=True) as project:
        if not options.dry_run and not options.to:
            project.expect_run(sandboxed=not options.no_sandbox)
        target, source = _target(project, options)
        words = options.args if target.script else take_ours(project, target, options, options.args)
        if not target.script and list(words) in _HELP:
            _tell_params(project, target, options)
        if options.model and not options.to:
            options.parser.error(Message("argument {name}: {reason}", name="--model", reason=Message("only with --to")))
        codes = as_exit_codes(options.check_exit) if options.check_exit is not None else ()
        if codes is None:
            why = Message("--check-exit takes numbers from 0 to 255, like 0,1, not {text!r}", text=options.check_exit)
            raise InvalidArgs(why)
        if options.no_sandbox or options.weak_sandbox or options.apply:
            refuse_inside_agents()
        if options.show_secrets and (os.environ.get(DEPTH) or not on_terminal() or not sys.stdout.isatty()):
            raise InvalidArgs(Message("--show-secrets is for a person at a terminal: stdin and stdout must be one"))
        if options.weak_sandbox:
            project.accept_weak_sandbox()
        request = target._replace(
            args=tuple(words),
            timeout_seconds=options.timeout,
            interactive=not options.non_interactive,
            success_exit_codes=codes,
            strict=options.strict,
            show_secrets=options.show_secrets,
            sandboxed=not options.no_sandbox,
            apply=options.apply,
            stdin=_piped(wait=options.stdin),
            lang=options.lang,
        )
        result = _run_source(project, request, source, options) if source else _result(project, request, options)
        if result.meta.get("changes") == "pending" and request.interactive and on_terminal():
            from skillyard.faces.cli.runs import ask_about_changes

            result = ask_about_changes(project, result, options.lang)
        finish_run(result, options.style, _write_nothing if options.show_secrets else project.write_file)


def _write_nothing(path: str, content: bytes) -> NoReturn:
    """A result with its secrets is shown whole and goes into no file."""
    del content
    raise PermissionDenied(path)


def _tell_params(project: Project, target: Request, options: Options) -> None:
    """Show how the skill is run, unless it has a param for that word itself."""
    skill = project.runtime.resolve(target)
    if any(param.name in {"help", "h"} for param in skill.params):
        return
    asked = options.name
    words = [f"<{param.name}>" if param.required else f"[{param.name}]" for param in skill.params]
    page = [f"{Message('usage').render(options.lang)}: skillyard run {' '.join([asked, *words])}"]
    if skill.description:
        page += ["", skill.description]
    names = {param.name: f"{param.name}  ({param.type})" for param in skill.params}
    width = max(map(len, names.values()), default=0)
    data = list[Json]()
    for param in skill.params:
        said = [param.description or param.prompt, ", ".join(param.choices)]
        said.append(f"= {param.default}" if param.default not in (None, "") else "")
        page += [""] * (not data) + [f"  {names[param.name]:<{width}}  {' · '.join(filter(None, said))}".rstrip()]
        data.append({"name": param.name, "required": param.required, "description": param.description or param.prompt})
    if skill.actions:
        page += ["", f"  {Message('actions').render(options.lang)}: {', '.join(skill.actions)}"]
    summary = Message("params of {name}: {count}", name=asked, count=len(data))
    result = Result(
        "skillyard", State.SUCCESS, summary.render(options.lang), {"params": data}, Clock().meta("skillyard")
    )
    show_and_exit(result, options.style, page)


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
    if (asked := project.parse_source(text)) is None:
        return target, None
    if here is None:
        why = Message("an agent runs only what is installed: a person runs other things, or installs them")
        raise PermissionDenied(why)
    with StatusLine(Message("fetching"), options.lang) as steps:
        source = project.installer().prepare_run(asked, steps)
    if source.reused:
        state = source.found.skill.commit or source.found.skill.hash
        write_lines([Message("using the copy of {state} that was fetched before", state=state)], options.lang)
    return Request(name=asked.name, script=asked.script, typed_in=here, staged=source.found.at), source


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
    ours, theirs = split_options(words, known)
    positional = [getattr(options, action.dest) for action in actions if not action.option_strings]
    parser.parse_args([*ours, *(each for each in positional if isinstance(each, str))], namespace=options)
    return theirs


def _run_source(project: Project, request: Request, source: "SourceRun", options: Options) -> Result:
    """Run a skill of a source. If it is held back, one key of a person decides, for this run alone.

    A dry run starts nothing, so it asks nothing.
    """
    skill, held = source.found.skill, source.found
    about: dict[str, Json] = {"source": skill.source, "commit": skill.commit or skill.hash, "reused": source.reused}
    allowed = options.dry_run or not source.is_held
    if not allowed and request.interactive and on_terminal():
        from skillyard.faces.cli.install import ask_about

        question = Message("  r run it this once · s show · q do not run ")
        allowed = ask_about(held, question, "rsq", request.lang) == "r"
    if allowed:
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
    meta = Clock().meta(request.agent, {**about, "hint": hint})
    return Result(request.agent, State.INTERRUPTED, summary, data, meta)


def _result(project: Project, request: Request, options: Options) -> Result:
    """Run it; on a terminal ask for what is missing and go on with the answers."""
    if options.dry_run:
        return project.runtime.plan(request)
    result = _run(project, request, options)
    for _ in range(_MOST_QUESTIONS):
        if not (request.interactive and on_terminal() and (answered := _answered(project, request, result))):
            break
        request = answered
        result = _run(project, request, options)
    return result


def _run(project: Project, request: Request, options: Options) -> Result:
    if not options.to:
        with ProgramLines("" if options.json else request.name) as lines:
            return project.runtime.run(request, lines)
    from skillyard.faces.cli.agents import Watching

    watched, to, model = Watching(request.lang), options.to, options.model
    with watched.watching(stream=False) as tell:
        return project.dispatcher.run_prompt(
            project.runtime, request, to=to, model=model, tell=tell, ask=watched.allows, stop=watched.stop
        )


def _answered(project: Project, request: Request, result: Result) -> Request | None:
    """The request with the person's answers in it; None where there is nothing to ask or they say no."""
    if result.state is State.PENDING:
        declared = frozenset(param.name for param in project.runtime.resolve(request).params)
        return _with_params(request, result, declared | {"action"})
    if result.state is not State.ERROR or result.data.get("type") != "NotGranted":
        return None
    if result.data.get("capability") == "packages":
        from skillyard.faces.cli.grants import build_on_yes

        return request if build_on_yes(project, request) else None
    asked = result.data.get("capabilities")
    if not isinstance(asked, list):
        return None
    capabilities = tuple(map(str, asked))
    skill = project.runtime.resolve(request)
    mark = project.permissions.mark_of(skill)
    words = {"name": request.name if request.staged else f"@{request.name}", "capabilities": ", ".join(capabilities)}
    question = Message("{name} asks for: {capabilities}. Allow it, for this version of the skill?", **words)
    if project.runtime.reads_project and any(map(is_network, capabilities)):
        from skillyard.faces.cli.grants import READS_AND_REACHES

        question = Message("{warning} {question}", warning=READS_AND_REACHES, question=question)
    if not confirm(question.render(request.lang)):
        return None
    project.permissions.grant(skill, capabilities, mark)
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
        request = request._replace(action=str(answers.pop("action")))
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


@takes("agent", "skills or worker_agent")
@takes("description", "what it is about, in a few words")
@takes("prompt", "执行 @name [args], or run @name [args]")
@takes("--key", "idempotency key: the same within 5 seconds runs once", metavar="KEY")
@takes("--model", "kept with the run and told in the result", metavar="MODEL")
@takes("--timeout", "seconds that the run may take", type=float, metavar="S")
@takes("--non-interactive", "nobody can answer: a missing param is an error, and nothing is asked")
def answer_task(options: Options) -> NoReturn:
    """Dispatch a Task to an agent, as a Kernel does, and print one result.

    examples:
      skillyard task skills "convert the readme" "执行 @markdown-converter README.md"
      skillyard task skills "count words" "run @word-count notes.txt" --json
      skillyard task worker_agent "列出技能" "执行 python bin/skill_manager.py list" --key skill-list
    """
    from skillyard.app.task import Kernel

    with open_project(ends_with_process=True) as project:
        decider = project.ask_person(ask, options.lang) if on_terminal() else None
        with ProgramLines("" if options.json else options.agent) as lines:
            result = Kernel(project, options.lang, decider).task(
                options.agent,
                options.description,
                options.prompt,
                idempotency_key=options.key,
                model=options.model,
                timeout_seconds=options.timeout,
                interactive=not options.non_interactive,
                on_progress=lines,
            )
        finish_run(result, options.style, project.write_file)
