"""Web search through a real gateway, for the SDK, over a loopback SearXNG and a loopback web."""

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from ferrule.testing import ScriptedModel, function_call, step
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.cli.command import Place
from tests.gateway.served import Served, new_place, serving
from tests.web.conftest import server, web  # noqa: F401 - fixtures
from tests.web.site import SITE, Site


def does(request: Request) -> Simple:
    """Search, open the page that the user names, and answer."""
    number = len(request.outputs)
    calls = [function_call("web_search", {"query": "tower"}), function_call("open_page", {"url": request.user_text})]
    return calls[number] if number < len(calls) else step("It is 42 m high【1】.", delta_chars=2)


def configuration(place: Place, searches: str, web: Site) -> None:  # noqa: F811
    """Write the configuration of a gateway: a SearXNG at this address, and where the names of the web are."""
    hosts = "\n".join(f"{json.dumps(name)} = {json.dumps(to)}" for name, to in web.hosts.items())
    place.home.mkdir(parents=True)
    Path(place.home, "config.toml").write_text(
        f'[web_search]\nbackend = "searxng"\nbase_url = "{searches}"\n'
        f'[gateway.network]\nallowed_domains = ["*.example", "brix.example"]\n[gateway.network.hosts]\n{hosts}\n'
    )


@pytest.fixture(scope="module", params=["chat", "responses"])
def gateway(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    server: Site,  # noqa: F811
) -> Iterator[Served]:
    """A gateway whose model searches."""
    place = new_place(tmp_path_factory.mktemp("web"))
    configuration(place, server.base_url, server)
    with ScriptedModel(does) as model, serving(place, model.base_url, wire=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def check(reply: Response) -> None:
    search, page, said = reply.output
    assert search.type == "web_search_call" and search.action.type == "search" and search.action.query == "tower"
    assert page.type == "web_search_call" and page.action.type == "open_page" and page.action.url == f"{SITE}/tower"
    assert (search.status, page.status) == ("completed", "completed")
    assert said.type == "message" and said.content[0].type == "output_text"
    (cited,) = said.content[0].annotations
    assert cited.type == "url_citation" and (cited.url, cited.title) == (f"{SITE}/tower", "The tower of Brix")
    text = said.content[0].text
    assert text == "It is 42 m high." and text[cited.start_index : cited.end_index] == "It is 42 m high"


def test_the_sdk_gets_an_answer_with_its_citation(client: OpenAI) -> None:
    asked = f"{SITE}/tower"
    check(client.responses.create(model="m", input=asked, tools=[{"type": "web_search"}]))
    with client.responses.stream(model="m", input=asked, tools=[{"type": "web_search_preview"}]) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        check(stream.get_final_response())
    assert "".join(deltas) == "It is 42 m high." and len(deltas) > 4


def test_pages_of_this_machine_and_outside_of_the_bounds_are_refused(client: OpenAI, web: Site) -> None:  # noqa: F811
    for address in (f"{web.base_url}/tower", "http://localhost/", "http://brix.test/", "http://169.254.169.254/"):
        reply = client.responses.create(model="m", input=address, tools=[{"type": "web_search"}])
        assert [one.status for one in reply.output if one.type == "web_search_call"] == ["completed", "failed"]
    assert web.opened == []
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(
            model="m", input="x", tools=[{"type": "web_search", "filters": {"allowed_domains": ["brix.test"]}}]
        )
    assert raised.value.param == "tools[0].filters.allowed_domains[0]"
