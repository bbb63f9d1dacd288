"""`image_generation` for any model, on both upstream wires, over a loopback image server."""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from openai.types.responses.response_output_item import ImageGenerationCall
from pydantic import TypeAdapter

from ferrule.hosted.image_generation import ImageGeneration
from ferrule.image_generation.opening import open_maker
from ferrule.protocol.image_settings import ImageGenerationSettings
from ferrule.protocol.specs import Wire
from ferrule.responses.errors import ApiError
from ferrule.store import FileRecord, Store
from ferrule.testing import ScriptedModel, function_call, http_error
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.image_generation.conftest import paints, server  # noqa: F401 - fixtures
from tests.image_generation.painter import Asked, Painter, Reply, colour_at, drawn, refusal
from tests.image_generation.test_server import no_program, png
from tests.responses.serving import Json, Served, asked, check_stream, events_of, kinds, served

TOOL: Json = {"type": "image_generation"}
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire, paints: Painter) -> AsyncIterator[Served]:  # noqa: F811
    settings = ImageGenerationSettings(base_url=paints.base_url, models={"gpt-image-1": "flux"})
    maker, store = open_maker(settings, no_program), await Store.open(tmp_path / "gateway.db")
    tool = ImageGeneration(maker, store)
    try:
        async with served(tmp_path, model, wire, hosted=(tool,), knows=("image_generation",), store=store) as here:
            yield here
    finally:
        await maker.aclose()


def draw(prompt: str) -> Json:
    return function_call("image_generation", {"prompt": prompt})


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{b64encode(data).decode()}"


def picture(data: bytes, text: str = "look") -> list[Json]:
    parts = [{"type": "input_image", "image_url": data_url(data)}, {"type": "input_text", "text": text}]
    return [{"role": "user", "content": parts}]


def calls(response: Json) -> list[Json]:
    found = [item for item in response["output"] if item["type"] == "image_generation_call"]
    for item in found:
        ImageGenerationCall.model_validate(item, strict=True)
    return found


def colours(item: Json) -> tuple[str, ...]:
    """The colours of the left and the right half."""
    data = b64decode(item["result"])
    names: dict[tuple[int, ...], str] = {
        (255, 0, 0): "red",
        (0, 0, 255): "blue",
        (255, 255, 255): "white",
        (0, 128, 0): "green",
    }
    return tuple(names[colour_at(data, x, 5)] for x in (2, 60))


async def test_an_image_is_made_streamed_and_shown_to_the_model(here: Served, paints: Painter) -> None:  # noqa: F811
    here.model.add([draw("a red wall")], "Here it is.")
    wishes: Json = {"partial_images": 2, "size": "1024x1024", "quality": "low", "background": "transparent"}
    wishes |= {"moderation": "low", "output_compression": 100}
    tool = {**TOOL, "model": "gpt-image-1", **wishes}
    ledger = await here.engine.open(asked(tools=[tool]))
    events, final = await events_of(ledger), ledger.object
    check_stream(events, final)
    for event in events:
        EVENTS.validate_python(event)
    told = [kind for kind in kinds(events) if kind.startswith("image_generation_call")]
    stages = ["in_progress", "generating", "partial_image", "partial_image", "completed"]
    assert told == [f"image_generation_call.{stage}" for stage in stages]
    partials = [event for event in events if event["type"].endswith(".partial_image")]
    assert [event["partial_image_index"] for event in partials] == [0, 1]
    assert colour_at(b64decode(partials[0]["partial_image_b64"]), 1, 1) == (128, 128, 128)
    (item,) = calls(final)
    assert {name: value for name, value in item.items() if name not in ("id", "result")} == {
        "type": "image_generation_call", "status": "completed", "action": "generate", "revised_prompt": "a red wall",
        "size": "1024x1024", "quality": "high", "background": "transparent", "output_format": "png",
    }  # fmt: skip
    assert item["id"].startswith("ig_") and colours(item) == ("red", "red")
    (sent,) = paints.asked
    assert sent.fields["model"] == "flux" and wishes == {name: sent.fields[name] for name in wishes}
    assert final["output"][1]["content"][0]["text"] == "Here it is."
    seen = json.dumps(here.model.last_request.body)
    assert item["result"] in seen and "the user sees it: 1024x1024 pixels, png" in seen
    assert final["tools"] == [tool] and ledger.not_run == ()


