"""The MCP server of one project: what each request is answered with, and serving over stdin and stdout."""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from skillyard.app.project import Project
from skillyard.core.errors import SkillError
from skillyard.core.skill import Skill
from skillyard.faces.mcp.listing import (
    ACTIVE,
    CLAUDE_NOTE,
    Options,
    Shown,
    Surface,
    instructions_of,
    is_listed_by_itself,
    page_of,
    read_surface,
)
from skillyard.faces.mcp.protocol import INVALID_PARAMS, ClientConnection, ClientRequest, Fields, Method, ProtocolError
from skillyard.faces.mcp.tasks import EXTENSION, PolledCalls
from skillyard.faces.mcp.transport import Stdio

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from skillyard.faces.mcp.tool_calls import Answering

#: Between two looks at the folders; longer where a look takes long, so that it never costs more than a twentieth.
_LOOK_SECONDS = 1.0
_MOST_EFFORT = 0.05
#: Clients that read only the first page of tools still see a thousand.
_TOOLS, _PAGE = 1_000, 200
#: As long as a stopped run may take to be gone, and more.
_END_SECONDS = 10.0

#: SEP-2640: skills with the digests of all their files.
_EXTENSIONS = {"io.modelcontextprotocol/skills": {"directoryRead": True}}
T = TypeVar("T")


class Threads:
    """The threads that answer: the runtime waits for programs, and the protocol must not wait with it.

    Runs and lookups have threads of their own, so that a search never waits for runs that take minutes.
    """

    #: Programs that run at once; more wait for their turn.
    _MOST_RUNS = 32
    _MOST_LOOKS = 4

    def __init__(self) -> None:
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._working: set[Future[None]] = set()

    def start(self, work: Callable[[], None], *, is_run: bool) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (not before the handshake is answered)

        most = self._MOST_RUNS if is_run else self._MOST_LOOKS
        if most not in self._pools:
            self._pools[most] = ThreadPoolExecutor(most)
        future = self._pools[most].submit(work)
        self._working.add(future)
        future.add_done_callback(self._working.discard)

    def wait(self) -> None:
        """Return when everything has ended, or cannot end in time."""
        if self._pools:
            from concurrent.futures import wait  # noqa: PLC0415

            for pool in self._pools.values():
                pool.shutdown(wait=False, cancel_futures=True)
            wait(tuple(self._working), timeout=_END_SECONDS)


