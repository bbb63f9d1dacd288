"""The Responses API over a WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ferrule.testing import ScriptedModel
from tests.gateway.served import Json, Served

ENDS = ("response.completed", "response.failed", "response.incomplete", "error")


class Line:
    """A connection that speaks JSON."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def create(self, **body: Any) -> Json:
        """Create a response; return its last event."""
        await self.send(**{"type": "response.create", "model": "m", "input": "hi", "store": False} | body)
        return (await self.events())[-1]

    async def events(self, until: tuple[str, ...] = ENDS) -> list[Json]:
        """The events up to one of these types."""
        found: list[Json] = []
        while not found or found[-1]["type"] not in until:
            found.append(json.loads(await asyncio.wait_for(self.connection.recv(), 30)))
        return found


@asynccontextmanager
async def line(gateway: Served, **headers: str) -> AsyncIterator[Line]:
    url = gateway.url.replace("http", "ws") + "/responses"
    async with connect(url, additional_headers=headers) as connection:
        yield Line(connection)


async def test_responses_follow_each_other_and_go_on_without_being_stored(gateway: Served) -> None:
    async with line(gateway) as one:
        first = await one.create(input="one")
        assert first["type"] == "response.completed"
        second = await one.create(input="two", previous_response_id=first["response"]["id"])
        assert second["response"]["previous_response_id"] == first["response"]["id"]
    assert gateway.ask("GET", f"/responses/{first['response']['id']}").status == 404
    async with line(gateway) as other:
        lost = await other.create(previous_response_id=first["response"]["id"])
        assert lost["type"] == "error" and lost["error"]["code"] == "previous_response_not_found"
        assert lost["status"] == 404 and lost["sequence_number"] == 0
        assert (await other.create())["type"] == "response.completed"


async def test_a_continuation_that_fails_forgets_what_it_continued(gateway: Served) -> None:
    async with line(gateway) as one:
        first = (await one.create())["response"]["id"]
        orphan = {"type": "function_call_output", "call_id": "call_none", "output": "x"}
        failed = await one.create(previous_response_id=first, input=[orphan])
        assert failed["type"] == "error" and failed["status"] == 400
        again = await one.create(previous_response_id=first)
        assert again["error"]["code"] == "previous_response_not_found"


async def test_a_second_response_at_once_is_refused_and_the_first_goes_on(
    gateway: Served, model: ScriptedModel
) -> None:
    async with line(gateway) as one:
        await one.send(type="response.create", model="m", input="hold")
        await one.events(("response.output_text.delta",))
        await one.send(type="response.create", model="m", input="hi")
        assert (await one.events(("error",)))[-1]["error"]["code"] == "response_in_progress"
    await asyncio.to_thread(model.wait_for, lambda: model.requests[-1].aborted)


async def test_a_message_that_is_none_is_an_error_and_the_connection_lives(gateway: Served) -> None:
    async with line(gateway) as one:
        for message in ("{", "[]", '"x"', '{"type": "response.sing"}', "{}", b'{"type": 3}'):
            await one.connection.send(message)
            (error,) = await one.events()
            assert error["type"] == "error" and error["status"] == 400
            assert set(error["error"]) == {"message", "type", "code", "param"}
        wrong = await one.create(temperature="hot")
        assert wrong["error"]["param"] == "temperature"
        assert (await one.create())["type"] == "response.completed"


async def test_a_warm_up_has_an_id_and_can_be_continued(gateway: Served, model: ScriptedModel) -> None:
    async with line(gateway) as one:
        asked = len(model.requests)
        warm = await one.create(input="Remember seven.", generate=False)
        assert warm["type"] == "response.completed" and warm["response"]["id"] and warm["response"]["output"] == []
        assert len(model.requests) == asked
        last = await one.create(input="And eight.", previous_response_id=warm["response"]["id"])
        assert last["type"] == "response.completed"
        assert "Remember seven." in model.requests[-1].user_text


async def test_a_message_that_is_too_large_closes_the_connection(gateway: Served) -> None:
    async with line(gateway) as one:
        with suppress(ConnectionClosed):
            await one.connection.send("x" * (33 << 20))
        with pytest.raises(ConnectionClosed) as closed:
            await one.events()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"host": "evil.example"}])
async def test_pages_of_others_do_not_connect(gateway: Served, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with line(gateway, **headers):
            pass
    answer = refused.value.response
    assert answer.status_code == 403
    assert json.loads(answer.body)["error"]["code"] == "host_not_allowed"


@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")
def test_the_sdk_connects(gateway: Served) -> None:
    with OpenAI(base_url=gateway.url, api_key="x") as client, client.responses.connect() as connection:
        for text in ("one", "two"):
            connection.response.create(model="m", input=text, store=False)
            kinds = []
            for event in connection:
                kinds.append(event.type)
                if event.type == "response.completed":
                    assert event.response.output_text == f"You said: {text}"
                    break
            assert kinds[0] == "response.created"


async def test_many_connections_at_once(gateway: Served) -> None:
    async def one(number: int) -> str:
        async with line(gateway) as connected:
            last = await connected.create(input=f"number {number}")
            text: str = last["response"]["output"][0]["content"][0]["text"]
            return text

    said = await asyncio.gather(*(one(number) for number in range(20)))
    assert said == [f"You said: number {number}" for number in range(20)]


async def test_the_async_sdk_connects(gateway: Served) -> None:
    async with AsyncOpenAI(base_url=gateway.url, api_key="x") as client, client.responses.connect() as connection:
        await connection.response.create(model="m", input="one")
        async for event in connection:
            if event.type == "response.completed":
                assert event.response.output_text == "You said: one"
                break
