"""Approve what a session's commands reach of the network: by the list of domains, the rules, and the user's answer.

A connection to a name that needs an answer waits for it, as long as programs bear; then it is refused, and the model
may try again. A question is asked once, however many connections wait for its answer.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from ferrule.protocol.approvals import ExecApprovalRequirement, Forbidden, NeedsApproval, Skip
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import NetworkRefused
from ferrule.tools.context import ToolContext
from ferrule.tools.effects import NetworkEffect

if TYPE_CHECKING:
    from ferrule.egress.guard import Refusal

ANSWER_SECONDS = 60.0
"""That long a connection waits for the user: programs give up on a silent server after about as much."""
UNANSWERED = "{} was not reached: the user did not answer within {:g} seconds. The next command may ask again."
NOT_YET = "The user is being asked whether {} may be reached. Run the command again after the answer."


def network_effect(host: str, port: int, listed: bool) -> NetworkEffect:
    """Return what a connection of a command will do. A tunnel shows its port only."""
    return NetworkEffect(host=host, port=port, protocol="http" if port == 80 else "https", listed=listed)


class Rejected(RespondToModel):
    """The user said no."""


class Judge(Protocol):
    """The orchestrator, as far as it decides about the network."""

    @property
    def allowed_hosts(self) -> Iterable[str]: ...

    def network_requirement(self, ctx: ToolContext, effect: NetworkEffect) -> ExecApprovalRequirement: ...
    async def approve(self, ctx: ToolContext, effect: NetworkEffect, needs: NeedsApproval) -> None: ...


class Attempted(msgspec.Struct, eq=False):
    """One attempt of a call to run a command. `refused`: something of the network was refused meanwhile."""

    ctx: ToolContext
    refused: bool = False


class NetworkApprovals:
    """Decides about each connection of one session's commands. What is approved once holds until another call runs a
    command, since programs connect more than once."""

    def __init__(self) -> None:
        self.judge: Judge | None = None
        self._running: list[Attempted] = []
        self._last: ToolContext | None = None
        self._asked: dict[str, asyncio.Task[str | None]] = {}
        self._once: dict[str, str | None] = {}
        self._next: dict[str, str | None] = {}  # answered when the command had ended
        self._rejected: dict[str, str] = {}
        self._told: set[Refusal] = set()

    @contextmanager
    def attempting(self, ctx: ToolContext) -> Iterator[Attempted]:
        """Note that a call runs a command: what that needs is asked in its name."""
        attempted = Attempted(ctx)
        if not self._running:
            self._once, self._next = self._next, {}
            self._told.clear()
        self._running.append(attempted)
        self._last = ctx
        try:
            yield attempted
        finally:
            self._running.remove(attempted)

    @property
    def active(self) -> bool:
        """True while a call runs a command."""
        return bool(self._running)

    def names(self) -> Iterable[str]:
        """Return the hosts that rules allow."""
        return () if self.judge is None else self.judge.allowed_hosts

    async def decide(self, host: str, port: int, listed: bool) -> str | None:
        """Return None if commands may reach a host, else why not. See `local_way.Decider`."""
        ctx = self._ctx
        assert self.judge is not None
        assert ctx is not None, "connections come from commands"
        effect = network_effect(host, port, listed)
        needs = self.judge.network_requirement(ctx, effect)
        if isinstance(needs, Skip):
            return None
        if isinstance(needs, Forbidden):
            return needs.reason
        for answers in (self._rejected, self._once, self._next):
            if host in answers:
                return answers[host]
        if host not in self._asked:
            self._asked[host] = asyncio.create_task(self._ask(ctx, effect, needs))
        return await asyncio.shield(self._asked[host])

    async def _ask(self, ctx: ToolContext, effect: NetworkEffect, needs: NeedsApproval) -> str | None:
        assert self.judge is not None
        why: str | None = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.judge.approve(ctx, effect, needs)
        except TimeoutError:
            why = UNANSWERED.format(effect.host, ANSWER_SECONDS)
        except Rejected as error:
            self._rejected[effect.host] = why = str(error)
        except RespondToModel as error:
            why = str(error)
        finally:
            del self._asked[effect.host]
        (self._once if self._running else self._next)[effect.host] = why
        return why

    def questions(self) -> list[str]:
        """Return what commands still wait for: sentences for the model."""
        return [NOT_YET.format(host) for host in self._asked]

    def refused(self, refusal: "Refusal") -> None:
        """Tell a refusal to the user, once for the commands that run."""
        for attempted in self._running:
            attempted.refused = True
        if self._ctx is not None and refusal not in self._told:
            self._told.add(refusal)
            told = NetworkRefused(call_id=self._ctx.call_id, host=refusal.host, port=refusal.port, reason=refusal.text)
            self._ctx.emit(told)

    @property
    def _ctx(self) -> ToolContext | None:
        """The call in whose name something is asked: the newest, of those that run if there are any."""
        return self._running[-1].ctx if self._running else self._last

    async def aclose(self) -> None:
        """Withdraw the questions."""
        asked = [*self._asked.values()]
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