class Service:
    """One project, served to any number of clients.

    `methods` has what answers each request: a function from the request to its result, called in a thread of its own.
    `capabilities` is what the server declares. Whoever serves more adds to both before the first client comes.
    """

    def __init__(self, project: Project, options: Options) -> None:
        self.project, self.options = project, options
        self.connections: list[ClientConnection] = []
        self._threads = Threads()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._surface, self._active = Surface(), frozenset[str]()
        self._uses: Mapping[str, int] = {}
        #: By thread, because the number is that of its own connection to the index.
        self._seen: dict[int, int] = {}
        self.capabilities: dict[str, Any] = {kind: {"listChanged": True} for kind in ("tools", "prompts", "resources")}
        self.capabilities["extensions"] = {**_EXTENSIONS, EXTENSION: {}}
        self._polled = PolledCalls()
        self.methods: dict[str, Method] = {
            **self._polled.methods,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            **dict.fromkeys(("skills/list", "skills/get", "resources/directory/read"), self._answer_skills),
        }

    def describe(self, request: ClientRequest) -> Fields:
        surface = self.refresh(is_first=not self._seen)
        is_hidden = any(is_listed_by_itself(shown, request.client_name) for shown in surface.prompts)
        said = instructions_of(surface, self._uses, CLAUDE_NOTE if is_hidden else "")
        return {"capabilities": self.capabilities, "instructions": said}

    def start(self, request: ClientRequest, answer: Callable[[], None]) -> None:
        from skillyard.faces.mcp.tools import READING  # noqa: PLC0415  (not before the handshake is answered)

        name, given = request.params.get("name"), request.params.get("arguments")
        waits = name not in READING or (isinstance(given, dict) and "wait" in given)
        self._threads.start(answer, is_run=request.method == "tools/call" and waits)

    def close(self) -> None:
        """End every run, and return when each has its end in the history, or cannot have one in time."""
        self._is_over.set()
        for connection in self.connections:
            connection.close()
        self._polled.close()
        if "_answering" in vars(self):
            self._answering.close()
        self._threads.wait()

    # -- what exists, and when it changes

    def watch(self) -> None:
        """Look again and again. The hourly backup of our database is made here too, where nobody waits for it."""
        pause = 0.0
        while not self._is_over.wait(pause):
            started = time.monotonic()
            self.project.back_up_if_due()
            self.refresh()
            pause = max(_LOOK_SECONDS, (time.monotonic() - started) / _MOST_EFFORT)

    def refresh(self, *, is_first: bool = False) -> Surface:
        """The skills as they are now; the clients hear of what changed.

        Costs a stat for each skill; the index is read again only where it changed. Nothing is transliterated for the
        first, which the client's start waits for."""
        with self._lock:
            catalog, before, was_active = self.project.catalog, self._surface, self._active
            changes, seen, thread = catalog.sync(), catalog.index.changes_elsewhere(), threading.get_ident()
            if seen != self._seen.get(thread) or any(changes[:3]):
                self._seen[thread] = -1 if is_first else seen  # the next one reads again
                self._surface = read_surface(catalog, is_transliterated=not is_first)
            self._uses = catalog.uses()
            if ACTIVE in self.options.exposed:
                self._active = frozenset(skill.path for skill in self.project.contents.active().skills)
            kinds = self._surface.changed_kinds(before) if self._surface is not before else frozenset()
            changed = []
            exposes = bool(self.options.exposed) and any(kind.starts_program for kind in kinds)
            if exposes or self._active != was_active:
                changed.append("tools")
            if not all(kind.starts_program for kind in kinds):
                changed.append("prompts")
            if kinds:
                changed.append("resources")
            surface = self._surface
        for connection in self.connections if changed and not is_first else ():
            connection.tell_changed(changed)
        return surface

    # -- what is asked for

    @cached_property
    def _answering(self) -> "Answering":
        from skillyard.faces.mcp.tool_calls import Answering  # noqa: PLC0415

        return Answering(self.project, self.options)

    def _page(
        self, skills: Sequence[Shown], request: ClientRequest, size: int, make: Callable[[Shown, Skill], T]
    ) -> tuple[list[T], Fields]:
        """A page of those skills that are still there, and the cursor of the next."""
        page, cursor = page_of(skills, request.find_text("cursor"), size)
        found = ((shown, self.project.catalog.index.find_skill(shown.entry)) for shown in page)
        return [make(shown, skill) for shown, skill in found if skill is not None], cursor

    def _exposed(self) -> list[Shown]:
        return [shown for shown in self._surface.skills if self.options.exposes(shown, self._active)]

    def _list_tools(self, request: ClientRequest) -> Fields:
        from skillyard.faces.mcp.tools import own_tools, skill_tool  # noqa: PLC0415

        if self.options.exposed:
            self.refresh()
        grants = self.project.grants.list()

        def make(shown: Shown, skill: Skill) -> Fields:
            return skill_tool(shown, skill, [each.capability for each in grants if each.skill == str(skill.folder)])

        tools, cursor = self._page(self._exposed(), request, _TOOLS, make)
        ours = () if request.find_text("cursor") else own_tools(self.options.allowed)
        return {"tools": [*ours, *tools], **cursor}

    def _call_tool(self, request: ClientRequest) -> Fields:
        named = (shown for shown in self._exposed() if shown.name == request.text("name"))
        shown = next(named, None)
        return self._polled.answer(request, lambda asked: self._answering.answer(asked, shown))

    def _list_resources(self, request: ClientRequest) -> Fields:
        from skillyard.faces.mcp.resources import as_resource  # noqa: PLC0415

        page, cursor = page_of(self.refresh().skills, request.find_text("cursor"), _PAGE)
        return {"resources": [as_resource(shown) for shown in page], **cursor}

    @staticmethod
    def _list_templates(_: ClientRequest) -> Fields:
        from skillyard.faces.mcp.resources import TEMPLATE  # noqa: PLC0415

        return {"resourceTemplates": [TEMPLATE]}

    def _read_resource(self, request: ClientRequest) -> Fields:
        from skillyard.faces.mcp.resources import read_resource  # noqa: PLC0415

        return read_resource(self.project, self._surface, request.text("uri"))

    def _answer_skills(self, request: ClientRequest) -> Fields:
        """The extension for skills. A later page is of the same look as the first."""
        from skillyard.faces.mcp.skills_extension import METHODS  # noqa: PLC0415

        surface = self._surface if request.find_text("cursor") else self.refresh()
        try:
            return METHODS[request.method](self.project, surface, request.params)
        except SkillError as error:
            raise ProtocolError(INVALID_PARAMS, error.msg, {"type": error.type}) from None

    def _list_prompts(self, request: ClientRequest) -> Fields:
        from skillyard.faces.mcp.resources import as_prompt  # noqa: PLC0415

        listed = [shown for shown in self.refresh().prompts if not is_listed_by_itself(shown, request.client_name)]
        prompts, cursor = self._page(listed, request, _PAGE, as_prompt)
        return {"prompts": prompts, **cursor}

    def _get_prompt(self, request: ClientRequest) -> Fields:
        from skillyard.faces.mcp.resources import read_prompt  # noqa: PLC0415

        name = request.text("name")
        shown = next((each for each in self.refresh().prompts if each.name == name), None)
        if shown is None:
            raise ProtocolError(INVALID_PARAMS, f"no prompt {name[:100]!r} here")
        return read_prompt(self.project, shown, request.mapping("arguments"), self.options.lang)


def serve(project: Project, options: Options) -> None:
    """Until stdin ends, nobody reads any more, or a signal says so."""
    ended: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it, whatever the thread holds
    service = Service(project, options)
    stdio = Stdio(on_end=lambda: ended.put(None))
    connection = ClientConnection(service, stdio.send)
    service.connections.append(connection)
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, lambda *_: ended.put(None))

    def read() -> None:
        watching = threading.Thread(target=service.watch, daemon=True)

        def receive(message: Fields) -> None:
            connection.receive(message)
            if not watching.ident:  # the first is the handshake, and nothing may hold it up
                watching.start()

        stdio.read(receive)

    threading.Thread(target=read, daemon=True).start()
    ended.get()
    service.close()
