"""Skillyard: find, check, run and hand out agent skills, with one typed result.

Importing this has no effect and costs next to nothing; each name is loaded when it is first used.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # what typing has under this name, without its import
if TYPE_CHECKING:
    from skillyard.app.dispatching import active_skills as active_skills
    from skillyard.app.dispatching import dispatch_task as dispatch_task
    from skillyard.app.project import Project as Project
    from skillyard.app.project import run as run
    from skillyard.app.task import JobExecutor as JobExecutor
    from skillyard.app.task import Kernel as Kernel
    from skillyard.app.task import execute_skill as execute_skill
    from skillyard.catalog.catalog import SearchHit as SearchHit
    from skillyard.catalog.index import CatalogEntry as CatalogEntry
    from skillyard.core.envelope import parse as parse
    from skillyard.core.errors import SkillError as SkillError
    from skillyard.core.messages import Lang as Lang
    from skillyard.core.result import Request as Request
    from skillyard.core.result import Result as Result
    from skillyard.core.states import State as State
    from skillyard.core.values import Json as Json
    from skillyard.dispatch.text import ActiveSkill as ActiveSkill
    from skillyard.dispatch.text import build_enhanced_task as build_enhanced_task
    from skillyard.store.runs import Run as Run

_MODULES = {
    "ActiveSkill": "skillyard.dispatch.text",
    "CatalogEntry": "skillyard.catalog.index",
    "SearchHit": "skillyard.catalog.catalog",
    "JobExecutor": "skillyard.app.task",
    "Json": "skillyard.core.values",
    "Kernel": "skillyard.app.task",
    "Lang": "skillyard.core.messages",
    "Project": "skillyard.app.project",
    "Request": "skillyard.core.result",
    "Result": "skillyard.core.result",
    "Run": "skillyard.store.runs",
    "SkillError": "skillyard.core.errors",
    "State": "skillyard.core.states",
    "active_skills": "skillyard.app.dispatching",
    "build_enhanced_task": "skillyard.dispatch.text",
    "dispatch_task": "skillyard.app.dispatching",
    "execute_skill": "skillyard.app.task",
    "parse": "skillyard.core.envelope",
    "run": "skillyard.app.project",
}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  (the package must import in no time)

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
