"""Events of a session as updates, one by one; and what is asked of the user."""

import asyncio
from typing import Any

import pytest
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

from ferrule.doors.acp import asking, choices
from ferrule.doors.acp.messages import encode_message
from ferrule.doors.acp.shown import fenced
from ferrule.doors.acp.updates import Updates
from ferrule.protocol.events import (
    ContextCompacted,
    Event,
    ExecApproval,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    WarningEvent,
)
from ferrule.protocol.items import FunctionCall, WebSearchCall, make_item
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.permissions import ReviewDecision, as_policy
from ferrule.protocol.settings import Settings
from ferrule.tools.events import ChildEvent, ToolEvent
from tests.session.models import says

CALL = make_item(FunctionCall(call_id="c1", name="shell_command", arguments='{"command": "make"}'))
BEGIN = ExecCommandBegin(call_id="c1", command=("sh", "-c", "make"), cwd="/work")
END = ExecCommandEnd(call_id="c1", exit_code=0, output="all of it\n", duration_ms=5)
DONE = TurnCompleted(turn_id="t", usage=TokenUsage())


def told(*events: Event | ToolEvent, **more: Any) -> list[dict[str, Any]]:
    """The updates of these events."""
    updates: list[dict[str, Any]] = []
    teller = Updates(
        lambda update: updates.append(update.model_dump(by_alias=True, exclude_none=True)), "/work", **more
    )
    for event in events:
        teller.on_event(event)
    teller.stop()
    return updates


def texts(updates: list[dict[str, Any]]) -> str:
    return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == "agent_message_chunk")


def test_a_whole_answer_completes_what_was_streamed_of_it() -> None:
    half = ItemUpdated(item_id="m", kind="text", delta="Hello, ")
    answer = ItemCompleted(item=make_item(says("Hello, you.")))
    assert texts(told(half, answer)) == "Hello, you."
    assert texts(told(answer)) == "Hello, you."
    other = ItemUpdated(item_id="n", kind="text", delta="Again.")
    assert texts(told(half, other)) == "Hello, \n\nAgain."


async def test_a_command_that_outlives_its_turn_is_told_of_when_it_ends() -> None:
    late = ExecCommandOutputDelta(call_id="c1", stream="stdout", chunk=b"some")
    updates = told(ItemStarted(item=CALL), BEGIN, late, ItemCompleted(item=CALL, output=ToolOutput("runs")), DONE, END)
    assert [update.get("status") for update in updates] == ["in_progress", None, "completed", "completed"]
    assert "some" in str(updates[1]["content"]) and "all of it" in str(updates[-1]["content"])
    interrupted = told(ItemStarted(item=CALL), TurnAborted(turn_id="t"))
    assert interrupted[-1]["status"] == "failed"


async def test_output_is_shown_again_without_being_asked_for() -> None:
    updates: list[Any] = []
    shown = asyncio.Event()

    def show(update: Any) -> None:
        updates.append(update)
        shown.set()

    teller = Updates(show, "/work")
    teller.on_event(ItemStarted(item=CALL))
    teller.on_event(BEGIN)
    for chunk in (b"caf\xc3", b"\xa9"):  # a character in two pieces
        teller.on_event(ExecCommandOutputDelta(call_id="c1", stream="stdout", chunk=chunk))
    shown.clear()
    await asyncio.wait_for(shown.wait(), 10)
    assert "café" in str(updates[-1]) and len(updates) == 2
    teller.stop()


def test_the_calls_of_a_sub_agent_are_shown_and_its_words_are_not() -> None:
    events = (
        ItemStarted(item=CALL),
        BEGIN,
        END,
        ItemCompleted(item=make_item(says("inner"))),
        WarningEvent(message="w"),
    )
    updates = told(*(ChildEvent("child", "parent", event) for event in events))
    assert [update["toolCallId"] for update in updates] == ["child:c1"] * 2
    assert updates[0]["title"] == "sub-agent: make" and updates[-1]["status"] == "completed"


def test_a_command_by_hand_and_a_providers_call_are_calls() -> None:
    search = make_item(WebSearchCall(id="ws", status="completed", action=b'{"query":"x"}'))  # type: ignore[arg-type]
    updates = told(BEGIN, END, ItemCompleted(item=search))
    assert [update["sessionUpdate"] for update in updates] == ["tool_call", "tool_call_update", "tool_call"]
    assert updates[2]["title"].startswith("Web search") and updates[2]["status"] == "completed"
    assert "compacted: 1,000 -> 10" in texts(told(ContextCompacted(turn_id="t", tokens_before=1000, tokens_after=10)))


@pytest.mark.parametrize("text", ["plain", "a ``` b", "`````\nx"])
def test_an_output_cannot_leave_its_block(text: str) -> None:
    fence, _, rest = fenced(text).partition("\n")
    assert set(fence) == {"`"} and fence not in rest.removesuffix(fence) and text in rest


def test_halves_of_characters_are_replaced() -> None:
    assert encode_message({"a": "x\udce9\n"}) == '{"a": "x\ufffd\\n"}\n'.encode()


NETWORK = ExecApproval(
    request_id="q", call_id="c1", kind="network", text="https://example.com", proposed_network_host="example.com",
    decisions=(ReviewDecision.APPROVED, ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT, ReviewDecision.DENIED),
)  # fmt: skip


def test_a_host_is_asked_about_in_words() -> None:
    call = asking.call_of(NETWORK, "q", "/work")
    assert call.title == "Reach https://example.com" and call.kind == "fetch"
    assert [(one.option_id, one.name, one.kind) for one in asking.options_of(NETWORK)] == [
        ("approved", "Allow once", "allow_once"),
        ("approved_execpolicy_amendment", "Always allow example.com", "allow_always"),
        ("denied", "Reject", "reject_once"),
    ]


@pytest.mark.parametrize("outcome", [
    DeniedOutcome(outcome="cancelled"),
    AllowedOutcome(outcome="selected", option_id="approved_for_session"),  # it was not offered
    AllowedOutcome(outcome="selected", option_id=""),
])  # fmt: skip
def test_what_was_not_offered_is_a_no(outcome: DeniedOutcome | AllowedOutcome) -> None:
    decision = asking.decision_of(NETWORK, RequestPermissionResponse(outcome=outcome))
    assert decision.decision is ReviewDecision.DENIED


def test_a_mode_that_can_only_be_configured_can_be_gone_back_to() -> None:
    def ids(now: str, began_in: str) -> list[str]:
        state = choices.modes_of(Settings(cwd="/", home="/", sandbox_policy=as_policy(now)), began_in)
        assert state.current_mode_id == now
        return [mode.id for mode in state.available_modes]

    usual = ["read-only", "workspace-write", "danger-full-access"]
    assert ids("read-only", "workspace-write") == usual
    assert ids("container", "container") == ids("read-only", "container") == [*usual, "container"]
