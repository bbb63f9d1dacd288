"""The official Python client, asked of a gateway."""

import asyncio
import importlib
import io
import json
import sys
import time
from typing import Any

from pydantic import BaseModel, TypeAdapter

from tests.compat.clients.points import show

SDK: Any = importlib.import_module("openai")
TYPES: Any = importlib.import_module("openai.types.responses")
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
ENDED = ("completed", "failed", "incomplete", "cancelled")


class Weather(BaseModel):
    """A typed answer."""

    city: str
    degrees: int


class GetWeather(BaseModel):
    """A tool by its model."""

    city: str


def create(client: Any) -> None:
    answer = client.responses.create(model="m", input="say hello")
    assert answer.output_text == "You said: hello", answer
    again = client.responses.create(model="m", input="say more", previous_response_id=answer.id)
    assert again.previous_response_id == answer.id
    assert client.responses.retrieve(answer.id).output == answer.output


def whole_schema(client: Any) -> None:
    raw = client.responses.with_raw_response.create(model="m", input="use get_weather", tools=[WEATHER])
    TYPES.Response.model_validate_json(raw.content, strict=False)
    assert raw.headers["x-request-id"]


def function_call(client: Any) -> None:
    first = client.responses.create(model="m", input="use get_weather", tools=[WEATHER])
    call = next(item for item in first.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "Rome"}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = client.responses.create(model="m", input=[output], tools=[WEATHER], previous_response_id=first.id)
    assert second.output_text == "Done: sunny", second
    sent = [{"role": "user", "content": "use get_weather"}, *(item.model_dump() for item in first.output), output]
    third = client.responses.create(model="m", input=sent, tools=[WEATHER], store=False)
    assert third.output_text == "Done: sunny", third


def stream_accumulator(client: Any) -> None:
    with client.responses.stream(model="m", input="use get_weather", tools=[WEATHER]) as stream:
        told = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in told] == list(range(len(told)))
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"], final.output
    done = [event.item.id for event in told if event.type == "response.output_item.done"]
    stored = client.responses.retrieve(final.id)
    assert done == [item.id for item in final.output] == [item.id for item in stored.output]


NATIVE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "get_weather": (WEATHER, {"output": "sunny"}),
    "shout": ({"type": "custom", "name": "shout"}, {"output": "HELLO"}),
    "shell": (
        {"type": "shell", "environment": {"type": "local"}},
        {"output": [{"stdout": "one", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    ),
    "local_shell": ({"type": "local_shell"}, {"output": "hi"}),
    "apply_patch": ({"type": "apply_patch"}, {"status": "completed", "output": "patched"}),
    "computer": (
        {"type": "computer"},
        {"output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="}},
    ),
}
"""Tools that the client runs, and what it answers a call of each."""


def types_of_each_tool(client: Any) -> None:
    """Events, responses and listed items are those of the client's types, whole."""
    event_type: Any = TypeAdapter(TYPES.ResponseStreamEvent)
    pages = importlib.import_module("openai.types.responses.response_item_list")
    talks = importlib.import_module("openai.types.conversations.conversation_item")
    for name, (tool, answer) in NATIVE.items():
        talk = client.conversations.create()
        asked = {"model": "m", "tools": [tool], "conversation": talk.id, "stream": True}
        with client.responses.with_streaming_response.create(**asked, input=f"use {name}") as stream:
            lines = [line[6:] for line in stream.iter_lines() if line.startswith("data: {")]
        told = [event_type.validate_json(line) for line in lines]
        call = told[-1].response.output[-1]
        kind = f"{call.type}_output"
        output = {"type": kind, "call_id": call.call_id, **answer}
        output |= {"id": call.call_id} if name == "local_shell" else {}
        final = client.responses.create(**asked | {"stream": False}, input=[output])
        assert final.output_text.startswith("Done: "), (name, final)
        raw = client.responses.input_items.with_raw_response.list(final.id)
        pages.ResponseItemList.model_validate_json(raw.content)
        raw = client.conversations.items.with_raw_response.list(talk.id, order="asc")
        items = [TypeAdapter(talks.ConversationItem).validate_python(item) for item in json.loads(raw.content)["data"]]
        kinds = [item.type for item in items]
        assert kinds == ["message", "reasoning", "message", call.type, kind, "message"], kinds


def parse(client: Any) -> None:
    answer = client.responses.parse(model="m", input="say it", text_format=Weather)
    assert answer.output_parsed == Weather(city="Rome", degrees=21)
    with client.responses.stream(model="m", input="say it", text_format=Weather) as stream:
        assert stream.until_done().get_final_response().output_parsed == Weather(city="Rome", degrees=21)


def parse_function_tool(client: Any) -> None:
    tool = SDK.pydantic_function_tool(GetWeather, name="get_weather")
    answer = client.responses.parse(model="m", input="use get_weather", tools=[tool])
    call = next(item for item in answer.output if item.type == "function_call")
    assert call.parsed_arguments == GetWeather(city="Rome"), call


def retrieve_a_stream_after_a_number(client: Any) -> None:
    seen = []
    with client.responses.create(model="m", input="say hello", background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    response_id, after = seen[0].response.id, seen[-1].sequence_number
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=after))
    assert [event.sequence_number for event in rest] == list(range(after + 1, after + 1 + len(rest)))
    assert rest[-1].type == "response.completed"
    with client.responses.stream(response_id=response_id) as stream:
        assert stream.get_final_response().output_text == "You said: hello"


