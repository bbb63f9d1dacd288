"""One client: its requests, the threads that it has open, and what it is asked."""

import asyncio
import logging
import os
import platform
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from ferrule._version import __version__
from ferrule.doors.app_server.messages import (
    INTERNAL_ERROR,
    OVERLOADED,
    UNKNOWN_METHOD,
    Call,
    Notice,
    Reply,
    ask_line,
    error_line,
    notice_line,
    read_line,
    result_line,
)
from ferrule.doors.app_server.openings import Configure
from ferrule.doors.app_server.questions import answer_to
from ferrule.doors.app_server.shapes import told
from ferrule.doors.app_server.shapes.common import Shape
from ferrule.doors.app_server.shapes.requests import InitializeParams, InitializeResult
from ferrule.doors.app_server.shapes.told import Asking, Told
from ferrule.doors.app_server.threads import OpenThread
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import DynamicToolCallRequest
from ferrule.rpc import RpcError, too_long
from ferrule.stdio import Outbox
from ferrule.tools.questions import Waiting
from ferrule.tools.tasks import end_tasks

log = logging.getLogger("ferrule.app_server")

MAX_OPEN = 256
"""Requests that are served at once: more than a client waits for, few enough that one which floods us costs little."""
MAX_THREADS = 512
"""Threads of one client that are open at once: each may have a sandbox and what runs in it."""
MOST_KEPT = 1_024
"""Ids of our requests that have been withdrawn, to which an answer may still be on its way."""

Answer = Callable[[Shape], None]
Handler = Callable[["Connection", Any, Answer], Awaitable[None]]


class Method(msgspec.Struct, frozen=True):
    """A method of the client's: the forms of its params and of its result, and what does it. `alone`: requests for one
    thread are done one after the other."""

    params: type[Shape]
    result: type[Shape]
    run: Handler
    alone: bool = True


class _Asked(msgspec.Struct, frozen=True):
    """A request of ours that waits for its answer."""

    thread: OpenThread
    question: Waiting
    params: Asking


