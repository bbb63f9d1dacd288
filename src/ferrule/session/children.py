"""Sub-agents: sessions that a session starts, which work beside it and report to it.

A child is a `Session` of its own, with a rollout of its own. Its events reach its parent's front end as `ChildEvent`,
its questions reach its parent's user.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ferrule.dispatch.front_end import Answers, Callbacks
from ferrule.dispatch.host import SessionHost
from ferrule.protocol.content import ContentPart, InputText
from ferrule.protocol.errors import FerruleError, RespondToModel
from ferrule.protocol.events import Event, ExecApproval, TokenUsage
from ferrule.protocol.settings import AgentRole
from ferrule.session.result import TurnResult
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
    usage: TokenUsage

    async def run(self, prompt: tuple[ContentPart, ...]) -> TurnResult: ...
    def steer(self, prompt: tuple[ContentPart, ...]) -> None: ...
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
        self._next: tuple[ContentPart, ...] | None = None
        self._task: asyncio.Task[None] | None = None
        self._final = asyncio.Event()
        self.counted = TokenUsage()

    def begin(self, content: tuple[ContentPart, ...]) -> None:
        """Start a turn of the child."""
        assert self.session is not None
        self.status = ChildStatus("running")
        self._final.clear()
        self._task = asyncio.create_task(self._work(self.session, content))

    def send(self, content: tuple[ContentPart, ...], *, interrupt: bool = False) -> None:
        """Say something to it. Raises `RespondToModel` where it is closed."""
        if self.session is None:
            raise RespondToModel(f"agent with id {self.id} is closed; resume_agent opens it again")
        if self.status.is_final:
            self.begin(content)
        elif interrupt:
            self._next = content
            self.session.interrupt()
        else:
            self.session.steer(content)

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
        """End its turn, and those of its own children."""
        self._next = None
        if self.session is not None:
            self.session.interrupt()

    async def close(self, status: ChildStatus) -> None:
        """End its turn and its session; it is `status` then."""
        session, self.session = self.session, None
        if session is None:
            return
        self._next = None
        if self._task is not None:
            await end_tasks([self._task])
        self.settle(status)
        await session.aclose()

    def new_usage(self) -> TokenUsage:
        """Return the tokens since the last call."""
        if self.session is None:
            return TokenUsage()
        total, before = self.session.usage, self.counted
        self.counted = total
        return total - before

    async def _work(self, session: ChildSession, content: tuple[ContentPart, ...]) -> None:
        """Run turns until nobody wants more of it. A crash is a status: the parent must never wait for it."""
        status = ChildStatus("interrupted")
        try:
            while True:
                result = await session.run(content)
                status = ChildStatus("interrupted") if result.aborted else ChildStatus("completed", result.text)
                if self._next is None:
                    break
                content, self._next = self._next, None
        except FerruleError as error:
            status = ChildStatus("errored", str(error))
        except Exception as error:  # noqa: BLE001 - the parent is told, whatever it was
            status = ChildStatus("errored", f"the runtime failed: {error!r}")
        finally:
            self.settle(status)
            self._tell(self)


class SessionChildren:
    """The children of one session; see `Children`. `roles` are those of the settings, `limit` how many may run."""

    def __init__(
        self,
        session_id: str,
        roles: Mapping[str, AgentRole],
        limit: int,
        *,
        host: Callable[[], SessionHost],
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
        await self._make_room()
        self._starting += 1
        try:
            front_end = self._front_end(order.role)
            child = self._add(await self._open_child(order, front_end), order.role, front_end)
        finally:
            self._starting -= 1
        child.begin(order.content)
        return child

    async def send(self, agent_id: str, content: tuple[ContentPart, ...], interrupt: bool = False) -> str:
        """See `Children.send`."""
        self._find(agent_id).send(content, interrupt=interrupt)
        return secrets.token_hex(8)

    async def wait(self, agent_ids: Sequence[str], timeout: float) -> Mapping[str, ChildStatus]:
        """See `Children.wait`."""
        known = {agent_id: self._children[agent_id] for agent_id in agent_ids if agent_id in self._children}
        if len(known) == len(agent_ids) and not any(child.status.is_final for child in known.values()):
            await _first_of([child.wait() for child in known.values()], timeout)
        statuses = {name: known[name].status if name in known else ChildStatus("not_found") for name in agent_ids}
        return {name: status for name, status in statuses.items() if status.is_final}

    async def resume(self, agent_id: str) -> ChildStatus:
        """See `Children.resume`."""
        child = self._children.get(agent_id)
        if child is not None and child.session is not None:
            if child.status.state in ("interrupted", "errored"):
                child.begin((InputText(GO_ON),))
            return child.status
        await self._make_room()
        role = None if child is None else child.role
        front_end = self._front_end(role)
        session, said = await self._reopen_child(agent_id, front_end)
        child = self._add(session, role, front_end)
        if said is None:
            child.begin((InputText(GO_ON),))
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
            spent += child.new_usage()
        return spent

    async def aclose(self) -> None:
        """End all children."""
        open_ones = [child for child in self._children.values() if child.session is not None]
        await asyncio.gather(*(self._close(child, ChildStatus("shutdown")) for child in open_ones))

    def _front_end(self, role: str | None) -> ChildFrontEnd:
        return ChildFrontEnd(self._session_id, self._host(), self._answers, role)

    def _add(self, session: ChildSession, role: str | None, front_end: ChildFrontEnd) -> Child:
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
        live = [child for child in self._children.values() if child.session is not None]
        done = [child for child in live if child.status.is_final]
        while len(live) + self._starting >= self._limit:
            if not done:
                names = ", ".join(f"{child.id} ({child.role or 'no role'}, {child.status.state})" for child in live)
                raise RespondToModel(
                    f"at most {self._limit} agents can run at once (agent_max_threads), and these do: {names}. "
                    "Wait for one, or close one."
                )
            oldest = done.pop(0)
            live.remove(oldest)
            await self._close(oldest, oldest.status)

    async def _close(self, child: Child, status: ChildStatus) -> None:
        session = child.session
        await child.close(status)
        if session is not None:
            self._spent += session.usage - child.counted

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