async def test_an_edit_takes_the_requests_image_else_the_last_result(here: Served, paints: Painter) -> None:  # noqa: F811
    edits = {**TOOL, "action": "edit"}
    here.model.add([draw("red")], "Done.", [draw("blue")], "Done.", [draw("green")], "Done.")
    first = await here.ask(tools=[edits], input=picture(drawn("white")))
    second = await here.ask(tools=[edits], input="more", previous_response_id=first.id)
    third = await here.ask(tools=[edits], input=picture(drawn("white")), previous_response_id=second.id)
    items = [calls(ledger.object)[0] for ledger in (first, second, third)]
    assert [item["action"] for item in items] == ["edit"] * 3
    assert [colours(item) for item in items] == [("red", "white"), ("blue", "white"), ("green", "white")]
    assert [asked.path for asked in paints.asked] == ["/v1/images/edits"] * 3
    assert paints.asked[1].files["image"] == b64decode(items[0]["result"])
    assert paints.asked[2].files["image"] == drawn("white")


async def test_left_to_itself_it_edits_what_the_request_brings(here: Served, paints: Painter) -> None:  # noqa: F811
    here.model.add([draw("red")], [draw("blue")], "Done.", [draw("green")], "Done.")
    first = await here.ask(tools=[TOOL], input=picture(drawn("white")))
    assert [(item["action"], colours(item)) for item in calls(first.object)] == [
        ("edit", ("red", "white")), ("edit", ("blue", "white")),
    ]  # fmt: skip
    assert paints.asked[1].files["image"] == b64decode(calls(first.object)[0]["result"])  # the newest there is
    second = await here.ask(tools=[TOOL], input="another", previous_response_id=first.id)
    assert [(item["action"], colours(item)) for item in calls(second.object)] == [("generate", ("green", "green"))]


async def test_an_edit_takes_what_is_newest_of_what_there_is(here: Served, paints: Painter) -> None:  # noqa: F811
    shot: Json = {"type": "function_call", "call_id": "c1", "name": "shot", "arguments": "{}"}
    output: Json = {"type": "function_call_output", "call_id": "c1", "output": picture(drawn("green"))[0]["content"]}
    drawing: Json = {"type": "image_generation_call", "id": "ig_1", "result": b64encode(drawn("red")).decode()}
    said, more = {"role": "assistant", "content": "Nice."}, {"role": "user", "content": "edit it"}
    photo = picture(drawn("blue"))
    for given, colour in (
        ([shot, output], "green"),
        ([drawing, *photo, said, more], "red"),
        ([*photo, said, more], "blue"),
        ([drawing, shot, output, said, more], "red"),
        ([drawing, said, *photo, more], "blue"),
    ):
        here.model.add([draw("white")], "Done.")
        await here.ask(tools=[{**TOOL, "action": "edit"}], input=given)
        assert paints.asked[-1].files["image"] == drawn(colour)


async def test_without_an_image_an_edit_is_told_to_the_model(here: Served, paints: Painter) -> None:  # noqa: F811
    here.model.add([draw("red")], "There is none.")
    ledger = await here.ask(tools=[{**TOOL, "action": "edit"}])
    assert calls(ledger.object) == [] and paints.asked == [] and ledger.object["status"] == "completed"
    assert "no image in the conversation" in here.model.last_request.outputs[0].text


async def test_an_image_comes_back_whole_or_by_its_id(here: Served, paints: Painter) -> None:  # noqa: F811
    here.model.add([draw("red")], "Done.", [draw("blue")], "Done.", [draw("green")], "Done.")
    first = await here.ask(tools=[TOOL])
    (item,) = calls(first.object)
    edits = {**TOOL, "action": "edit"}
    question: Json = {"role": "user", "content": "now blue"}
    for given in (item, {"type": "image_generation_call", "id": item["id"]}):
        again = await here.ask(tools=[edits], input=[given, question], store=False)
        assert again.object["status"] == "completed" and len(calls(again.object)) == 1
        assert paints.asked[-1].files["image"] == b64decode(item["result"])
    unknown = {"type": "image_generation_call", "id": "ig_unknown"}
    here.model.add("I see nothing.")
    assert (await here.ask(tools=[TOOL], input=[unknown, question])).object["status"] == "completed"
    assert here.model.last_request.outputs[0].text == "(its image is not kept)"


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.mark.parametrize("by", ["file_id", "image_url"])
async def test_a_mask_is_a_file_or_a_data_url(here: Served, paints: Painter, by: str) -> None:  # noqa: F811
    mask = drawn("black")
    if by == "file_id":
        record = FileRecord(id="file_1", owner="", created_at=1, filename="mask.png", purpose="vision")
        await here.store.create_file(record, once(mask))
    given = {by: "file_1" if by == "file_id" else data_url(mask)}
    here.model.add([draw("red")], "Done.")
    tool = {**TOOL, "input_image_mask": given, "input_fidelity": "high"}
    ledger = await here.ask(tools=[tool], input=picture(drawn("white")))
    assert calls(ledger.object)[0]["action"] == "edit"
    assert paints.asked[0].files == {"image": drawn("white"), "mask": mask}
    assert paints.asked[0].fields["input_fidelity"] == "high"