class Connection:
    """Serves one client. What goes to it is put into `outbox`, whoever takes it from there."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        configure: Configure,
        outbox: Outbox,
        others_ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`others_ended` waits for clients that are gone and whose threads are being closed."""
        self.configure = configure
        self.outbox = outbox
        self.threads: dict[str, OpenThread] = {}
        self.home = self.name = ""
        self.others_ended = others_ended
        self._methods = methods
        self._greeted = False
        self._unwanted: frozenset[str] = frozenset()
        self._asked: dict[int, _Asked] = {}
        self._withdrawn: dict[int, None] = {}
        self._next = self._opening = 0
        self._open: dict[str | int, asyncio.Task[None]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # those that a request has

    def take(self, line: bytes, *, whole: bool = True) -> None:
        """Take one line of the client."""
        if not line.strip():
            return
        try:
            if not whole:
                raise too_long(line)
            message = read_line(line)
        except RpcError as error:
            self.outbox.put(error_line(error))
            return
        match message:
            case Call():
                self._begin(message)
            case Reply():
                self._settle(message)
            case Notice():
                pass  # `initialized`, and what we do not know

    def tell(self, params: Told) -> None:
        """Send a notification."""
        if self._greeted and params.method not in self._unwanted:
            self.outbox.put(notice_line(params))

    def offer(self, params: Told) -> None:
        """Send a notification, unless the client has enough to read."""
        if params.method not in self._unwanted:
            self.outbox.offer(notice_line(params))

    def ask(self, thread: OpenThread, question: Waiting, params: Asking) -> None:
        """Send a request; its answer goes to `thread`."""
        request_id, self._next = self._next, self._next + 1
        self._asked[request_id] = _Asked(thread, question, params)
        self.outbox.put(ask_line(request_id, params))

    def waiting(self, thread: OpenThread) -> list[Waiting]:
        """Return what the client is asked for a thread."""
        return [one.question for one in self._asked.values() if one.thread is thread]

    def withdraw(self, thread: OpenThread, is_over: Callable[[Waiting], bool]) -> None:
        """Take requests back that need no answer any more."""
        over = [name for name, one in self._asked.items() if one.thread is thread and is_over(one.question)]
        for request_id in over:
            self._withdrawn[request_id] = None
            if len(self._withdrawn) > MOST_KEPT:
                del self._withdrawn[next(iter(self._withdrawn))]
            self._resolve(request_id)

    def thread(self, thread_id: str) -> OpenThread:
        """Return an open thread. Raises `RpcError`."""
        found = self.threads.get(thread_id)
        if found is None:
            raise RpcError(f"thread not loaded: {thread_id}; thread/start opens a new one, thread/resume a stored one")
        return found

    def add(self, thread: OpenThread) -> None:
        """Keep a thread until it is closed."""
        self.threads[thread.id] = thread

    @contextmanager
    def room(self) -> Iterator[None]:
        """Hold a place for a thread that is being opened. Raises `RpcError` where there is none."""
        if len(self.threads) + self._opening >= MAX_THREADS:
            raise RpcError(f"{MAX_THREADS} threads are open: close some by thread/unsubscribe", OVERLOADED)
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    async def close_thread(self, thread: OpenThread) -> None:
        """Close a thread; it stays stored."""
        self.threads.pop(thread.id, None)
        await thread.aclose()
        self.withdraw(thread, lambda question: True)

    async def settled(self) -> None:
        """Wait until no request is being served."""
        while self._open:
            await asyncio.wait(self._open.values())

    async def aclose(self) -> None:
        """End all that runs for the client."""
        await end_tasks(self._open.values())
        await asyncio.gather(*map(self.close_thread, list(self.threads.values())))

    # Requests of the client

    def _begin(self, call: Call) -> None:
        try:
            if call.method == "initialize":
                self._greet(call)
                return
            method = self._checked(call)
        except FerruleError as error:
            self._fail(call, str(error), error.code if isinstance(error, RpcError) else None)
            return
        task = self._open[call.id] = asyncio.create_task(self._serve(call, method))
        task.add_done_callback(lambda _: self._open.pop(call.id, None))

    def _greet(self, call: Call) -> None:
        if self._greeted:
            raise RpcError("Already initialized")
        params = _read(InitializeParams, call)
        self.home, self.name = self.configure(None, {}).settings.home, params.client_info.name
        self._greeted = True
        self._unwanted = frozenset((params.capabilities and params.capabilities.opt_out_notification_methods) or ())
        hello = InitializeResult(
            user_agent=f"ferrule/{__version__} ({platform.system()} {platform.machine()}; {params.client_info.name})",
            codex_home=self.home,
            platform_family="unix" if os.name == "posix" else os.name,
            platform_os={"darwin": "macos"}.get(sys.platform, sys.platform),
        )
        self.outbox.put(result_line(call.id, hello))

    def _checked(self, call: Call) -> Method:
        """Return the method of a request that can be served. Raises `RpcError`."""
        if not self._greeted:
            raise RpcError("Not initialized: send initialize first")
        method = self._methods.get(call.method)
        if method is None:
            raise RpcError(f"the method {call.method[:100]!r} is not served here", UNKNOWN_METHOD)
        if call.id in self._open:
            raise RpcError(f"a request with the id {call.id!r} is being served")
        if len(self._open) >= MAX_OPEN:
            raise RpcError("Server overloaded; retry later.", OVERLOADED)
        return method

    async def _serve(self, call: Call, method: Method) -> None:
        try:
            params = _read(method.params, call)
            thread_id = getattr(params, "thread_id", None) if method.alone else None
            if thread_id is None:
                await self._run(call, method, params)
            else:
                async with self._locks.setdefault(thread_id, asyncio.Lock()):
                    await self._run(call, method, params)
        except RpcError as error:
            self._fail(call, str(error), error.code)
        except UsageError as error:
            self._fail(call, str(error))
        except FerruleError as error:
            self._fail(call, str(error), INTERNAL_ERROR)
        except Exception as error:
            log.exception("%s failed", call.method)
            self._fail(call, f"internal error: {error!r}", INTERNAL_ERROR)

    async def _run(self, call: Call, method: Method, params: Shape) -> None:
        await method.run(self, params, lambda result: self.outbox.put(result_line(call.id, result)))

    def _fail(self, call: Call, text: str, code: int | None = None) -> None:
        error = RpcError(text, request_id=call.id) if code is None else RpcError(text, code, call.id)
        self.outbox.put(error_line(error))

    # Answers of the client

    def _settle(self, reply: Reply) -> None:
        asked = self._asked.get(reply.id) if isinstance(reply.id, int) else None
        if asked is None:
            if reply.id not in self._withdrawn:
                self.tell(told.Warned(message=f"an answer came to a question that was never asked: id {reply.id!r}"))
            return
        answer = answer_to(asked.question, asked.params, reply.result)
        assert isinstance(reply.id, int)
        self._resolve(reply.id)
        asked.thread.answer(asked.question, answer)

    def _resolve(self, request_id: int) -> None:
        asked = self._asked.pop(request_id)
        if not isinstance(asked.question, DynamicToolCallRequest):
            self.tell(told.Resolved(thread_id=asked.params.thread_id, request_id=request_id))


def _read(kind: type[Any], call: Call) -> Any:
    """Return the params of a request. Raises `RpcError` that says what is wrong with them."""
    given = b"{}" if bytes(call.params).strip() in (b"", b"null") else call.params
    try:
        return msgspec.json.decode(given, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RpcError(f"Invalid request: {call.method}: {error}") from error
