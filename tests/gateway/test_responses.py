"""The routes of responses and models, asked by the openai SDK and by plain requests."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openresponses_types import ResponseResource

from ferrule.testing import ScriptedModel
from tests.gateway.served import Served, events_in

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def test_a_response_has_every_field_of_the_strict_schema(gateway: Served) -> None:
    answer = gateway.ask("POST", "/responses", {"model": "m", "input": "hi"})
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    whole = ResponseResource.model_validate(answer.json)
    assert whole.status == "completed" and answer.json["output"][0]["content"][0]["text"] == "You said: hi"


def test_a_stream_is_what_the_sdk_takes_and_what_is_stored(client: OpenAI, gateway: Served) -> None:
    with client.responses.stream(model="m", input="stream this", tools=[]) as stream:
        kinds = [event.type for event in stream]
        last = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert last.output_text == "You said: stream this"
    stored = gateway.ask("GET", f"/responses/{last.id}").json
    assert [item["id"] for item in stored["output"]] == [item["id"] for item in last.to_dict()["output"]]  # type: ignore[attr-defined]


def test_the_lines_of_a_stream(gateway: Served) -> None:
    answer = gateway.ask("POST", "/responses", {"model": "m", "input": "hi", "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, last = events_in(answer.body)
    assert last == ("", "[DONE]")
    assert all(name == data["type"] for name, data in events if isinstance(data, dict))
    assert [data["sequence_number"] for _, data in events if isinstance(data, dict)] == list(range(len(events)))


def test_a_conversation_goes_on_over_a_call(client: OpenAI) -> None:
    first = client.responses.create(model="m", input="Weather?", tools=[WEATHER])  # type: ignore[list-item]
    call = first.output[0]
    assert call.type == "function_call"
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = client.responses.create(
        model="m",
        previous_response_id=first.id,
        input=[output],
        tools=[WEATHER],  # type: ignore[list-item]
    )
    assert second.output_text.startswith("You said")
    items = client.responses.input_items.list(second.id)
    assert [item.type for item in items] == ["function_call_output"]


def test_input_items_come_in_pages(client: OpenAI, gateway: Served) -> None:
    texts = [{"role": "user", "content": [{"type": "input_text", "text": f"message {number}"}]} for number in range(5)]
    made = client.responses.create(model="m", input=texts)  # type: ignore[arg-type]
    path = f"/responses/{made.id}/input_items"
    first = gateway.ask("GET", f"{path}?limit=2&order=asc").json
    assert (first["object"], first["has_more"], len(first["data"])) == ("list", True, 2)
    assert [first["first_id"], first["last_id"]] == [item["id"] for item in first["data"]]
    rest = gateway.ask("GET", f"{path}?limit=9&order=asc&after={first['last_id']}").json
    assert not rest["has_more"] and [item["content"][0]["text"] for item in rest["data"]] == [
        f"message {number}" for number in (2, 3, 4)
    ]
    assert gateway.ask("GET", f"{path}?limit=1").json["data"] == rest["data"][-1:]


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=no", "after")],
)
def test_a_wrong_page_names_the_parameter(client: OpenAI, gateway: Served, query: str, param: str) -> None:
    made = client.responses.create(model="m", input="hi")
    answer = gateway.ask("GET", f"/responses/{made.id}/input_items?{query}")
    assert answer.status == 400 and answer.error["param"] == param


def test_what_is_deleted_is_gone(client: OpenAI, gateway: Served) -> None:
    made = client.responses.create(model="m", input="hi")
    assert gateway.ask("DELETE", f"/responses/{made.id}").json == {
        "id": made.id, "object": "response", "deleted": True,
    }  # fmt: skip
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    assert gateway.ask("DELETE", f"/responses/{made.id}").status == 404


def test_a_background_response_goes_on_is_followed_and_cancelled(client: OpenAI, gateway: Served) -> None:
    made = client.responses.create(model="m", input="hold", background=True)
    assert made.status in ("queued", "in_progress")
    seen = []
    for event in client.responses.retrieve(made.id, stream=True):
        seen.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            break
    assert seen == list(range(len(seen)))
    cancelled = client.responses.cancel(made.id)
    assert cancelled.status == "cancelled"
    assert client.responses.cancel(made.id).to_dict() == cancelled.to_dict()
    again = gateway.ask("GET", f"/responses/{made.id}?stream=true&starting_after={seen[-2]}")
    numbers = [data["sequence_number"] for _, data in events_in(again.body) if isinstance(data, dict)]
    assert numbers[0] == seen[-1] and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_foreground_response_is_neither_cancelled_nor_followed(client: OpenAI, gateway: Served) -> None:
    made = client.responses.create(model="m", input="hi")
    assert gateway.ask("POST", f"/responses/{made.id}/cancel").status == 400
    assert gateway.ask("GET", f"/responses/{made.id}?stream=true").error["param"] == "stream"


def test_tools_that_nobody_runs_are_named_in_the_head(gateway: Served) -> None:
    body = {"model": "m", "input": "hi", "tools": [{"type": "time_machine"}, {"type": "oracle", "depth": 3}]}
    for stream in (False, True):
        answer = gateway.ask("POST", "/responses", body | {"stream": stream})
        assert answer.status == 200 and answer.headers["x-ferrule-not-run"] == "time_machine, oracle"
    assert "x-ferrule-not-run" not in gateway.ask("POST", "/responses", {"model": "m", "input": "hi"}).headers


def test_an_error_of_the_model_before_its_answer_is_an_http_error(gateway: Served) -> None:
    answer = gateway.ask("POST", "/responses", {"model": "m", "input": "limit"})
    assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
    assert float(answer.headers["retry-after"]) == 7000
    streamed = events_in(gateway.ask("POST", "/responses", {"model": "m", "input": "limit", "stream": True}).body)
    assert streamed[-2][0] == "response.failed" and streamed[-1][1] == "[DONE]"


def test_an_error_of_the_model_in_its_answer_is_a_failed_response(gateway: Served) -> None:
    made = gateway.create(input="break")
    assert made["status"] == "failed" and "It broke." in made["error"]["message"]
    assert made["output"][0]["content"][0]["text"] == "Half of it"
    assert gateway.ask("GET", f"/responses/{made['id']}").json == made


def test_compaction_and_token_counts(client: OpenAI) -> None:
    compacted = client.responses.compact(model="m", input="A long story.")
    assert compacted.output[-1].type == "compaction"
    counted = client.responses.input_tokens.count(model="m", input="A long story.")
    assert counted.input_tokens > 0


def test_the_models_of_the_upstream(client: OpenAI, gateway: Served) -> None:
    assert [model.id for model in client.models.list()] == ["scripted-model"]
    assert client.models.retrieve("scripted-model").object == "model"
    assert gateway.ask("GET", "/models/org/other").status == 404


def test_a_client_that_leaves_ends_its_response(gateway: Served, model: ScriptedModel) -> None:
    def is_left() -> bool:
        return len(model.requests) > before and model.requests[-1].aborted

    for body in ({"stream": True}, {}):
        before = len(model.requests)
        data = json.dumps({"model": "m", "input": "hold"} | body).encode()
        request = urllib.request.Request(gateway.url + "/responses", data, {"content-type": "application/json"})
        if body:
            urllib.request.urlopen(request, timeout=30).close()
        else:
            with pytest.raises(TimeoutError):
                urllib.request.urlopen(request, timeout=1)
        model.wait_for(is_left)
