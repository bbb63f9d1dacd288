"""Approve what a session's commands reach of the network: by the list of domains, the rules, and the user's answer.

A connection to a name that needs an answer waits for it, as long as programs bear; then it is refused, and the model
may try again. A question is asked once, however many connections wait for its answer.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from ferrule.dispatch.approval import network_requirement
from ferrule.execpolicy import Rules
from ferrule.protocol.approvals import ExecApprovalRequirement, Forbidden, NeedsApproval, Skip
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import NetworkRefused
from ferrule.protocol.permissions import AskForApproval
from ferrule.tools.context import Permissions, ToolContext
from ferrule.tools.effects import NetworkEffect

if TYPE_CHECKING:
    from ferrule.egress.guard import Refusal

ANSWER_SECONDS = 60.0
"""That long a connection waits for the user: programs give up on a silent server after about as much."""
MAX_QUESTIONS = 10
"""Of one call: whoever asks for more wants to be a nuisance, or a yes out of weariness."""
PORTS = (80, 443)
"""Those of the two protocols that rules name."""
MAX_TOLD = 100
"""Refusals that the user is told of while commands run."""
UNANSWERED = "{} was not reached: the user did not answer within {:g} seconds. The next command may ask again."
NOT_YET = "The user is being asked whether {} may be reached. Run the command again after the answer."
WITHDRAWN = "{} was not reached: the call that asked for it was cancelled. The next command may ask again."
TOO_MANY = (
    "{} was not reached: this call has asked the user about {} hosts already. Reach for fewer in one call, or let the "
    "user add what is needed to network_access below [sandbox_workspace_write] in config.toml."
)
NO_COMMAND = "{} was not reached: no command runs for which the user could be asked."


def network_effect(host: str, port: int, listed: bool) -> NetworkEffect:
    """Return what a connection of a command will do. A tunnel shows its port only."""
    return NetworkEffect(host=host, port=port, protocol="http" if port == 80 else "https", listed=listed)


def forbidden_host(host: str, port: int, permissions: Permissions, rules: Rules) -> str | None:
    """Return why pages of the screen do not reach a host that the session may reach: a rule forbids it, or wants the
    user to be asked, for whom no page waits. None: they do. A port of neither protocol may speak both."""
    unasked = msgspec.structs.replace(permissions, approval_policy=AskForApproval.NEVER)
    effect = network_effect(host, port, True)
    effects = (effect,) if port in PORTS else (effect, msgspec.structs.replace(effect, protocol="http"))
    needs = (network_requirement(one, unasked, rules) for one in effects)
    return next((one.reason for one in needs if isinstance(one, Forbidden)), None)


class Rejected(RespondToModel):
    """The user said no."""


class Judge(Protocol):
    """The orchestrator, as far as it decides about the network."""

    @property
    def allowed_hosts(self) -> Iterable[str]: ...

    def network_requirement(self, ctx: ToolContext, effect: NetworkEffect) -> ExecApprovalRequirement: ...
    def is_approved(self, ctx: ToolContext, effect: NetworkEffect) -> bool: ...
    async def approve(self, ctx: ToolContext, effect: NetworkEffect, needs: NeedsApproval) -> None: ...


class Attempted(msgspec.Struct, eq=False):
    """One attempt of a call to run a command. `refused`: something of the network was refused meanwhile. `cancelled`:
    nobody waits for it any more. `questions` counts those that its call has asked."""

    ctx: ToolContext
    refused: bool = False
    cancelled: bool = False
    questions: int = 0


class Asked(msgspec.Struct, frozen=True, eq=False):
    """A question that waits for its answer, and the attempt in whose name it was asked."""

    attempted: Attempted
    answer: "asyncio.Task[str | None]"


class NetworkApprovals:
    """Decides about each connection of one session's commands. What is approved once holds until another call runs a
    command, since programs connect more than once."""

    def __init__(self) -> None:
        self.judge: Judge | None = None
        self._running: list[Attempted] = []
        self._last: Attempted | None = None
        self._asked: dict[str, Asked] = {}
        self._once: dict[str, str | None] = {}
        self._next: dict[str, str | None] = {}  # approved when the command had ended
        self._rejected: dict[str, str] = {}
        self._told: set[Refusal] = set()

    @contextmanager
    def attempting(self, ctx: ToolContext) -> Iterator[Attempted]:
        """Note that a call runs a command: what that needs is asked in its name. If the call is cancelled its questions
        are withdrawn."""
        again = self._last is not None and self._last.ctx is ctx
        attempted = Attempted(ctx, questions=self._last.questions if self._last and again else 0)
        if not self._running:
            self._once, self._next = self._next, {}
            self._told.clear()
        self._running.append(attempted)
        self._last = attempted
        try:
            yield attempted
        except asyncio.CancelledError:
            attempted.cancelled = True
            for asked in self._asked.values():
                if asked.attempted is attempted:
                    asked.answer.cancel()
            raise
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
        attempted, judge = self._current, self.judge
        if attempted is None or judge is None:
            return NO_COMMAND.format(host)
        effect = network_effect(host, port, listed)
        needs = judge.network_requirement(attempted.ctx, effect)
        if isinstance(needs, Skip) or (isinstance(needs, NeedsApproval) and judge.is_approved(attempted.ctx, effect)):
            return None
        if isinstance(needs, Forbidden):
            return needs.reason
        for answers in (self._rejected, self._once, self._next):
            if host in answers:
                return answers[host]
        if host not in self._asked:
            if attempted.cancelled:
                return NO_COMMAND.format(host)
            if attempted.questions >= MAX_QUESTIONS:
                return TOO_MANY.format(host, MAX_QUESTIONS)
            attempted.questions += 1
            asking = asyncio.create_task(self._ask(judge, attempted.ctx, effect, needs))
            self._asked[host] = Asked(attempted, asking)
            asking.add_done_callback(lambda _: self._asked.pop(host))
        answer = self._asked[host].answer
        await asyncio.wait([answer])  # others wait for it, too, if this connection ends
        return WITHDRAWN.format(host) if answer.cancelled() else answer.result()

    async def _ask(self, judge: Judge, ctx: ToolContext, effect: NetworkEffect, needs: NeedsApproval) -> str | None:
        why: str | None = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await judge.approve(ctx, effect, needs)
        except TimeoutError:
            why = UNANSWERED.format(effect.host, ANSWER_SECONDS)
        except Rejected as error:
            self._rejected[effect.host] = why = f"{effect.host}: {error}"
        except RespondToModel as error:
            why = f"{effect.host}: {error}"
        if self._running:
            self._once[effect.host] = why
        elif why is None:
            self._next[effect.host] = why
        return why

    def questions(self) -> list[str]:
        """Return what commands still wait for: sentences for the model."""
        return [NOT_YET.format(host) for host in self._asked]

    def refused(self, refusal: "Refusal") -> None:
        """Tell a refusal to the user, once for the commands that run."""
        for attempted in self._running:
            attempted.refused = True
        current = self._current
        if current is not None and refusal not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(refusal)
            ctx = current.ctx
            ctx.emit(NetworkRefused(call_id=ctx.call_id, host=refusal.host, port=refusal.port, reason=refusal.text))

    @property
    def _current(self) -> Attempted | None:
        """The attempt in whose name something is asked: the newest, of those that run if there are any."""
        return self._running[-1] if self._running else self._last

    async def aclose(self) -> None:
        """Withdraw the questions."""
        asked = [one.answer for one in self._asked.values()]
        for answer in asked:
            answer.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