FAILS: list[tuple[Any, str, str | None]] = [
    (lambda asked: refusal(400, "Not allowed.", "moderation_blocked"), "Not allowed.", "moderation_blocked"),
    (lambda asked: Reply([b"no"], status=500), "answered with the status 500", None),
    (lambda asked: Reply([b'{"data": []}']), "sent no image", None),
    (lambda asked: Reply([json.dumps({"data": [{"b64_json": b64encode(png(10_000, 10_000)).decode()}]}).encode()]),
     "100 megapixels", None),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "words", "code"), FAILS)
async def test_a_backend_that_fails_is_a_failed_item_of_a_completed_response(
    here: Served,
    paints: Painter,  # noqa: F811
    answer: Any,
    words: str,
    code: str | None,
) -> None:
    paints.answer = answer
    here.model.add([draw("red")], "It did not work.")
    ledger = await here.engine.open(asked(tools=[TOOL]))
    events, final = await events_of(ledger), ledger.object
    check_stream(events, final)
    (item,) = calls(final)
    assert (item["status"], item["result"], final["status"]) == ("failed", None, "completed")
    assert words in item["error"]["message"] and item["error"]["code"] == code
    assert words in here.model.last_request.outputs[0].text
    assert "image_generation_call.completed" not in kinds(events)


def hangs(paints: Painter) -> Any:  # noqa: F811
    def hang(asked: Asked) -> Reply:
        paints.held.wait()
        return Reply([b"{}"])

    return hang


async def test_a_response_that_is_cancelled_does_not_wait_for_its_image(here: Served, paints: Painter) -> None:  # noqa: F811
    paints.answer = hangs(paints)
    here.model.add([draw("red")])
    ledger = await here.engine.open(asked(tools=[TOOL], background=True, store=True))
    async for _, event in ledger.read():
        if b"image_generation_call.generating" in event:
            break
    await here.engine.cancel(ledger.id, "")
    await ledger.finished()
    assert ledger.object["status"] == "cancelled" and ledger.object["output"][0]["status"] == "failed"


REFUSED: list[tuple[Json, str]] = [
    ({"background": "transparent", "output_format": "jpeg"}, "background"),
    ({"partial_images": 4}, "partial_images"),
    ({"partial_images": -1}, "partial_images"),
    ({"output_format": "bmp"}, "output_format"),
    ({"output_format": "gif"}, "output_format"),
    ({"quality": "best"}, "quality"),
    ({"quality": "max", "model": "gpt-image-1"}, "quality"),
    ({"background": "pink"}, "background"),
    ({"action": "paint"}, "action"),
    ({"size": "big"}, "size"),
    ({"size": "0x64"}, "size"),
    ({"size": "8192x64"}, "size"),
    ({"size": "3840x2176"}, "size"),
    ({"size": "512x512", "model": "gpt-image-1"}, "size"),
    ({"size": "1000x1000", "model": "gpt-image-2"}, "size"),
    ({"size": "2048x512", "model": "gpt-image-2"}, "size"),
    ({"output_compression": 101}, "output_compression"),
    ({"output_compression": 50}, "output_compression"),
    ({"input_fidelity": "some"}, "input_fidelity"),
    ({"input_fidelity": "high", "model": "gpt-image-1-mini"}, "input_fidelity"),
    ({"moderation": "none"}, "moderation"),
    ({"input_image_mask": {}}, "input_image_mask"),
    ({"input_image_mask": {"file_id": "a", "image_url": "b"}}, "input_image_mask"),
    ({"input_image_mask": {"image_url": "http://a.example/x.png"}}, "input_image_mask.image_url"),
    ({"input_image_mask": {"image_url": data_url(b"words")}}, "input_image_mask.image_url"),
    ({"input_image_mask": {"image_url": data_url(png(10_000, 10_000))}}, "input_image_mask.image_url"),
    ({"input_image_mask": {"image_url": data_url(drawn())}, "action": "generate"}, "input_image_mask"),
]
ALLOWED: list[Json] = [
    {"background": "transparent", "output_format": "webp", "output_compression": 0},
    {"size": "auto", "quality": "auto", "background": "auto", "moderation": "auto", "action": "auto"},
    {"size": "1536x864", "model": "gpt-image-2", "quality": "high", "partial_images": 3},
    {"size": "2160x3840", "model": "mine", "quality": "max"},
    {"size": "512x512", "model": "dall-e-2"},
    {"output_compression": 100, "input_fidelity": None, "input_image_mask": None},
]


