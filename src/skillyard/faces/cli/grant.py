"""Allow a skill more than the rules give it: for this project, and for exactly its bytes.

Capabilities: read-project, network, network:HOST, packages, read:PATH, write:PATH, env:NAME. A changed skill has none
of them. A path is taken from the project root, and resolved: what it leads to now is what is granted. network:HOST
allows one host (api.example.com, *.example.com, 192.0.2.1, [2001:db8::1]) on ports 80 and 443, or on the port that is
named (network:HOST:PORT), through a proxy of ours.
What the agent.yaml of a role asks for is granted all at once by `skillyard trust`.

examples:
  skillyard grant @report network
  skillyard grant @report network:api.example.com network:db.example.com:5432
  skillyard grant @deploy env:DEPLOY_TOKEN write:result.html --accept
"""

from functools import partial
from pathlib import Path

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.request import Request
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.trust.grant_rules import as_capabilities, grant, mark_of_skill, refuse_inside_agents, resolve_paths

_QUESTION = Message("Allow @{name} ({folder}): {what}?")


def arguments(parser: Parser) -> None:
    parser.add_argument("name", help="@name of a skill, or a folder")
    parser.add_argument("capabilities", nargs="+", metavar="CAPABILITY")
    parser.add_argument("--accept", action="store_true", help="say yes without being asked")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    refuse_inside_agents()
    with open_project(ends_with_process=True) as yard:
        skill = yard.runtime.resolve(Request(name=options.name.removeprefix("@"), typed_in=Path.cwd()))
        mark = mark_of_skill(skill)  # before the question: the answer is for these bytes
        named = as_capabilities(tuple(options.capabilities))
        capabilities = resolve_paths(named, yard.root, yard.places.user_home)
        words = {"name": skill.name, "folder": skill.folder, "what": " ".join(capabilities)}
        if not options.accept and not (on_terminal() and confirm(_QUESTION.render(lang_of(options), **words))):
            raise InvalidArgs(Message("nothing was granted: say yes on a terminal, or give --accept"))
        grant(yard.grants, skill, capabilities, mark)
    return Answer(
        summary=Message("granted: @{name} {what}"),
        words={"name": skill.name, "what": " ".join(capabilities)},
        data={"skill": skill.name, "capabilities": list(capabilities)},
    )
