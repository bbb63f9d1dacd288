"""LangChain's ChatOpenAI over the Responses API, asked of a gateway."""

import asyncio
import importlib
import sys
from typing import Any

from pydantic import BaseModel

from tests.compat.clients.points import show

CHAT: Any = importlib.import_module("langchain_openai")
MESSAGES: Any = importlib.import_module("langchain_core.messages")


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


def shout(text: str) -> str:
    """Shout a text."""
    return text.upper()


def invoke(model: Any) -> None:
    answer = model.invoke("say hello")
    assert answer.text == "You said: hello", answer
    assert answer.response_metadata["id"].startswith("resp_"), answer.response_metadata
    assert answer.usage_metadata["total_tokens"] >= 0


def stream(model: Any) -> None:
    chunks = list(model.stream("say hello"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert len(chunks) > 1 and whole.text == "You said: hello", whole


async def stream_async(model: Any) -> None:
    said = [chunk.text async for chunk in model.astream("say hello")]
    assert "".join(said) == "You said: hello", said


def tools(model: Any) -> None:
    bound = model.bind_tools([get_weather])
    for ask in (bound.invoke, lambda messages: _whole(bound.stream(messages))):
        messages = [MESSAGES.HumanMessage("use get_weather")]
        answer = ask(messages)
        (call,) = answer.tool_calls
        assert call["name"] == "get_weather" and call["args"] == {"city": "Rome"}, call
        output = MESSAGES.ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])
        assert ask([*messages, answer, output]).text == "Done: sunny in Rome"


def forced_tool(model: Any) -> None:
    answer = model.bind_tools([get_weather], tool_choice="get_weather", strict=True).invoke("use get_weather")
    assert answer.tool_calls[0]["name"] == "get_weather", answer


def structured_output(model: Any) -> None:
    assert model.with_structured_output(Weather).invoke("say it") == Weather(city="Rome", degrees=21)
    last = list(model.with_structured_output(Weather, method="json_schema", strict=True).stream("say it"))[-1]
    assert last == Weather(city="Rome", degrees=21), last


def custom_tool(model: Any) -> None:
    bound = model.bind_tools([CHAT.custom_tool(shout)])
    messages = [MESSAGES.HumanMessage("use shout")]
    answer = bound.invoke(messages)
    (call,) = answer.tool_calls
    assert "hello" in call["args"].values(), answer
    output = CHAT.custom_tool(shout).invoke(call)
    assert bound.invoke([*messages, answer, output]).text == "Done: HELLO"


def previous_response_id(model: Any) -> None:
    first = model.invoke("say one")
    second = model.invoke("say two", previous_response_id=first.response_metadata["id"])
    assert second.text == "You said: two", second
    chained = CHAT.ChatOpenAI(
        model="m", base_url=model.openai_api_base, api_key="unused", max_retries=0, use_previous_response_id=True
    )
    third = chained.invoke([MESSAGES.HumanMessage("say one"), first, MESSAGES.HumanMessage("say three")])
    assert third.text == "You said: three", third


def conversation_without_storage(model: Any) -> None:
    unkept = CHAT.ChatOpenAI(
        model="m", base_url=model.openai_api_base, api_key="unused", max_retries=0, store=False,
        use_responses_api=True, include=["reasoning.encrypted_content"], output_version="responses/v1",
    )  # fmt: skip
    bound = unkept.bind_tools([get_weather])
    messages = [MESSAGES.HumanMessage("use get_weather")]
    answer = bound.invoke(messages)
    output = MESSAGES.ToolMessage("sunny", tool_call_id=answer.tool_calls[0]["id"])
    assert bound.invoke([*messages, answer, output]).text == "Done: sunny"


def _whole(chunks: Any) -> Any:
    whole = None
    for chunk in chunks:
        whole = chunk if whole is None else whole + chunk
    return whole


POINTS = (
    invoke, stream, stream_async, tools, forced_tool, structured_output, custom_tool, previous_response_id,
    conversation_without_storage,
)  # fmt: skip

if __name__ == "__main__":
    model = CHAT.ChatOpenAI(model="m", base_url=sys.argv[1], api_key="unused", max_retries=0, use_responses_api=True)
    asyncio.run(show(POINTS, model))
