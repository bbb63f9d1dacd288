"""Sub-agents: sessions that a session starts, which work beside it and report to it.

A child is a `Session` of its own, with a rollout of its own. Its events reach its parent's front end as `ChildEvent`,
its questions reach its parent's user.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from ferrule.dispatch.front_end import Answers, Callbacks, Pace
from ferrule.dispatch.host import SessionHost
from ferrule.process.launcher import LaunchError
from ferrule.protocol.content import ContentPart, InputText
from ferrule.protocol.errors import FerruleError, RespondToModel, UsageError
from ferrule.protocol.events import Event, ExecApproval, TokenUsage
from ferrule.protocol.settings import AgentRole
from ferrule.session.result import TurnResult
from ferrule.sync import uninterrupted
from ferrule.tools.buffers import Buffers
from ferrule.tools.children import ChildInfo, ChildOrder, ChildStatus
from ferrule.tools.events import ChildEvent, ToolEvent
from ferrule.tools.questions import Answer, Question
from ferrule.tools.tasks import end_tasks

GO_ON = "Go on with your task where you were interrupted."
"""What a sub-agent is told that is resumed."""
DEPTH_REACHED = "Agent depth limit reached. Solve the task yourself."
"""Codex's words."""


class ChildSession(Protocol):
    """A `Session`, as far as its parent uses it."""

    id: str

    @property
    def spent(self) -> TokenUsage: ...

    async def run(self, prompt: tuple[ContentPart, ...]) -> TurnResult: ...
    def steer(self, prompt: tuple[ContentPart, ...]) -> None: ...
    def unread(self) -> tuple[ContentPart, ...]: ...
    @property
    def is_running(self) -> bool: ...
    def interrupt(self) -> bool: ...
    async def aclose(self) -> None: ...


OpenChild = Callable[[ChildOrder, Callbacks], Awaitable[ChildSession]]
ReopenChild = Callable[[str, Callbacks], Awaitable[tuple[ChildSession, str | None]]]
"""From its id to the session of a closed child, and its last message if its last turn was completed."""


class ChildFrontEnd(Callbacks):
    """Passes a child's events and questions on to its parent."""

    def __init__(self, parent_id: str, host: SessionHost, answers: Answers, role: str | None) -> None:
        super().__init__(None, None)
        self._parent_id = parent_id
        self._host = host
        self._answers = answers
        self._role = role
        self.child_id = ""

    @property
    def answers(self) -> Answers:
        """For which questions the parent's user answers."""
        return self._answers

    def on_event(self, event: Event | ToolEvent) -> None:
        """Pass the event on, except for a question, which the parent asks as its own."""
        if not self._host.observed or isinstance(event, Question):
            return
        nested = isinstance(event, ChildEvent)
        self._host.emit(event if nested else ChildEvent(self.child_id, self._parent_id, event))

    @property
    def buffers(self) -> Buffers | None:
        """What the parent's user edits."""
        return self._host.buffers

    @property
    def pace(self) -> Pace | None:
        """What the parent's turns wait for."""
        return self._host.pace

    async def answer(self, question: Question) -> Answer:
        """Ask the parent's user, who is told which child asks."""
        who = question.agent_id or self.child_id
        question = msgspec.structs.replace(question, request_id="", agent_id=who)
        if isinstance(question, ExecApproval) and not (question.reason or "").startswith("sub-agent"):
            reason = f"sub-agent {self._role or who}" + (f": {question.reason}" if question.reason else "")
            question = msgspec.structs.replace(question, reason=reason)
        return await self._host.question(question)


