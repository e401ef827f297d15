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
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged

from skillyard import __version__
from skillyard.app.project import Project
from skillyard.core.skill import Kind, Skill
from skillyard.faces.mcp import prompts, resources
from skillyard.faces.mcp.listing import ACTIVE, Options, Shown, Surface, instructions_of, page_of, read_surface
from skillyard.faces.mcp.tool_calls import Answering, Threads
from skillyard.faces.mcp.tools import own_tools, skill_tool
from skillyard.faces.mcp.transport import open_stdio

NAME = "skillyard"
#: Between two looks at the folders; longer where a look takes long, so that it never costs more than a twentieth.
_LOOK_SECONDS = 1.0
_MOST_EFFORT = 0.05
#: Clients that read only the first page of tools still see a thousand.
_TOOLS, _PAGE = 1_000, 200

Context = ServerRequestContext[Any]
T = TypeVar("T")


class Service:
    """One project, served to any number of clients. `server` is what a transport runs."""

    def __init__(self, project: Project, options: Options) -> None:
        self._options = options
        self.threads = Threads(project)
        self._answering = Answering(self.threads, options)
        self._surface = Surface()
        self._active: frozenset[str] = frozenset()
        self._seen: int | None = None
        self._sessions: set[ServerSession] = set()
        self._bus = InMemorySubscriptionBus()
        self.server = _Server(
            NAME,
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
        self.server.add_notification_handler("notifications/initialized", types.NotificationParams, self._greeted)
        self._renew(self._look(project), project.catalog.uses())
        self._active = self._active_in(project)
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
        before = self._surface
        found, uses, active = await self.threads.watch(
            lambda project: (self._look(project), project.catalog.uses(), self._active_in(project))
        )
        was_active, self._active = self._active, active
        if found is not before:
            self._renew(found, uses)
            await self._tell(found.changed_kinds(before))
        elif active != was_active:
            await self._tell_tools()
        return self._surface

    def _active_in(self, project: Project) -> frozenset[str]:
        """The files of the active skills, where they are to be tools."""
        if ACTIVE not in self._options.exposed:
            return frozenset()
        return frozenset(skill.path for skill in project.contents.active().skills)

    def _look(self, project: Project) -> Surface:
        """Costs a stat for each skill; the index is read again only where it changed."""
        changes = project.catalog.sync()
        seen = project.catalog.index.changes_elsewhere()
        if seen == self._seen and not any(changes[:3]):
            return self._surface
        self._seen = seen
        return read_surface(project.catalog)

    def _renew(self, surface: Surface, uses: Mapping[str, int]) -> None:
        self._surface = surface
        self.server.instructions = instructions_of(surface, uses)

    async def _tell(self, kinds: frozenset[Kind]) -> None:
        """Clients of the handshake are told; those of 2026-07-28 hear it on the stream that they opened."""
        if self._options.exposed and any(kind.starts_program for kind in kinds):
            await self._tell_tools()
        if not all(kind.starts_program for kind in kinds):
            await self._bus.publish(PromptsListChanged())
            await self._notify(types.PromptListChangedNotification())
        if kinds:
            await self._bus.publish(ResourcesListChanged())
            await self._notify(types.ResourceListChangedNotification())

    async def _tell_tools(self) -> None:
        await self._bus.publish(ToolsListChanged())
        await self._notify(types.ToolListChangedNotification())

    async def _notify(self, notification: types.ServerNotification) -> None:
        for session in tuple(self._sessions):
            try:
                await session.send_notification(notification)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._sessions.discard(session)

    async def _greeted(self, ctx: Context, _: types.NotificationParams) -> None:
        self._sessions.add(ctx.session)

    # -- tools

    async def _list_tools(self, _: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        surface = await self._refresh() if self._options.exposed else self._surface
        exposed = [shown for shown in surface.skills if self._options.exposes(shown, self._active)]
        page, cursor = page_of(exposed, _cursor(params), _TOOLS)
        tools = await self.threads.look(partial(_made, page, skill_tool))
        ours = () if _cursor(params) else own_tools(self._options.allowed)
        return types.ListToolsResult(tools=[*ours, *tools], next_cursor=cursor)

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        named = (shown for shown in self._surface.skills if shown.name == params.name)
        shown = next((shown for shown in named if self._options.exposes(shown, self._active)), None)
        return await self._answering.answer(ctx, params, shown)

    # -- resources

    async def _list_resources(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        surface = await self._refresh()
        page, cursor = page_of(surface.skills, _cursor(params), _PAGE)
        return types.ListResourcesResult(resources=[resources.as_resource(shown) for shown in page], next_cursor=cursor)

    async def _list_templates(self, *_: object) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[resources.TEMPLATE])

    async def _read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await self.threads.look(lambda project: resources.read(project, params.uri))

    # -- prompts

    async def _list_prompts(self, _: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        surface = await self._refresh()
        page, cursor = page_of(surface.prompts, _cursor(params), _PAGE)
        found = await self.threads.look(partial(_made, page, prompts.as_prompt))
        return types.ListPromptsResult(prompts=found, next_cursor=cursor)

    async def _get_prompt(self, _: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        surface = await self._refresh()
        shown = next((each for each in surface.prompts if each.name == params.name), None)
        if shown is None:
            raise MCPError(types.INVALID_PARAMS, f"no prompt {params.name[:100]!r} here")
        read = partial(prompts.read, shown=shown, given=params.arguments or {}, lang=self._options.lang)
        return await self.threads.look(read)


class _Server(Server[None]):
    """Says on every transport that its lists change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(
            notification_options or every, experimental_capabilities, extensions
        )


def _cursor(params: types.PaginatedRequestParams | None) -> str | None:
    return params.cursor if params else None


def _made(page: Sequence[Shown], make: Callable[[Shown, Skill], T], project: Project) -> list[T]:
    """For the skills that are still there."""
    found = ((shown, project.catalog.index.find_skill(shown.entry)) for shown in page)
    return [make(shown, skill) for shown, skill in found if skill is not None]


def serve(project: Project, options: Options) -> None:
    """Until stdin ends, nobody reads any more, or a signal says so."""
    try:
        anyio.run(_serve, Service(project, options))
    except* BrokenPipeError:
        pass  # the client has left; nothing more to say


async def _serve(service: Service) -> None:
    loop = asyncio.get_running_loop()

    def leave() -> None:
        """Agents end their servers so. At once, because the thread that reads stdin sleeps until something comes."""
        service.threads.close()
        os._exit(0)

    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(which, leave)
    async with open_stdio() as (reading, writing):
        await service.server.run(reading, writing, service.server.create_initialization_options())
