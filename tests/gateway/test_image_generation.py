"""Images through a real gateway, for the SDK, over a loopback image server."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response
from openai.types.responses.response_output_item import ImageGenerationCall

from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.gateway.served import Served, new_place, serving
from tests.image_generation.conftest import paints, server  # noqa: F401 - fixtures
from tests.image_generation.painter import Painter, Reply, colour_at, drawn


def draws(request: Request) -> Simple:
    """Draw what the user says, once."""
    said = request.user_text
    return "Here it is." if request.outputs else function_call("image_generation", {"prompt": said})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, server: Painter) -> Iterator[Served]:  # noqa: F811
    """A gateway whose model draws."""
    place = new_place(tmp_path_factory.mktemp("images"))
    place.home.mkdir(parents=True)
    Path(place.home, "config.toml").write_text(
        f'[image_generation]\nbase_url = "{server.base_url}"\n[image_generation.models]\n"gpt-image-1.5" = "flux"\n'
    )
    with ScriptedModel(draws) as model, serving(place, model.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def image_in(reply: Response) -> ImageGenerationCall:
    call, said = reply.output
    assert isinstance(call, ImageGenerationCall) and said.type == "message" and reply.output_text == "Here it is."
    return call


def colour(call: ImageGenerationCall, x: int = 2) -> tuple[int, ...]:
    return colour_at(b64decode(call.result or ""), x, 5)


def test_the_sdk_gets_images_streamed_and_whole(client: OpenAI, paints: Painter) -> None:  # noqa: F811
    tool: Any = {"type": "image_generation", "model": "gpt-image-1.5", "output_format": "webp"}
    whole = image_in(client.responses.create(model="m", input="a red wall", tools=[tool]))
    assert (whole.status, whole.action, whole.output_format) == ("completed", "generate", "webp")
    assert colour(whole)[0] == 255
    streaming: Any = {**tool, "partial_images": 3}
    with client.responses.stream(model="m", input="a red wall", tools=[streaming]) as stream:
        partials = [event for event in stream if event.type == "response.image_generation_call.partial_image"]
        final = image_in(stream.get_final_response())
    assert [event.partial_image_index for event in partials] == [0, 1, 2] and colour(final)[0] == 255
    assert {event.item_id for event in partials} == {final.id} and partials[0].output_format == "webp"
    assert [asked.fields["model"] for asked in paints.asked] == ["flux", "flux"]


def test_an_edit_with_a_mask_by_file_and_by_data_url(client: OpenAI, paints: Painter) -> None:  # noqa: F811
    photo, mask = drawn("white"), drawn("black")
    stored = client.files.create(file=("mask.png", mask), purpose="vision")
    shown = client.files.create(file=("photo.png", photo), purpose="vision")
    for given in ({"file_id": stored.id}, {"image_url": f"data:image/png;base64,{b64encode(mask).decode()}"}):
        tool: Any = {"type": "image_generation", "action": "edit", "input_image_mask": given}
        content: Any = [{"type": "input_text", "text": "blue"}, {"type": "input_image", "file_id": shown.id}]
        reply = client.responses.create(model="m", input=[{"role": "user", "content": content}], tools=[tool])
        call = image_in(reply)
        assert (call.action, colour(call), colour(call, 60)) == ("edit", (0, 0, 255), (255, 255, 255))
        assert paints.asked[-1].files == {"image": photo, "mask": mask}
    stored_reply = client.responses.retrieve(reply.id)
    assert image_in(stored_reply).result == call.result


def test_bad_requests_and_backends(client: OpenAI, gateway: Served, paints: Painter) -> None:  # noqa: F811
    bad: Any = {"type": "image_generation", "background": "transparent", "output_format": "jpeg"}
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="m", input="x", tools=[bad])
    assert raised.value.param == "tools[0].background" and paints.asked == []
    paints.answer = lambda asked: Reply([b"down: secret"], status=500)
    reply = client.responses.create(model="m", input="x", tools=[{"type": "image_generation"}])
    call = image_in(reply)
    assert (reply.status, call.status, call.result) == ("completed", "failed", None)
    assert call.error is not None and call.error.message == "The image server answered with the status 500."
    assert "secret" not in reply.model_dump_json()
