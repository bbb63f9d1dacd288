"""Remote MCP servers by the SDK, against the real server."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, BaseModel, OpenAI

from ferrule.hosted.network import Network
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import GatewayNetwork
from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.gateway.served import Served, new_place, serving
from tests.hosted.remote import HOST, SECRET, SERVER, Remote, remote

pytest.importorskip("mcp")


def does(request: Request) -> Simple:
    """Call the server's tool for each question, looking for it where it is not listed, and tell what came out."""
    if "tool_search" in request.tool_names and not request.outputs:
        return function_call("tool_search", {"query": "echo", "limit": 1})
    if request.outputs and request.outputs[-1].text.startswith("["):
        return function_call("mcp__docs__echo", {"text": request.user_text})
    if request.outputs and request.user_text.endswith("echo"):
        return f"It said {request.outputs[-1].text}"
    name = next((name for name in request.tool_names if name.endswith("echo")), None)
    return "No tools." if name is None else function_call(name, {"text": request.user_text})


@pytest.fixture(scope="module")
def server() -> Iterator[Remote]:
    with remote() as found:
        yield found


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(does) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(server: Remote, model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway of its own, which reaches the server by a name."""
    place = new_place(tmp_path_factory.mktemp("mcp"))
    (place.home / "config.toml").parent.mkdir(parents=True, exist_ok=True)
    hosts = "".join(f'"{name}" = "{address}"\n' for name, address in server.hosts.items())
    (place.home / "config.toml").write_text(
        f'[gateway.network]\nallowed_domains = ["{HOST}"]\n[gateway.network.hosts]\n{hosts}'
    )
    with serving(place, model.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def kinds(output: Sequence[BaseModel]) -> list[str]:
    return [item.type for item in output]  # type: ignore[attr-defined]


def test_a_stream_is_what_the_sdk_takes(client: OpenAI, server: Remote) -> None:
    tool = SERVER | {"authorization": SECRET}
    with client.responses.stream(model="m", input="echo", tools=[tool]) as stream:  # type: ignore[list-item]
        events = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds(final.output) == ["mcp_list_tools", "mcp_call", "message"]
    assert final.output_text == "It said ECHO echo"
    call = final.output[1]
    assert call.type == "mcp_call" and (call.output, call.error, call.status) == ("ECHO echo", None, "completed")
    assert {"response.mcp_list_tools.completed", "response.mcp_call.completed"} <= {*events}
    assert server.asked[-1].headers["authorization"] == f"Bearer {SECRET}"


def test_a_search_of_deferred_tools_is_what_the_sdk_takes(client: OpenAI, server: Remote) -> None:
    server.tools += [{"name": f"tool_{number}", "inputSchema": {"type": "object"}} for number in range(300)]
    tools: Any = [{"type": "tool_search"}, SERVER | {"defer_loading": True}]
    create: Any = client.responses.create
    try:
        with client.responses.stream(model="m", input="echo", tools=tools) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_response()
        whole = create(model="m", input="echo", tools=tools)
        more = create(model="m", input="echo", tools=tools, previous_response_id=whole.id)
        given = [{"role": "user", "content": "echo"}, *whole.output, {"role": "user", "content": "echo"}]
        replayed = create(model="m", input=given, tools=tools, store=False)
    finally:
        del server.tools[2:]
    for answer in (final, whole):
        assert kinds(answer.output) == [
            "mcp_list_tools", "tool_search_call", "tool_search_output", "mcp_call", "message",
        ]  # fmt: skip
        assert answer.output_text == "It said ECHO echo"
    call, output = final.output[1:3]
    assert call.type == "tool_search_call" and (call.execution, call.call_id) == ("server", None)
    assert output.type == "tool_search_output" and output.status == "completed"
    (group,) = output.tools
    assert group.type == "namespace" and [tool.name for tool in group.tools] == ["echo"]
    assert events.count("response.output_item.added") == events.count("response.output_item.done") == 5
    assert kinds(more.output) == kinds(replayed.output) == ["message"]


async def test_openai_agents_calls_what_was_found(gateway: Served, model: ScriptedModel) -> None:
    agents = pytest.importorskip("agents")

    @agents.function_tool(defer_loading=True)
    def get_weather(city: str) -> str:
        """Weather of a city."""
        return f"sunny in {city}"

    @agents.function_tool(defer_loading=True)
    def list_orders(customer: str) -> str:
        """All orders of a customer."""
        return f"orders of {customer}"

    steps: list[Any] = []
    for query, name, arguments in (
        ("weather", "get_weather", {"city": "Rome"}),
        ("orders", "crm__list_orders", {"customer": "Ann"}),
        ("echo", "mcp__docs__echo", {"text": "hey"}),
    ):
        steps += [function_call("tool_search", {"query": query, "limit": 1})], [function_call(name, arguments)]
    model.play(*steps, "All done.", when="by agents")
    crm = agents.tool_namespace(name="crm", description="Customers", tools=[list_orders])
    docs = agents.HostedMCPTool(tool_config=SERVER | {"defer_loading": True})
    async with AsyncOpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as client:
        agent = agents.Agent(
            name="a",
            model=agents.OpenAIResponsesModel(model="m", openai_client=client),
            tools=[agents.ToolSearchTool(), get_weather, *crm, docs],
        )
        untraced = agents.RunConfig(tracing_disabled=True)
        result = await agents.Runner.run(agent, "go, by agents", run_config=untraced)
    assert result.final_output == "All done."
    said = [output.text for output in model.last_request.outputs if not output.text.startswith("[")]
    assert said == ["sunny in Rome", "orders of Ann", "ECHO hey"]
    assert model.last_request.tool_names == ["tool_search", "get_weather", "crm__list_orders", "mcp__docs__echo"]


def test_an_approval_goes_over_two_responses(client: OpenAI, server: Remote) -> None:
    create: Any = client.responses.create
    tool = {name: value for name, value in SERVER.items() if name != "require_approval"}
    first = create(model="m", input="echo", tools=[tool])
    request = first.output[-1]
    assert request.type == "mcp_approval_request" and json.loads(request.arguments) == {"text": "echo"}
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    body = {"model": "m", "input": [answer], "tools": [tool], "previous_response_id": first.id}
    second = create(**body)
    assert kinds(second.output) == ["mcp_call", "message"]
    for more, status in (({}, 400), ({"previous_response_id": second.id}, 400), ({"previous_response_id": None}, 404)):
        with pytest.raises(openai.APIStatusError) as raised:
            create(**{**body, **more})
        assert raised.value.status_code == status


def test_errors_have_the_sdk_s_types(client: OpenAI, server: Remote) -> None:
    fault = json.dumps({"content": [{"type": "text", "text": "No such page"}], "isError": True})

    def failing(asked: object) -> tuple[int, dict[str, str], bytes]:
        number = asked.json["id"]  # type: ignore[attr-defined]
        return 200, {}, f'{{"jsonrpc":"2.0","id":{number},"result":{fault}}}'.encode()

    server.replies["tools/call"] = failing
    try:
        answer = client.responses.create(model="m", input="echo", tools=[SERVER])  # type: ignore[list-item]
    finally:
        server.replies.clear()
    call = answer.output[1]
    assert call.type == "mcp_call" and call.status == "failed" and call.error is not None
    assert call.error.type == "mcp_tool_execution_error"


def test_connectors_are_not_reached(client: OpenAI, gateway: Served) -> None:
    tool = {"type": "mcp", "server_label": "mail", "connector_id": "connector_gmail", "authorization": SECRET}
    answer = gateway.ask("POST", "/responses", {"model": "m", "input": "hi", "tools": [tool]})
    assert (answer.status, answer.error["param"]) == (422, "tools[0].connector_id")
    assert "server_url" in answer.error["message"]


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (GatewayNetwork(allowed_domains=("*",)), "every domain"),
        (GatewayNetwork(hosts={"a.example": "127.0.0.1:1"}), "name:port"),
        (GatewayNetwork(hosts={"a.example:1": "localhost:1"}), "address:port"),
        (GatewayNetwork(ca_file="/none.pem"), "/none.pem"),
    ],
)
def test_a_network_that_is_wrong_is_told_at_the_start(network: GatewayNetwork, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        Network.of(network)