class Child:
    """A sub-agent, as its parent and a program hold it."""

    def __init__(self, session: ChildSession, role: str | None, tell: "Callable[[Child], None]") -> None:
        self.id = session.id
        self.role = role
        self.status = ChildStatus("pending_init")
        self.session: ChildSession | None = session
        self._tell = tell
        self._next: tuple[ContentPart, ...] = ()
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        self._final = asyncio.Event()
        self._closed = asyncio.Event()
        self.counted = TokenUsage()

    @property
    def usage(self) -> TokenUsage:
        """The tokens that it has used so far, also after its end."""
        return self.counted if self.session is None else self.session.spent

    def begin(self, content: tuple[ContentPart, ...]) -> None:
        """Start a turn of the child, with what it has not been told yet."""
        assert self.session is not None
        self._next = (*self._next, *content)
        self._stopped = False
        self.status = ChildStatus("running")
        self._final.clear()
        self._task = asyncio.create_task(self._work(self.session))

    def go_on(self) -> None:
        """Start a turn of the child, where the last one was ended."""
        self.begin(() if self._next else (InputText(GO_ON),))

    def send(self, content: tuple[ContentPart, ...], *, interrupt: bool = False) -> None:
        """Say something to it. Raises `RespondToModel` where it is closed."""
        if self.session is None:
            raise RespondToModel(f"agent with id {self.id} is closed; resume_agent opens it again")
        if self.status.is_final:
            self.begin(content)
        elif self.session.is_running and not interrupt:
            self.session.steer(content)
        else:
            self._next = (*self._next, *content)
            self.session.interrupt()

    async def wait(self, timeout: float | None = None) -> ChildStatus:
        """Wait until it is final, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._final.wait()
        except TimeoutError:
            pass
        return self.status

    def settle(self, status: ChildStatus) -> None:
        """Take a final status, without a turn."""
        self.status = status
        self._final.set()

    def interrupt(self) -> None:
        """End its turn, and those of its own children. A turn that is yet to begin does not; its words are kept."""
        if self.session is not None and not self.status.is_final:
            self._stopped = True
            self.session.interrupt()

    async def close(self, status: ChildStatus) -> None:
        """End its turn and its session, even if this is cancelled; it is `status` then."""
        session, self.session = self.session, None
        if session is not None:
            await uninterrupted(self._close(session, status))

    async def closed(self) -> None:
        """Wait until its session has ended."""
        await self._closed.wait()

    async def _close(self, session: ChildSession, status: ChildStatus) -> None:
        if self._task is not None:
            await end_tasks([self._task])
        self.settle(status)
        try:
            await session.aclose()
        finally:
            self._closed.set()

    def new_usage(self, session: ChildSession) -> TokenUsage:
        """Return the tokens since the last call."""
        total, before = session.spent, self.counted
        self.counted = total
        return total - before

    async def _work(self, session: ChildSession) -> None:
        """Run turns until nobody wants more of it."""
        status = ChildStatus("interrupted")
        try:
            while self._next and not self._stopped:
                content, self._next = self._next, ()
                status = await _turn(session, content)
                self._next = (*session.unread(), *self._next)
        finally:
            self.settle(status)
            self._tell(self)


async def _turn(session: ChildSession, content: tuple[ContentPart, ...]) -> ChildStatus:
    """Run one turn. A crash is a status: the parent must never wait for it."""
    try:
        result = await session.run(content)
    except FerruleError as error:
        return ChildStatus("errored", str(error))
    except Exception as error:  # noqa: BLE001 - the parent is told, whatever it was
        return ChildStatus("errored", f"the runtime failed: {error!r}")
    return ChildStatus("interrupted") if result.aborted else ChildStatus("completed", result.text)


class SessionChildren:
    """The children of one session; see `Children`. `roles` are those of the settings, `limit` how many may run."""

    def __init__(
        self,
        session_id: str,
        roles: Mapping[str, AgentRole],
        limit: int,
        *,
        host: SessionHost,
        answers: Answers,
        open_child: OpenChild | None,
        reopen_child: ReopenChild,
    ) -> None:
        self._session_id = session_id
        self._roles = roles
        self._limit = limit
        self._host = host
        self._answers = answers
        self._open_child = open_child
        self._reopen_child = reopen_child
        self._children: dict[str, Child] = {}
        self._spent = TokenUsage()
        self._notices: list[str] = []
        self._starting = 0
        self._ending = False
        self._resuming = asyncio.Lock()

    async def spawn(self, order: ChildOrder) -> str:
        """See `Children.spawn`."""
        return (await self.start(order)).id

    async def start(self, order: ChildOrder) -> Child:
        """Start a child. Raises `RespondToModel`."""
        if self._open_child is None:
            raise RespondToModel(DEPTH_REACHED)
        if order.role is not None and order.role not in self._roles:
            known = ", ".join(self._roles) or "none is configured"
            raise RespondToModel(f"unknown agent_type {order.role!r}; there are: {known}")
        async with self._opening():
            front_end = self._front_end(order.role)
            child = await self._add(await self._open_child(order, front_end), order.role, front_end)
        child.begin(order.content)
        return child

    async def send(self, agent_id: str, content: tuple[ContentPart, ...], interrupt: bool = False) -> str:
        """See `Children.send`."""
        self._find(agent_id).send(content, interrupt=interrupt)
        return secrets.token_hex(8)

    async def wait(self, agent_ids: Sequence[str], timeout: float) -> Mapping[str, ChildStatus]:
        """See `Children.wait`."""
        known = {agent_id: self._children[agent_id] for agent_id in agent_ids if agent_id in self._children}
        if known.keys() == set(agent_ids) and not any(child.status.is_final for child in known.values()):
            await _first_of([child.wait() for child in known.values()], timeout)
        statuses = {name: known[name].status if name in known else ChildStatus("not_found") for name in agent_ids}
        return {name: status for name, status in statuses.items() if status.is_final}

    async def resume(self, agent_id: str) -> ChildStatus:
        """See `Children.resume`."""
        async with self._resuming:  # a rollout belongs to one session at a time
            child = self._children.get(agent_id)
            if child is None or child.session is None:
                return await self._reopen(agent_id, child)
            if child.status.state in ("interrupted", "errored"):
                child.go_on()
            return child.status

    async def _reopen(self, agent_id: str, before: Child | None) -> ChildStatus:
        if before is not None:
            await before.closed()
        role = None if before is None else before.role
        async with self._opening():
            front_end = self._front_end(role)
            session, said = await self._reopen_child(agent_id, front_end)
            child = await self._add(session, role, front_end)
        if said is None:
            child.go_on()
        else:
            child.settle(ChildStatus("completed", said))
        return child.status

    async def close(self, agent_id: str) -> ChildStatus:
        """See `Children.close`."""
        child = self._children.get(agent_id)
        if child is None:
            return ChildStatus("not_found")
        before = child.status
        await self._close(child, ChildStatus("shutdown"))
        return before

    def infos(self) -> list[ChildInfo]:
        """See `Children.infos`."""
        return [ChildInfo(child.id, child.role, child.status) for child in self._children.values()]

    def interrupt(self) -> None:
        """End the turns of all children."""
        for child in self._children.values():
            child.interrupt()

    def notices(self) -> list[str]:
        """Take what the parent's model has to be told: which children have ended their work, each end once."""
        notices, self._notices = self._notices, []
        return notices

    def new_usage(self) -> TokenUsage:
        """Return the tokens that children have used since the last call."""
        spent, self._spent = self._spent, TokenUsage()
        for child in self._children.values():
            if child.session is not None:
                spent += child.new_usage(child.session)
        return spent

    async def aclose(self) -> None:
        """End all children, also one that is being opened."""
        self._ending = True
        await asyncio.gather(*(self._close(child, ChildStatus("shutdown")) for child in self._live()))
        for child in list(self._children.values()):
            await child.closed()  # also one that somebody else is closing

    def _front_end(self, role: str | None) -> ChildFrontEnd:
        return ChildFrontEnd(self._session_id, self._host, self._answers, role)

    @asynccontextmanager
    async def _opening(self) -> AsyncIterator[None]:
        """Keep a place for a child while it is opened. Raises `RespondToModel` where it cannot be."""
        await self._make_room()
        self._starting += 1
        try:
            yield
        except (UsageError, LaunchError) as error:
            raise RespondToModel(f"the agent cannot be opened: {error}") from error
        finally:
            self._starting -= 1

    async def _add(self, session: ChildSession, role: str | None, front_end: ChildFrontEnd) -> Child:
        if self._ending:
            await uninterrupted(session.aclose())
            raise RespondToModel("the session has ended; it starts no agents")
        front_end.child_id = session.id
        child = self._children[session.id] = Child(session, role, self._ended)
        return child

    def _find(self, agent_id: str) -> Child:
        child = self._children.get(agent_id)
        if child is None:
            raise RespondToModel(f"agent with id {agent_id} not found; list_agents shows those that there are")
        return child

    async def _make_room(self) -> None:
        """Close the children that have ended longest ago where there are too many. Raises `RespondToModel` where all
        are at work."""
        while len(live := self._live()) + self._starting >= self._limit:
            done = next((child for child in live if child.status.is_final), None)
            if done is None:
                names = ", ".join(f"{child.id} ({child.role or 'no role'}, {child.status.state})" for child in live)
                raise RespondToModel(
                    f"at most {self._limit} agents can run at once (agent_max_threads), and these do: {names}. "
                    "Wait for one, or close one."
                )
            await self._close(done, done.status)

    def _live(self) -> list[Child]:
        return [child for child in self._children.values() if child.session is not None]

    async def _close(self, child: Child, status: ChildStatus) -> None:
        session = child.session
        try:
            await child.close(status)
        finally:
            if session is not None:
                self._spent += child.new_usage(session)

    def _ended(self, child: Child) -> None:
        if child.status.state in ("completed", "errored"):
            told = msgspec.json.encode({"agent_id": child.id, "status": child.status.as_json}).decode()
            self._notices.append(f"<subagent_notification>\n{told}\n</subagent_notification>")


async def _first_of(waits: Sequence[Coroutine[Any, Any, object]], timeout: float) -> None:
    """Wait until one of these is done, at most `timeout` seconds."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(tasks)
