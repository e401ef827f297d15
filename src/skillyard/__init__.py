"""Skillyard: find, check, run and hand out agent skills, with one typed result.

Importing this has no effect and costs next to nothing; each name is loaded when it is first used.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # what typing has under this name, without its import
if TYPE_CHECKING:
    from skillyard.app.project import run as run
    from skillyard.app.task import JobExecutor as JobExecutor
    from skillyard.app.task import Kernel as Kernel
    from skillyard.app.task import execute_skill as execute_skill
    from skillyard.core.request import Request as Request
    from skillyard.core.result import Result as Result
    from skillyard.dispatch.dispatcher import active_skills as active_skills
    from skillyard.dispatch.dispatcher import dispatch_task as dispatch_task
    from skillyard.dispatch.text import ActiveSkill as ActiveSkill
    from skillyard.dispatch.text import build_enhanced_task as build_enhanced_task

_HOMES = {
    "ActiveSkill": "skillyard.dispatch.text",
    "JobExecutor": "skillyard.app.task",
    "Kernel": "skillyard.app.task",
    "Request": "skillyard.core.request",
    "Result": "skillyard.core.result",
    "active_skills": "skillyard.dispatch.dispatcher",
    "build_enhanced_task": "skillyard.dispatch.text",
    "dispatch_task": "skillyard.dispatch.dispatcher",
    "execute_skill": "skillyard.app.task",
    "run": "skillyard.app.project",
}

__all__ = [
    "ActiveSkill",
    "JobExecutor",
    "Kernel",
    "Request",
    "Result",
    "__version__",
    "active_skills",
    "build_enhanced_task",
    "dispatch_task",
    "execute_skill",
    "run",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  (the package must import in no time)

    return getattr(import_module(home), name)
