"""The soak itself is not in the default run; that it would notice something is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.protocol.content import OutputText
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, ItemView, Message, make_item
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.protocol.specs import Wire
from ferrule.testing import Raw, Request, ScriptedModel, Step
from tests.soak.census import growth_per_session
from tests.soak.census_cases import CASES
from tests.soak.chores import draw_batch
from tests.soak.conversation import Conversation, Voice
from tests.soak.errands import ERRANDS
from tests.soak.estate import OWN, changed, look
from tests.soak.history import wrong_order
from tests.soak.plan import Plan, TurnPlan, draw_plan, offer
from tests.soak.service import draw_service

TOP = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "session-1").mkdir()
    return tmp_path


def call(number: int) -> ItemView:
    return FunctionCall(call_id=f"c{number}", name="f", arguments="{}")


def answered(number: int) -> ItemView:
    return FunctionCallOutput(call_id=f"c{number}", output="ok")


SAID = Message(role="user", content=(OutputText("and now?"),))


@pytest.mark.parametrize("case", CASES)
def test_a_census(root: Path, case: str) -> None:
    """In a process of its own, as the soak: what other tests of this one hold comes and goes."""
    done = subprocess.run([sys.executable, "-m", "tests.soak.census_cases", case, root], cwd=TOP, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("items", "problems"),
    [
        ([call(1), call(2), answered(1), answered(2), SAID], []),
        ([call(1), call(2), answered(2), answered(1)], ["the output of c2 stands where ['c1'] had to be answered"]),
        ([call(1)], ["c1 has no output"]),
        ([answered(1)], ["the output of c1 stands where [] had to be answered"]),
        ([call(1), SAID, answered(1)], ["the user speaks while ['c1'] have no output"]),
        ([call(1), answered(1), call(1), answered(1)], ["two calls have the id c1"]),
    ],
)
def test_a_wrong_history_is_seen(items: list[ItemView], problems: list[str]) -> None:
    assert wrong_order([make_item(item) for item in items]) == problems


def test_growth_is_the_slope_of_the_later_half() -> None:
    warming = [(10, 50_000_000), (20, 90_000_000), (30, 95_000_000)]
    assert growth_per_session([*warming, (40, 96_000_000), (50, 96_000_000), (60, 96_000_000)]) == 0
    assert growth_per_session([*warming, (40, 96_000_000), (50, 97_000_000), (60, 98_000_000)]) == 100_000


def test_a_plan_comes_of_its_seed_and_number_alone() -> None:
    can = offer(root=True, node=True, mcp=True)
    plans = [draw_plan("seed", number, can) for number in range(50)]
    assert plans == [draw_plan("seed", number, can) for number in range(50)]
    assert plans != [draw_plan("another", number, can) for number in range(50)]
    drawn = {turn.fault for plan in plans for turn in plan.turns}
    assert drawn >= {"interrupted", "caller_cancelled", "full_disk", None}
    assert {plan.wire for plan in plans} == {"responses", "chat", "messages"}


def test_what_runs_beside_comes_of_the_seed_and_the_round_alone() -> None:
    services = [draw_service("seed", number, root=True) for number in range(40)]
    batches = [draw_batch("seed", number, root=True) for number in range(40)]
    assert services == [draw_service("seed", number, root=True) for number in range(40)]
    assert batches == [draw_batch("seed", number, root=True) for number in range(40)]
    assert {errand for one in services for client in one.errands for errand in client} == set(ERRANDS)
    assert any(one.killed for one in services) and any(one.stopped for one in services)
    assert any(one.kills for one in batches) and any(one.full for one in batches)


def test_whatever_changes_in_the_users_home_is_seen(tmp_path: Path) -> None:
    (tmp_path / OWN).mkdir()
    for name in ("kept", "written", "opened", "touched", "gone"):
        (tmp_path / name).write_text("text")
    before = look(tmp_path)
    assert changed(before, look(tmp_path)) == []
    when = (tmp_path / "written").stat().st_mtime_ns
    (tmp_path / "written").write_text("tEXt")
    os.utime(tmp_path / "written", ns=(when, when))
    (tmp_path / "opened").chmod(0o666)
    os.utime(tmp_path / "touched", ns=(when, when + 1))
    (tmp_path / "gone").unlink()
    (tmp_path / "new").symlink_to("kept")
    (tmp_path / OWN / "ours").touch()
    assert [fault.split()[2] for fault in changed(before, look(tmp_path))] == [
        "gone", "new", "opened", "touched", "written",
    ]  # fmt: skip


def test_what_a_machine_cannot_do_is_named() -> None:
    assert set(offer(root=False, node=False, mcp=False).missing) >= {"full_disk", "javascript", "server_tools"}


@pytest.mark.parametrize("wire", ["responses", "chat", "messages"])
@pytest.mark.parametrize("wire_faults", [0.0, 0.4])
async def test_a_conversation(tmp_path: Path, wire: Wire, wire_faults: float) -> None:
    plan = Plan(
        number=7,
        wire=wire,
        model="gpt-5.5",
        sandbox=DangerFullAccess(),
        approval=AskForApproval.NEVER,
        observed=True,
        small_disk=False,
        wire_faults=wire_faults,
        refusals=0,
        turns=(TurnPlan(("functions", "planning"), None), TurnPlan(("patches", "nonsense"), "interrupted")),
    )
    (tmp_path / "work").mkdir()
    voices: dict[int, Voice] = {}

    def answer(request: Request) -> Step | Raw:
        return voices[plan.number].answer(request)

    with ScriptedModel(answer) as server:
        talk = Conversation(plan, "seed", tmp_path / "work", tmp_path / "home", server.base_url, None, calm=False)
        voices[plan.number] = talk.voice
        report = await talk.run()
        assert report.problems + server.failures == []
    assert report.turns.total() == 3
    assert report.calls > 5
    assert bool(talk.voice.struck) is bool(wire_faults)
