"""Take back what was granted to a skill, or the trust in this project.

examples:
  skillyard revoke @report
  skillyard revoke @report network
  skillyard revoke --trust
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with
from skillyard.trust.consent import distrust
from skillyard.trust.grant_rules import as_capabilities


def arguments(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", help="@name of a skill, or its folder")
    parser.add_argument("capability", nargs="?")
    parser.add_argument("--trust", action="store_true", help="the trust in this project's files")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    if not options.name and not options.trust:
        raise InvalidArgs(Message("name a skill, or give --trust"))
    count = 0
    with open_project(ends_with_process=True) as yard:
        if options.trust:
            distrust(yard.grants, yard.root)
        if options.name:
            yard.catalog.sync()
            name = options.name.removeprefix("@")
            wanted = as_capabilities((options.capability,))[0] if options.capability else None
            known = [str(entry.folder) for entry in yard.catalog.candidates(name)] or [name]
            count = sum(yard.grants.revoke(folder, wanted) for folder in known)
    return Answer(
        summary=Message("{count} grants taken back"),
        words={"count": count},
        data={"revoked": count},
    )
