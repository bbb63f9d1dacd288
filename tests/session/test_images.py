"""Images that would make every later request fail do not stay in the history."""

import os
from pathlib import Path

import pytest

from ferrule import Agent
from ferrule.history.images import REFUSED
from ferrule.model.stream import ContentRefused
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import WarningEvent
from ferrule.protocol.items import CustomToolCallOutput, FunctionCallOutput, Message, ResponseItem, make_item
from ferrule.session.images import DROPPED, MAX_IMAGE_BYTES, bounded, image_input, without_refused
from ferrule.tools.decorator import tool
from tests.session.models import InProcessModel, calls, says


def picture(size: int, call_id: str = "c") -> ResponseItem:
    image = InputImage(image_url="data:image/png;base64," + "A" * size)
    return make_item(FunctionCallOutput(call_id=call_id, output=(InputText("see"), image)))


def images(items: tuple[ResponseItem, ...] | list[ResponseItem]) -> list[int]:
    """Where images are."""
    return [
        at
        for at, item in enumerate(items)
        if isinstance(item.view, FunctionCallOutput | CustomToolCallOutput | Message) and b'"input_image"' in item.raw
    ]


def test_b146_old_images_are_dropped_by_a_byte_budget() -> None:
    items = tuple(picture(500_000, str(number)) for number in range(40))
    kept = bounded(items)
    assert images(kept) == list(range(40 - MAX_IMAGE_BYTES // 500_022, 40))
    assert sum(len(item.raw) for item in kept) < MAX_IMAGE_BYTES + 40 * 300
    assert isinstance(kept[0].view, FunctionCallOutput)
    assert kept[0].view == FunctionCallOutput(call_id="0", output=(InputText("see"), InputText(DROPPED)))
    assert kept[-1] is items[-1]
    assert bounded(kept) is kept


def test_what_is_no_image_is_left_alone() -> None:
    items = (make_item(says("x" * 5000)), make_item(FunctionCallOutput(call_id="1", output="y" * 5000)))
    assert bounded(items, limit=0) is items and without_refused(items) is None


def test_refused_images_are_the_new_ones_else_all() -> None:
    old, answer, new = picture(100), make_item(says("seen")), picture(100)
    assert images(without_refused([old, answer, new]) or []) == [0]
    assert images(without_refused([old, answer]) or [old]) == []
    user = make_item(Message(role="user", content=(InputImage(image_url="data:x"),)))
    assert images(without_refused([old, answer, user]) or []) == [0]


def test_an_image_is_a_regular_file_that_fits_into_a_request(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(MAX_IMAGE_BYTES + 1)
    for path in ("/dev/zero", "/", "gone", *(f"{tmp_path}/{name}" for name in ("fifo", "large.png", "no\0ne"))):
        with pytest.raises(UsageError, match="the image "):
            image_input(path)


@tool
def look() -> tuple[InputImage, ...]:
    """Look."""
    return (InputImage(image_url="data:image/png;base64," + "A" * 100),)


async def test_b146_a_refused_image_is_replaced_and_the_session_goes_on(tmp_path: Path) -> None:
    events: list[object] = []
    refused = ContentRefused("the server refuses a part of the request: image too large", status=400)
    model = InProcessModel([calls("look")], refused, [says("went on")], [says("again")])
    agent = Agent(model, cwd=tmp_path, tools=[look], on_event=events.append)
    async with await agent.open() as session:
        assert (await session.run("go")).text == "went on"
        assert (await session.run("more")).text == "again"
    assert [images(request.items) != [] for request in model.requests] == [False, True, False, False]
    outputs = [item.view for item in model.requests[2].items if isinstance(item.view, FunctionCallOutput)]
    assert outputs[0].output == (InputText(REFUSED),)
    assert any(isinstance(event, WarningEvent) and "without its images" in event.message for event in events)


async def test_a_refusal_without_an_image_is_an_error(tmp_path: Path) -> None:
    model = InProcessModel(ContentRefused("the server refuses a part of the request", status=400))
    with pytest.raises(ContentRefused):
        await Agent(model, cwd=tmp_path, tools=[]).run("go")
    assert len(model.requests) == 1
