"""Web search that the server runs: its parameters, its items, and their events."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import Skipped, expect, expect_equal
from ferrule.conformance.groups.containers import call_of
from ferrule.conformance.server import SHORT, Json, Server

TYPES = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
EVERY: Json = {
    "search_context_size": "low",
    "user_location": {"type": "approximate", "country": "DE", "region": "NRW", "city": "Köln", "timezone": "CET"},
}
FILTERS: tuple[Json, ...] = (
    {"allowed_domains": ["example.com", "docs.example.org"]},
    {"type": "allow_list", "domains": ["example.com"]},
)
BAD: tuple[tuple[Json, str], ...] = (
    ({"filters": {"allowed_domains": ["https://example.com"]}}, "filters.allowed_domains"),
    ({"filters": {"allowed_domains": [f"d{n}.example.com" for n in range(101)]}}, "filters.allowed_domains"),
    ({"filters": {"type": "allow_list", "domains": [7]}}, "filters.domains"),
    ({"filters": "example.com"}, "filters"),
    ({"search_context_size": "huge"}, "search_context_size"),
    ({"user_location": "Köln"}, "user_location"),
)
ACTIONS = ("search", "open_page", "find_in_page")
INCLUDE = ["web_search_call.action.sources"]


def searched(call: Json) -> Json:
    """Return a call as an item, if the server runs such calls."""
    calls: list[Json] = [item for item in call["output"] if item.get("type") == "web_search_call"]
    if not calls:
        raise Skipped("the server runs no web_search")
    return calls[0]


@check
def parameters(server: Server) -> None:
    """Each type is taken with its parameters, and echoed; so are both spellings of filters."""
    tools = [{"type": kind, **EVERY} for kind in TYPES]
    tools += [{"type": "web_search", "filters": filters, "external_web_access": False} for filters in FILTERS]
    for tool in tools:
        made = server.create(input=SHORT, tools=[tool], tool_choice="none")
        expect_equal(made["tools"], [tool], "the echoed tool")


@check
def bad_parameters(server: Server) -> None:
    """A wrong parameter is a 400 that names it."""
    for wrong, param in BAD:
        answer = server.ask(input=SHORT, tools=[{"type": "web_search", **wrong}])
        expect_equal(answer.status, 400, f"the status for {param}")
        named = str(answer.error.get("param"))
        expect(named.startswith(f"tools[0].{param}"), f"the error names {named!r}, not tools[0].{param}")


@check
def call(server: Server) -> None:
    """A search is an item with an action and a last status, and its events come in order."""
    stream = server.stream(**call_of({"type": "web_search"}, {"query": "rivers of Europe"}), include=INCLUDE)
    item = searched(stream.final)
    expect(item["status"] in ("completed", "failed"), f"the status is {item['status']!r}")
    expect(item["action"].get("type") in ACTIONS, f"the action is {item['action']!r}")
    expect_equal(item["action"].get("query"), "rivers of Europe", "the query")
    told = [event for event in stream.events if event.data.get("item_id") == item["id"]]
    stages = ["in_progress", "searching", *(["completed"] if item["status"] == "completed" else [])]
    expect_equal([event.type for event in told], [f"response.web_search_call.{one}" for one in stages], "the events")
    if item["status"] == "completed":
        expect(all(one.get("url") for one in item["action"].get("sources", ())), "a source has no url")


@check
def sources(server: Server) -> None:
    """Sources are only there where they are asked for."""
    item = searched(server.create(**call_of({"type": "web_search"}, {"query": "rivers"})))
    expect("sources" not in item["action"] or item["action"]["sources"] is None, "there are sources")


@check
def sent_back(server: Server) -> None:
    """The items of a search can be sent back."""
    made = server.create(**call_of({"type": "web_search"}, {"query": "rivers"}))
    searched(made)
    again = server.create(input=[*made["output"], {"role": "user", "content": SHORT}], tools=[{"type": "web_search"}])
    expect_equal(again["status"], "completed", "the status")
