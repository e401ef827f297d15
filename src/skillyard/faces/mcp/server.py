"""The MCP server of one project: what each request is answered with, and serving over stdin and stdout."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged

from skillyard import __version__
from skillyard.app.project import Project
from skillyard.core.errors import SkillError
from skillyard.core.skill import Skill
from skillyard.faces.mcp import resources
from skillyard.faces.mcp.listing import ACTIVE, Options, Shown, Surface, instructions_of, page_of, read_surface
from skillyard.faces.mcp.skills_extension import EXTENSION, METHODS, SETTINGS
from skillyard.faces.mcp.tool_calls import Answering, Threads
from skillyard.faces.mcp.tools import own_tools, skill_tool
from skillyard.faces.mcp.transport import open_stdio

#: Between two looks at the folders; longer where a look takes long, so that it never costs more than a twentieth.
_LOOK_SECONDS = 1.0
_MOST_EFFORT = 0.05
#: Clients that read only the first page of tools still see a thousand.
_TOOLS, _PAGE = 1_000, 200
#: What clients hear of a list that changed: on the stream that those of 2026-07-28 opened, and as a notification.
_TOOLS_CHANGED = (ToolsListChanged(), types.ToolListChangedNotification())
_PROMPTS_CHANGED = (PromptsListChanged(), types.PromptListChangedNotification())
_RESOURCES_CHANGED = (ResourcesListChanged(), types.ResourceListChangedNotification())

Context = ServerRequestContext[Any]
Paging = types.PaginatedRequestParams | None
T = TypeVar("T")


class SkillsParams(types.PaginatedRequestParams):
    """Params of the methods of the skills extension."""

    uri: str | None = None


class Service:
    """One project, served to any number of clients. `server` is what a transport runs."""

    def __init__(self, project: Project, options: Options) -> None:
        self._options = options
        self.threads = Threads(project)
        self._answering = Answering(self.threads, options)
        self._surface = Surface()
        self._seen: int | None = None
        self._sessions: set[ServerSession] = set()
        self._bus = InMemorySubscriptionBus()
        self.server: Server[None] = Server(
            "skillyard",
            version=__version__,
            title="Skillyard",
            lifespan=self._living,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.server.extensions[EXTENSION] = dict(SETTINGS)
        for method, answer in METHODS.items():
            self.server.add_request_handler(method, SkillsParams, partial(self._answer_skills, answer))
        self.server.add_notification_handler("notifications/initialized", types.NotificationParams, self._greeted)
        self._surface, uses, self._active = self._look(project)
        self.server.instructions = instructions_of(self._surface, uses)
        self._seen = None  # that was this thread's; the watch has its own

    # -- what exists, and when it changes

    @contextlib.asynccontextmanager
    async def _living(self, _: Server[None]) -> AsyncIterator[None]:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch)
                yield
                group.cancel_scope.cancel()
        finally:
            self.threads.close()

    async def _watch(self) -> None:
        while True:
            started = time.monotonic()
            await self._refresh()
            took = time.monotonic() - started
            await anyio.sleep(max(_LOOK_SECONDS, took / _MOST_EFFORT))

    async def _refresh(self) -> Surface:
        """The skills as they are now; whoever listens hears of what changed."""
        before, was_active = self._surface, self._active
        self._surface, uses, self._active = await self.threads.watch(self._look)
        if self._surface is not before:
            self.server.instructions = instructions_of(self._surface, uses)
            kinds = self._surface.changed_kinds(before)
            if self._options.exposed and any(kind.starts_program for kind in kinds):
                await self._tell(*_TOOLS_CHANGED)
            if not all(kind.starts_program for kind in kinds):
                await self._tell(*_PROMPTS_CHANGED)
            if kinds:
                await self._tell(*_RESOURCES_CHANGED)
        elif self._active != was_active:
            await self._tell(*_TOOLS_CHANGED)
        return self._surface

    def _look(self, project: Project) -> tuple[Surface, Mapping[str, int], frozenset[str]]:
        """The skills, how often each was used, and the files of the active ones where they are to be tools.

        Costs a stat for each skill; the index is read again only where it changed."""
        changes, surface = project.catalog.sync(), self._surface
        seen = project.catalog.index.changes_elsewhere()
        if seen != self._seen or any(changes[:3]):
            self._seen, surface = seen, read_surface(project.catalog)
        active = project.contents.active().skills if ACTIVE in self._options.exposed else ()
        return surface, project.catalog.uses(), frozenset(skill.path for skill in active)

    async def _tell(self, change: Any, notification: types.ServerNotification) -> None:
        await self._bus.publish(change)
        for session in tuple(self._sessions):
            try:
                await session.send_notification(notification)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._sessions.discard(session)

    async def _greeted(self, ctx: Context, _: types.NotificationParams) -> None:
        self._sessions.add(ctx.session)

    # -- what is asked for

    async def _page(
        self, skills: Sequence[Shown], asked: Paging, size: int, make: Callable[[Shown, Skill], T]
    ) -> tuple[list[T], str | None]:
        """A page of those skills that are still there, and the cursor of the next."""
        page, cursor = page_of(skills, asked.cursor if asked else None, size)

        def made(project: Project) -> list[T]:
            found = ((shown, project.catalog.index.find_skill(shown.entry)) for shown in page)
            return [make(shown, skill) for shown, skill in found if skill is not None]

        return await self.threads.look(made), cursor

    async def _list_tools(self, _: Context, asked: Paging) -> types.ListToolsResult:
        surface = await self._refresh() if self._options.exposed else self._surface
        exposed = [shown for shown in surface.skills if self._options.exposes(shown, self._active)]
        tools, cursor = await self._page(exposed, asked, _TOOLS, skill_tool)
        ours = () if asked and asked.cursor else own_tools(self._options.allowed)
        return types.ListToolsResult(tools=[*ours, *tools], next_cursor=cursor)

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        named = (shown for shown in self._surface.skills if shown.name == params.name)
        shown = next((shown for shown in named if self._options.exposes(shown, self._active)), None)
        return await self._answering.answer(ctx, params, shown)

    async def _list_resources(self, _: Context, asked: Paging) -> types.ListResourcesResult:
        surface = await self._refresh()
        page, cursor = page_of(surface.skills, asked.cursor if asked else None, _PAGE)
        return types.ListResourcesResult(resources=[resources.as_resource(shown) for shown in page], next_cursor=cursor)

    async def _list_templates(self, *_: object) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[resources.TEMPLATE])

    async def _read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await self.threads.look(lambda project: resources.read_resource(project, self._surface, params.uri))

    async def _answer_skills(
        self, answer: Callable[[Project, Surface, Mapping[str, Any]], dict[str, Any]], _: Context, params: SkillsParams
    ) -> dict[str, Any]:
        """A later page is of the same look as the first."""
        fields = params.model_dump(exclude_none=True)
        surface = self._surface if params.cursor else await self._refresh()
        try:
            return await self.threads.look(lambda project: answer(project, surface, fields))
        except SkillError as error:
            raise MCPError(types.INVALID_PARAMS, error.msg, {"type": error.type}) from None
        except OSError as error:
            raise MCPError(types.INTERNAL_ERROR, f"it cannot be read: {error.strerror}") from None

    async def _list_prompts(self, _: Context, asked: Paging) -> types.ListPromptsResult:
        surface = await self._refresh()
        found, cursor = await self._page(surface.prompts, asked, _PAGE, resources.as_prompt)
        return types.ListPromptsResult(prompts=found, next_cursor=cursor)

    async def _get_prompt(self, _: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        surface = await self._refresh()
        shown = next((each for each in surface.prompts if each.name == params.name), None)
        if shown is None:
            raise MCPError(types.INVALID_PARAMS, f"no prompt {params.name[:100]!r} here")
        given, lang = params.arguments or {}, self._options.lang
        return await self.threads.look(lambda project: resources.read_prompt(project, shown, given, lang))


def serve(project: Project, options: Options) -> None:
    """Until stdin ends, nobody reads any more, or a signal says so."""
    try:
        anyio.run(_serve, Service(project, options))
    except* BrokenPipeError:
        pass  # the client has left; nothing more to say


async def _serve(service: Service) -> None:
    def leave() -> None:
        """Agents end their servers so. At once, because the thread that reads stdin sleeps until something comes."""
        service.threads.close()
        os._exit(0)

    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(which, leave)
    every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    async with open_stdio() as (reading, writing):
        await service.server.run(reading, writing, service.server.create_initialization_options(every))
