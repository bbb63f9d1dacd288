"""Images that the server makes: their parameters, their items, and their events."""

from base64 import b64decode

from ferrule.conformance.checks import check
from ferrule.conformance.failures import Skipped, expect, expect_equal
from ferrule.conformance.groups.containers import call_of
from ferrule.conformance.server import SHORT, Json, Server
from ferrule.images import read_header

TOOL: Json = {"type": "image_generation"}
EVERY: Json = {
    **TOOL,
    "action": "generate",
    "size": "1024x1024",
    "quality": "low",
    "background": "transparent",
    "output_format": "webp",
    "output_compression": 80,
    "partial_images": 3,
    "moderation": "low",
}
BAD: tuple[tuple[Json, str], ...] = (
    ({"background": "transparent", "output_format": "jpeg"}, ""),
    ({"partial_images": 4}, "partial_images"),
    ({"output_format": "bmp"}, "output_format"),
    ({"quality": "best"}, "quality"),
    ({"action": "paint"}, "action"),
)
STAGES = ("in_progress", "generating", "completed")


def made(response: Json) -> Json:
    """Return the image of a response, if the server makes any."""
    calls: list[Json] = [item for item in response["output"] if item.get("type") == "image_generation_call"]
    if not calls:
        raise Skipped("the server runs no image_generation")
    return calls[0]


@check
def parameters(server: Server) -> None:
    """The tool is taken with its parameters, and echoed."""
    response = server.create(input=SHORT, tools=[EVERY], tool_choice="none")
    expect_equal(response["tools"], [EVERY], "the echoed tool")


@check
def bad_parameters(server: Server) -> None:
    """A wrong parameter is a 400 that names the tool."""
    for wrong, param in BAD:
        answer = server.ask(input=SHORT, tools=[{**TOOL, **wrong}])
        expect_equal(answer.status, 400, f"the status for {wrong}")
        named = str(answer.error.get("param"))
        expect(named.startswith(f"tools[0].{param}"), f"the error names {named!r}, not tools[0].{param}")


@check
def call(server: Server) -> None:
    """An image is an item with base64 or an error, and its events come in order."""
    stream = server.stream(**call_of(TOOL, {"prompt": "a red square"}))
    item = made(stream.final)
    expect(item["status"] in ("completed", "failed"), f"the status is {item['status']!r}")
    told = [event.type for event in stream.events if event.data.get("item_id") == item["id"]]
    stages = STAGES if item["status"] == "completed" else STAGES[:-1]
    expect_equal(told, [f"response.image_generation_call.{stage}" for stage in stages], "the events")
    expect_equal(stream.final["status"], "completed", "the status of the response")
    if item["status"] == "completed":
        expect(read_header(b64decode(item["result"] or "")) is not None, "the result is no image")
    else:
        expect(item.get("result") is None, "a failed call has a result")


@check
def sent_back(server: Server) -> None:
    """The item of an image can be sent back, whole and by its id alone."""
    response = server.create(**call_of(TOOL, {"prompt": "a red square"}))
    item = made(response)
    for given in (item, {"type": item["type"], "id": item["id"]}):
        again = server.create(input=[given, {"role": "user", "content": SHORT}], tools=[TOOL], tool_choice="none")
        expect_equal(again["status"], "completed", "the status")