async def test_what_cannot_be_is_refused_with_its_field(here: Served, paints: Painter) -> None:  # noqa: F811
    for fields, param in REFUSED:
        with pytest.raises(ApiError) as raised:
            await here.engine.open(asked(tools=[{**TOOL, **fields}]))
        assert (raised.value.status, raised.value.param) == (400, f"tools[0].{param}"), fields
    with pytest.raises(ApiError) as raised:
        await here.engine.open(asked(tools=[{**TOOL, "input_image_mask": {"file_id": "file_none"}}]))
    assert (raised.value.status, raised.value.param) == (404, "tools[0].input_image_mask.file_id")
    for fields in ALLOWED:
        here.model.add("ok")
        ledger = await here.ask(tools=[{**TOOL, **fields}])
        assert ledger.object["status"] == "completed", fields
    here.model.add("ok")
    assert (await here.ask(tools=[{**TOOL, "frame_count": 3}])).not_run == ("frame_count",)
    assert paints.asked == []


async def test_it_is_chosen_and_keeps_its_name_beside_a_clients_function(here: Served, paints: Painter) -> None:  # noqa: F811
    mine = {"type": "function", "name": "image_generation", "parameters": {"type": "object", "properties": {}}}
    here.model.add([function_call("image_generation_2", {"prompt": "red"})], "Done.")
    ledger = await here.ask(tools=[mine, TOOL], tool_choice={"type": "image_generation"})
    assert len(calls(ledger.object)) == 1
    assert "image_generation_2" in json.dumps(here.model.requests[0].body["tool_choice"])
    here.model.add([function_call("image_generation_2", {"prompt": "blue"})], "Done.")
    tools = [mine, {**TOOL, "action": "edit"}]
    again = await here.ask(tools=tools, input="more", previous_response_id=ledger.id)
    assert colours(calls(again.object)[0]) == ("blue", "red")
    here.model.add([function_call("image_generation_2", {"text": "red"})], "Sorry.")
    wrong = await here.ask(tools=[mine, TOOL])
    assert calls(wrong.object) == [] and "prompt" in here.model.last_request.outputs[0].text


async def test_without_a_backend_the_call_fails_once_with_the_setting(tmp_path: Path, wire: Wire) -> None:
    store = await Store.open(tmp_path / "gateway.db")
    tool = ImageGeneration(None, store, missing=str(ImageGenerationSettings().missing({})))
    with ScriptedModel([[draw("red")], "I cannot."]) as model:
        async with served(tmp_path, model, wire, hosted=(tool,), store=store) as here:
            ledger = await here.ask(tools=[TOOL])
        (item,) = calls(ledger.object)
        assert item["status"] == "failed" and "image_generation.base_url is missing" in item["error"]["message"]
        assert ledger.not_run == ("image_generation",) and ledger.object["status"] == "completed"
        assert "image_generation.base_url is missing" in model.last_request.outputs[0].text
        assert "image_generation" not in model.last_request.tool_names


async def test_an_upstream_that_refuses_an_image_goes_on_without_it(here: Served, paints: Painter) -> None:  # noqa: F811
    def play(request: Request) -> Simple:
        if b"base64," in request.raw:
            return http_error(413, "the image exceeds the maximum size")
        goal, colour = (2, "blue") if b"more" in request.raw else (1, "red")
        return "Done." if request.raw.count(b"The image is made") == goal else draw(colour)

    here.model.add(*[play] * 7)
    edits = {**TOOL, "action": "edit"}
    first = await here.ask(tools=[TOOL])
    second = await here.ask(tools=[edits], input="more", previous_response_id=first.id)
    assert [one.object["status"] for one in (first, second)] == ["completed"] * 2
    assert [colours(calls(one.object)[0])[0] for one in (first, second)] == ["red", "blue"]
    assert paints.asked[1].files["image"] == b64decode(calls(first.object)[0]["result"])
    assert "left out because the server refused it" in here.model.last_request.raw.decode()
    third = await here.ask(tools=[TOOL], input=picture(drawn("white")))
    assert third.object["status"] == "failed"
