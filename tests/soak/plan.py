"""What one conversation will be: drawn from the seed and its number alone, before anything runs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ferrule.builtin import BUILTINS
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    InContainer,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)
from ferrule.protocol.specs import Wire
from tests.soak.faults import NEEDS_PLACE, NEEDS_ROOT, SHARED, TURN_FAULTS
from tests.soak.workloads import WORKLOADS, Workload

MODELS = ("gpt-5.5", "gpt-oss", "qwen3")
"""Patches as plain text; as a function; with the model's estimate of risk."""
TURNS = 3
ROUND = 12
"""Conversations in a round, about half a minute's."""


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """Workloads that run side by side, and what happens meanwhile."""

    work: tuple[str, ...]
    fault: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One conversation. `wire_faults` is the share of responses that go wrong; `refusals`: how many things its server
    refuses for good; `small_disk`: it works on a tmpfs."""

    number: int
    wire: Wire
    model: str
    sandbox: SandboxPolicy
    approval: AskForApproval
    observed: bool
    small_disk: bool
    wire_faults: float
    refusals: int
    turns: tuple[TurnPlan, ...]

    @property
    def tools(self) -> tuple[str, ...]:
        """The built-in tools that the workloads need."""
        return tuple(dict.fromkeys(name for turn in self.turns for work in turn.work for name in WORKLOADS[work].tools))

    @property
    def mcp(self) -> bool:
        """Whether the MCP server is needed."""
        return any(WORKLOADS[work].mcp for turn in self.turns for work in turn.work)

    @property
    def calm(self) -> bool:
        """Nothing of its own disturbs its tools."""
        return self.approval is AskForApproval.NEVER and not any(turn.fault for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Offer:
    """What this machine and this tree can do. `missing` counts what is left out and why."""

    workloads: tuple[str, ...]
    faults: tuple[str, ...]
    missing: tuple[str, ...]


def offer(*, root: bool, node: bool, mcp: bool) -> Offer:
    """The workloads whose tools exist, the faults that can be made."""

    def can(work: Workload) -> bool:
        return set(work.tools) <= set(BUILTINS) and (node or "js_repl" not in work.tools) and (mcp or not work.mcp)

    works = tuple(name for name, work in WORKLOADS.items() if can(work))
    faults = tuple(name for name in TURN_FAULTS if root or name not in NEEDS_ROOT)
    left_out = {*WORKLOADS, *TURN_FAULTS} - {*works, *faults}
    return Offer(works, faults, tuple(sorted(left_out)))


def draw_plan(seed: str, number: int, offered: Offer) -> Plan:
    """The plan of conversation `number`."""
    rng = random.Random(f"{seed}/{number}")
    disturbed = rng.random() < 0.6
    sandbox = _draw_sandbox(rng)
    faults = [fault for fault in offered.faults if fault not in SHARED or number // ROUND % 2 == 0]
    turns = tuple(_draw_turn(rng, offered.workloads, faults if disturbed else ()) for _ in range(rng.randint(1, TURNS)))
    return Plan(
        number=number,
        wire=rng.choice(("responses", "chat", "messages")),
        model=rng.choice(MODELS),
        sandbox=sandbox,
        approval=rng.choice(list(AskForApproval)) if disturbed else AskForApproval.NEVER,
        observed=rng.random() < 0.7,
        small_disk=any(turn.fault in NEEDS_ROOT for turn in turns),
        wire_faults=rng.choice((0.0, 0.0, 0.15, 0.3)),
        refusals=rng.choice((0, 0, 0, 1, 3)),
        turns=turns,
    )


def _draw_sandbox(rng: random.Random) -> SandboxPolicy:
    if rng.random() < 0.2:
        return DangerFullAccess()
    return rng.choice((WorkspaceWrite(), WorkspaceWrite(network_access=True), ReadOnly(), InContainer(), InContainer()))


def _draw_turn(rng: random.Random, works: Sequence[str], faults: Sequence[str]) -> TurnPlan:
    work = tuple(rng.sample(works, rng.randint(1, 3)))
    if not faults or rng.random() < 0.3:
        return TurnPlan(work, None)
    tools = {name for one in work for name in WORKLOADS[one].tools} | {"mcp" for one in work if WORKLOADS[one].mcp}
    return TurnPlan(work, rng.choice([fault for fault in faults if NEEDS_PLACE.get(fault) in (None, *tools)]))
