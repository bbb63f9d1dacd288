"""ScriptedModel, the public class; its server runs on a thread and an event loop of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Self

from ferrule.testing.player import MODEL_WIRES, Answer, Lane, Player, is_about_server
from ferrule.testing.request import Request
from ferrule.testing.script import Script, checked
from ferrule.testing.steps import StepLike

_START_TIMEOUT = 10.0


class ScriptedModel:
    """A model server on 127.0.0.1 that plays a script over the Responses, the Chat Completions and the
    Messages wire.

        with ScriptedModel([function_call("shell_command", {"command": "ls"}), step("Done", expect="README")]) as model:
            run_my_agent(base_url=model.base_url)
            model.check()

    Each request takes the next step. A request that does not fit the script is answered with 400 and makes `check()`
    raise. `strict` also refuses what real servers refuse: a call without its output, an output without its call, an
    empty assistant turn. `port` 0 picks a free one. All methods may be called from any thread.
    """

    def __init__(
        self,
        script: Script | Iterable[StepLike] | StepLike = (),
        *,
        models: Sequence[str] = ("scripted-model",),
        strict: bool = True,
        port: int = 0,
        on_finished: Callable[[Request], None] | None = None,
    ) -> None:
        self.port = port
        self.requests: list[Request] = []
        self._player = Player(models, strict=strict)
        self._player.lanes[0].script = Script.of(script)
        self._on_finished = on_finished
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] | None = None

    def start(self) -> Self:
        """Start listening. Raises OSError if the port is taken."""
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="scripted-model", daemon=True
        )
        self._thread.start()
        self.port = started.result(_START_TIMEOUT)
        return self

    def close(self) -> None:
        """Drop every connection and stop. May be called twice."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """The base URL for clients: `http://127.0.0.1:PORT/v1`. Anthropic's client takes it without the `/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def add(self, *steps: StepLike) -> None:
        """Append steps to the script. Raises ScriptError."""
        self._extend(self._player.lanes[0], steps)

    def play(self, *steps: StepLike, when: str) -> None:
        """Add a separate script for conversations whose user messages contain `when`: sub-agents, parallel sessions.

        The first matching lane answers; a conversation without one is answered by the main script.
        """
        lane = Lane(Script(), when)
        self._extend(lane, steps)
        self._player.lanes.append(lane)

    @staticmethod
    def _extend(lane: Lane, steps: Iterable[StepLike]) -> None:
        lane.script = Script((*lane.script.steps, *(checked(entry) for entry in steps)), lane.script.repeat)

    @property
    def last_request(self) -> Request:
        """The latest request to a model. Raises LookupError if there was none."""
        for request in reversed(self.requests):
            if request.wire in MODEL_WIRES:
                return request
        raise LookupError("no request has reached the model yet")

    def outputs(self) -> dict[str, str]:
        """Map each call id to its output text as the model has read it so far; the latest if an id came twice."""
        return {output.call_id: output.text for request in self.requests for output in request.outputs}

    def latencies_ns(self) -> list[int]:
        """Return the times from each answer to the next request's arrival: the turns of one agent, seen from the
        server."""
        asked = [request for request in self.requests if request.step is not None]
        return [
            after.arrived_ns - before.finished_ns for before, after in pairwise(asked) if before.finished_ns is not None
        ]

    def wait_for(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Block until `condition()` holds; it is checked whenever a request arrives or finishes. Raises
        TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise TimeoutError(
                    f"the condition did not hold within {timeout} s; {len(self.requests)} requests arrived"
                )

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> None:
        """Block until `count` requests have arrived, answered or not. Raises TimeoutError."""
        self.wait_for(lambda: len(self.requests) >= count, timeout)

    @property
    def failures(self) -> list[str]:
        """All mismatches with the script, in order."""
        return list(self._player.failures)

    def check(self, *, complete: bool = True) -> None:
        """Raise AssertionError if a request did not fit the script or, with `complete`, if steps are left over."""
        problems = self._player.failures + (self._player.unplayed() if complete else [])
        if problems:
            raise AssertionError("\n\n".join(problems))

    def _respond(self, request: Request) -> Answer:
        if not is_about_server(request):
            self.requests.append(request)
        answer = self._player.answer(request)
        self._notify()
        return answer

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _finished(self, request: Request) -> None:
        self._notify()
        if self._on_finished is not None:
            self._on_finished(request)

    async def _serve(self, started: Future[int]) -> None:
        from ferrule.testing.server import Connection

        loop = asyncio.get_running_loop()
        connections: set[Connection] = set()
        stopped = asyncio.Event()
        try:
            server = await loop.create_server(
                lambda: Connection(self._respond, self._finished, connections), "127.0.0.1", self.port
            )
        except OSError as error:
            started.set_exception(error)
            return
        self._stop = partial(loop.call_soon_threadsafe, stopped.set)
        async with server:
            started.set_result(server.sockets[0].getsockname()[1])
            await stopped.wait()
            while connections or len(asyncio.all_tasks()) > 1:  # one being accepted as the server closes would leak
                await asyncio.gather(*(connection.abort() for connection in list(connections)))
                await asyncio.sleep(0)
            server.close()