def background_poll(client: Any) -> None:
    answer = client.responses.create(model="m", input="say hello", background=True)
    assert answer.status in ("queued", "in_progress", "completed"), answer.status
    while answer.status not in ENDED:
        time.sleep(0.05)
        answer = client.responses.retrieve(answer.id)
    assert answer.output_text == "You said: hello"


def cancel(client: Any) -> None:
    answer = client.responses.create(model="m", input="hold", background=True)
    assert client.responses.cancel(answer.id).status == "cancelled"
    assert client.responses.retrieve(answer.id).status == "cancelled"


def compact(client: Any) -> None:
    items = [{"role": "user", "content": "say first"}, {"role": "assistant", "content": "You said: first"}]
    done = client.responses.compact(model="m", input=items)
    assert done.object == "response.compaction" and done.output[-1].type == "compaction", done
    sent = [*(item.model_dump(exclude_none=True) for item in done.output), {"role": "user", "content": "say next"}]
    assert client.responses.create(model="m", input=sent).output_text == "You said: next"


def input_tokens(client: Any) -> None:
    counted = client.responses.input_tokens.count(model="m", input="say hello", tools=[WEATHER])
    assert counted.object == "response.input_tokens" and counted.input_tokens > 0


def input_items_and_delete(client: Any) -> None:
    answer = client.responses.create(model="m", input=[{"role": "user", "content": f"say {n}"} for n in range(3)])
    listed = list(client.responses.input_items.list(answer.id, limit=2, order="asc"))
    assert [item.content[0].text for item in listed] == ["say 0", "say 1", "say 2"], listed
    client.responses.delete(answer.id)
    _refused(SDK.NotFoundError, lambda: client.responses.retrieve(answer.id))


def conversations(client: Any) -> None:
    talk = client.conversations.create(metadata={"a": "b"}, items=[{"role": "user", "content": "say old"}])
    answer = client.responses.create(model="m", input="say new", conversation=talk.id)
    assert answer.conversation.id == talk.id
    listed = list(client.conversations.items.list(talk.id, order="asc"))
    assert [item.role for item in listed] == ["user", "user", "assistant"], listed
    assert client.conversations.items.retrieve(listed[0].id, conversation_id=talk.id).id == listed[0].id
    client.conversations.items.create(talk.id, items=[{"role": "user", "content": "say more"}])
    client.conversations.items.delete(listed[0].id, conversation_id=talk.id)
    assert len(list(client.conversations.items.list(talk.id))) == 3
    assert client.conversations.update(talk.id, metadata={"c": "d"}).metadata == {"c": "d"}
    assert client.conversations.delete(talk.id).deleted
    _refused(SDK.NotFoundError, lambda: client.conversations.retrieve(talk.id))


def files(client: Any) -> None:
    made = client.files.create(file=("a.txt", b"of the file", "text/plain"), purpose="user_data")
    assert client.files.retrieve(made.id).bytes == 11
    assert client.files.content(made.id).read() == b"of the file"
    assert made.id in [file.id for file in client.files.list(purpose="user_data")]
    content = [{"type": "input_text", "text": "say hi"}, {"type": "input_file", "file_id": made.id}]
    client.responses.create(model="m", input=[{"role": "user", "content": content}])
    assert client.files.delete(made.id).deleted
    whole = client.uploads.upload_file_chunked(
        file=io.BytesIO(b"x" * 3000).getvalue(), filename="b.txt", bytes=3000, mime_type="text/plain",
        purpose="user_data", part_size=1000,
    )  # fmt: skip
    assert whole.status == "completed" and client.files.content(whole.file.id).read() == b"x" * 3000


def vector_stores(client: Any) -> None:
    stores = client.vector_stores
    store = stores.create(name="fruit", expires_after={"anchor": "last_active_at", "days": 1})
    files = [("plums.txt", b"Plums ripen in August."), ("bridge.txt", b"The bridge has seven arches.")]
    batch = stores.file_batches.upload_and_poll(store.id, files=files)
    assert batch.file_counts.completed == 2, batch
    found = stores.search(store.id, query="arches of the bridge", max_num_results=1)
    (hit,) = found.data
    assert hit.filename == "bridge.txt" and stores.files.content(hit.file_id, vector_store_id=store.id).data
    assert len(list(stores.files.list(store.id, limit=1))) == 2
    stores.files.delete(hit.file_id, vector_store_id=store.id)
    assert stores.retrieve(store.id).file_counts.total == 1 and store.id in [one.id for one in stores.list()]
    assert stores.delete(store.id).deleted
    _refused(SDK.NotFoundError, lambda: stores.retrieve(store.id))


def models(client: Any) -> None:
    names = [model.id for model in client.models.list()]
    assert names and client.models.retrieve(names[0]).id == names[0]


def errors(client: Any) -> None:
    def continues() -> None:
        client.responses.create(model="m", input="say x", previous_response_id="resp_none")

    refused = _refused(SDK.APIStatusError, continues)
    assert refused.code == "previous_response_not_found", refused
    wrong = _refused(SDK.BadRequestError, lambda: client.responses.create(model="m", input="x", temperature=9))
    assert wrong.param == "temperature", wrong


def connect(client: Any) -> None:
    with client.responses.connect() as connection:
        first = _over(connection, input="use get_weather", tools=[WEATHER], store=False)
        call = next(item for item in first.output if item.type == "function_call")
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        second = _over(connection, input=[output], previous_response_id=first.id, store=False)
        assert second.output_text == "Done: sunny", second
        warm = _over(connection, input="say warm", generate=False)
        assert _over(connection, input=[], previous_response_id=warm.id).output_text == "You said: warm"


async def connect_async(client: Any) -> None:
    given = SDK.AsyncOpenAI(base_url=str(client.base_url), api_key="unused", max_retries=0)
    async with given, given.responses.connect() as connection:
        await connection.response.create(model="m", input="say hello")
        async for event in connection:
            if event.type == "response.completed":
                assert event.response.output[-1].content[0].text == "You said: hello"
                return


def _over(connection: Any, **fields: Any) -> Any:
    connection.response.create(model="m", **fields)
    while True:
        event = connection.recv()
        assert event.type not in ("error", "response.failed"), event
        if event.type == "response.completed":
            return event.response


def _refused(kind: Any, ask: Any) -> Any:
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError("it was not refused")


POINTS = (
    create, whole_schema, function_call, stream_accumulator, types_of_each_tool, parse, parse_function_tool,
    retrieve_a_stream_after_a_number, background_poll, cancel, compact, input_tokens, input_items_and_delete,
    conversations, files, vector_stores, models, errors, connect, connect_async,
)  # fmt: skip

if __name__ == "__main__":
    client = SDK.OpenAI(base_url=sys.argv[1], api_key="unused", max_retries=0)
    asyncio.run(show(POINTS, client))
