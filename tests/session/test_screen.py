"""The screen of a session: a real browser, a scripted model, each form of the tool."""

import base64
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule import Agent, Toolset
from ferrule.builtin import BUILTINS
from ferrule.doors.acp.updates import Updates
from ferrule.doors.app_server.forms import content_items
from ferrule.doors.headless.jsonl import JsonLines
from ferrule.doors.terminal.cells import Image, ToolCell
from ferrule.doors.terminal.conversation import Conversation
from ferrule.history.compaction import shortened
from ferrule.images import read_header
from ferrule.model.profiles import load_profiles
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.events import Event, ExecApproval, ItemCompleted, ItemStarted, WarningEvent
from ferrule.protocol.items import ComputerCallOutput, make_item, read_item
from ferrule.protocol.payload import NO_SCREENSHOT, NativePayload, ToolOutput
from ferrule.protocol.permissions import WorkspaceWrite
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import Wire
from ferrule.sandbox.plan import Level
from ferrule.session.hooks import HookInput, HookOutput, PythonHook, SpecificOutput
from ferrule.session.images import MAX_IMAGE_BYTES, bounded
from ferrule.session.sources import expand_profile
from ferrule.testing import ScriptedModel, http_error
from ferrule.testing.steps import Raw
from ferrule.tools.events import ToolEvent
from tests.builtin.states import conversation
from tests.containers.screens import require_screen
from tests.containers.sites import Site
from tests.sandbox.conftest import require
from tests.session.conversations import Place, call, chunks, function_call, items, kinds, said, sent, thought

Fields = dict[str, Any]
CHECK = {"id": "sc_1", "code": "malicious_instructions", "message": "The page may want something else."}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
async def namespaces() -> None:
    """Skip the test where there can be no container."""
    await require(Level.NAMESPACES)


@pytest.fixture
async def screen() -> None:
    """Skip the test where there can be no screen."""
    await require_screen()


def acts(call_id: str, *actions: Fields, **more: Any) -> Fields:
    """An item of the newer form, or of the older one with its single `action`."""
    form = {} if "action" in more else {"actions": list(actions)}
    return {
        "type": "computer_call", "id": f"cu_{call_id}", "call_id": call_id, "status": "completed",
        **form, "pending_safety_checks": [], **more,
    }  # fmt: skip


def agent(server: ScriptedModel, wire: Wire, site: Site, folder: Path, **more: Any) -> Agent:
    provider = ProviderSettings(
        name="server", base_url=server.base_url, wire_api=wire, request_max_retries=0, stream_max_retries=0
    )
    reaches = WorkspaceWrite(network_access=(site.name, "ruled.test"), hosts=site.hosts)
    settings = ComputerSettings(**more.pop("settings", {}))
    given: Fields = {"tools": ["computer"], "approval_policy": "on-request"} | more
    made = Agent("gpt-5.5", provider=provider, cwd=folder, sandbox=reaches, **given)
    home = folder / "home"
    (home / "rules").mkdir(parents=True)
    rule = 'network_rule(host="ruled.test", protocol="http", decision="forbidden", justification="It sells hats")\n'
    (home / "rules" / "own.rules").write_text(rule)
    made.settings = msgspec.structs.replace(made.settings, computer=settings, home=str(home))
    return made


def opened(call_id: str, url: str) -> Fields:
    return function_call(call_id, "open_url", json.dumps({"url": url}), id=f"fc_{call_id}")


def picture_of(url: str) -> tuple[int, int]:
    """The size of a picture in an answer."""
    assert url.startswith("data:image/png;base64,")
    header = read_header(base64.b64decode(url.partition(",")[2]))
    assert header is not None and header.mime == "image/png"
    return header.width, header.height


def body_of(server: ScriptedModel, number: int = -1) -> Fields:
    return dict(server.requests[number].body)


def outputs(server: ScriptedModel) -> dict[str, Fields]:
    """The outputs of the last request, by the ids of their calls."""
    return {item["call_id"]: item for item in sent(server) if item["type"].endswith("_output")}


def words_after(server: ScriptedModel, call_id: str) -> str:
    """The message that follows the outputs of a response."""
    listed = sent(server)
    at = next(index for index, item in enumerate(listed) if item.get("call_id") == call_id and "output" in item)
    told = listed[at + 1]
    assert (told["type"], told["role"]) == ("message", "developer")
    return str(told["content"][0]["text"])


FIRST: Sequence[Fields] = (
    {"type": "click", "x": 200, "y": 100},
    {"type": "type", "text": "Ada"},
    {"type": "keypress", "keys": ["ENTER"]},
)
SECOND: Sequence[Fields] = (
    {"type": "click", "x": 200, "y": 100, "button": "left"},
    {"type": "keypress", "keys": ["ARROWDOWN"]},
    {"type": "keypress", "keys": ["ENTER"]},
    {"type": "click", "x": 60, "y": 220},
)
BOOK: Fields = {"type": "click", "x": 60, "y": 220}


def booking(site: Site) -> Iterator[Raw]:
    """The answers of a model that fills a form, and tries what is refused."""
    yield items(thought("rs_0"), acts("blank", {"type": "screenshot"}))
    yield items(thought("rs_1"), opened("open", site.url("/book")))
    yield items(thought("rs_2"), acts("first", *FIRST))
    yield items(thought("rs_3"), acts("second", *SECOND))
    single = {"action": BOOK, "pending_safety_checks": [CHECK]}
    yield items(thought("rs_4"), acts("refused", **single))
    yield items(thought("rs_5"), acts("booked", **single))
    yield items(thought("rs_6"), acts("outside", {"type": "click", "x": 5000, "y": 10}))
    yield items(thought("rs_7"), acts("odd", {"type": "dance"}, {"type": "wait"}))
    yield items(thought("rs_8"), opened("file", "file:///etc/passwd"), opened("other", "http://other.test/"))
    yield items(opened("ruled", "http://ruled.test/hats"))
    yield items(thought("rs_9"), acts("elsewhere", {"type": "keypress", "keys": ["NOKEY"]}, BOOK))
    yield items(said("Booked."))


async def test_a_form_is_filled_and_booked_by_native_items(screen: None, site: Site, tmp_path: Path) -> None:
    asked: list[ExecApproval] = []
    ended: dict[str, ToolOutput] = {}

    def decide(question: ExecApproval) -> bool:
        asked.append(question)
        return len(asked) > 1

    def see(event: Event | ToolEvent) -> None:
        if isinstance(event, ItemCompleted) and event.output is not None:
            ended[getattr(event.item.view, "call_id", "")] = event.output

    site.booked.clear()
    with ScriptedModel() as server:
        server.add(*booking(site))
        made = agent(server, "responses", site, tmp_path, on_approval=decide, on_event=see)
        result = await made.run("Book Tuesday for Ada.")
        assert result.text == "Booked."
        assert [tool["type"] for tool in body_of(server, 0)["tools"]] == ["computer", "function"]
        found = outputs(server)
        listed = sent(server)
    assert site.booked == ["name=Ada&day=Tuesday"]
    assert [item["id"] for item in listed if item["type"] == "reasoning"] == [f"rs_{n}" for n in range(10)]
    screens = {name: output for name, output in found.items() if output["type"] == "computer_call_output"}
    assert {name: picture_of(output["output"]["image_url"]) for name, output in screens.items()} == dict.fromkeys(
        ["blank", "first", "second", "refused", "booked", "outside", "odd", "elsewhere"], (1024, 768)
    )
    assert len({output["output"]["image_url"] for output in screens.values()}) == 5
    # The user is asked once for each call that waits for it, in the provider's words.
    assert [(one.kind, one.reason) for one in asked] == [
        ("tool", "the model's provider warns: The page may want something else.")
    ] * 2
    assert json.loads(asked[0].text.removeprefix("computer ")) == {"actions": [BOOK]}
    assert "acknowledged_safety_checks" not in found["refused"]
    assert "rejected by user" in words_after(server, "refused")
    assert found["refused"]["output"] == found["second"]["output"]  # nothing was done
    assert found["booked"]["acknowledged_safety_checks"] == [CHECK]
    assert "Really book?" in words_after(server, "booked")
    assert "outside of the screen" in words_after(server, "outside")
    assert "Nothing was done" in words_after(server, "odd")
    told = words_after(server, "elsewhere")
    assert told.startswith("Action 1 of 2 was not done:") and "NOKEY" in told
    assert "only addresses that begin with http" in found["file"]["output"][0]["text"]
    assert "other.test" in found["other"]["output"][0]["text"] and "not" in found["other"]["output"][0]["text"]
    assert "A rule forbids http://ruled.test: It sells hats." in found["ruled"]["output"][0]["text"]
    assert picture_of(found["other"]["output"][1]["image_url"]) == (1024, 768)
    # People see the picture, and the words beside it.
    assert isinstance(shown := ended["booked"].shown, tuple)
    assert [type(part).__name__ for part in shown] == ["InputText", "InputImage"]
    assert ended["first"].text == "(a picture)" and ended["refused"].success is False


async def test_a_form_is_filled_by_a_function_and_goes_on_elsewhere(screen: None, site: Site, tmp_path: Path) -> None:
    site.booked.clear()
    with ScriptedModel() as server:
        for call_id, actions in (
            ("first", FIRST),
            ("second", SECOND),
            ("book", [BOOK]),
            ("wrong", [{"type": "dance"}]),
        ):
            given = json.dumps({"actions": actions})
            server.add(chunks(call(call_id, name="computer", arguments=given), finish="tool_calls"))
        server.add(chunks({"content": "Booked."}))
        settings = {"start_url": site.url("/book"), "display_width": 800, "display_height": 600}
        made = agent(server, "chat", site, tmp_path, settings=settings)
        assert (await made.run("Book.")).text == "Booked."
        names = [tool["function"]["name"] for tool in body_of(server, 0)["tools"]]
        messages = body_of(server)["messages"]
    assert names == ["computer", "open_url"] and site.booked == ["name=Ada&day=Tuesday"]
    answers = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
    assert answers["first"] == f"The screen shows {site.url('/day?name=Ada')}:"
    assert answers["book"].startswith('The page showed "Really book?"') and answers["wrong"].endswith(
        "Nothing was done."
    )
    shown = [part for one in messages if isinstance(one["content"], list) for part in one["content"]]
    pictures = [part["image_url"]["url"] for part in shown if part["type"] == "image_url"]
    assert [picture_of(url) for url in pictures] == [(800, 600)] * 3


# --- without a browser


CLICK = acts("call_cu", {"type": "click", "x": 1, "y": 2})


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_conversation_with_a_screen_goes_on_where_there_is_no_native_form(tmp_path: Path, wire: Wire) -> None:
    """Each call is sent with its output, as those of a function."""
    place = Place(tmp_path)
    with ScriptedModel([items(thought(), CLICK), items(said("done"))]) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
    [file] = (tmp_path / "home").rglob("*.jsonl")
    picture = "data:image/png;base64,iVBORw0KGgo="
    file.write_text(file.read_text().replace(NO_SCREENSHOT, picture))
    with ScriptedModel(["more"]) as server:
        await place.talk(server, wire, "and?", model="gpt-5.5", profile="ollama", name="another", resume=True)
        body = body_of(server, 0)
    given = {"actions": CLICK["actions"]}
    if wire == "responses":
        [said_there] = [item for item in body["input"] if item["type"] == "function_call"]
        assert (said_there["name"], json.loads(said_there["arguments"])) == ("computer", given)
        [answer] = [item for item in body["input"] if item["type"] == "function_call_output"]
        assert answer["call_id"] == said_there["call_id"] and answer["output"] == "The screen after the actions:"
        assert not any("computer" in item["type"] for item in body["input"])
    else:
        [said_there] = [one for one in body["messages"] if one.get("tool_calls")]
        [tool_call] = said_there["tool_calls"]
        assert tool_call["function"]["name"] == "computer" and json.loads(tool_call["function"]["arguments"]) == given
        [answer] = [one for one in body["messages"] if one["role"] == "tool"]
        assert answer["tool_call_id"] == tool_call["id"] and answer["content"] == "The screen after the actions:"
    assert picture in json.dumps(body)


async def test_without_a_browser_the_model_is_told_and_the_turn_goes_on(
    namespaces: None, site: Site, tmp_path: Path
) -> None:
    missing = str(tmp_path / "no-browser")
    with ScriptedModel() as server:
        server.add(items(thought(), acts("one", {"type": "screenshot"})))
        server.add(items(said("Not here.")))
        made = agent(server, "responses", site, tmp_path, settings={"browser": missing})
        assert (await made.run("go")).text == "Not here."
    [output] = outputs(server).values()
    assert output["output"]["image_url"] == NO_SCREENSHOT
    told = words_after(server, "one")
    assert told.startswith("The screen cannot be used: ") and missing in told


@pytest.mark.parametrize(("policy", "words"), [("never", "the approval policy is never"), ("on-request", "rejected")])
async def test_nobody_to_confirm_is_a_no(site: Site, tmp_path: Path, policy: str, words: str) -> None:
    settings = {"browser": str(tmp_path / "no-browser")}
    with ScriptedModel() as server:
        server.add(items(acts("one", BOOK, pending_safety_checks=[CHECK])))
        server.add(items(said("Not done.")))
        made = agent(server, "responses", site, tmp_path, approval_policy=policy, settings=settings)
        await made.run("go")
    assert "acknowledged_safety_checks" not in outputs(server)["one"] and words in words_after(server, "one")


@pytest.mark.parametrize("stores", [False, True])
async def test_a_conversation_goes_on_where_the_server_waits_for_a_confirmation(
    site: Site, tmp_path: Path, stores: bool
) -> None:
    """OpenAI's refuses every later request with such a call: it is sent as one of a function then."""
    words = "Computer tool has unacknowledged safety check for ['sc_1']"
    with ScriptedModel() as server:
        server.add(items(thought("rs_1"), acts("free", {"type": "wait"})))
        server.add(items(thought("rs_2"), acts("waits", action=BOOK, pending_safety_checks=[CHECK])))
        server.add(http_error(400, words, param="input"), items(said("Not done.")), items(said("Still not.")))
        settings = {"browser": str(tmp_path / "no-browser")}
        made = agent(server, "responses", site, tmp_path, tools=["computer_use_preview"], settings=settings)
        keeper = '[provider.keeper]\nlike = "responses"\n' + "stores = true\n" * stores
        (tmp_path / "home" / "profiles.toml").write_text(keeper)
        assert made.settings.provider is not None
        provider = msgspec.structs.replace(made.settings.provider, profile="keeper")
        made.settings = msgspec.structs.replace(made.settings, provider=provider)
        async with await made.open() as session:
            assert (await session.run("go")).text == "Not done."
            assert (await session.run("and?")).text == "Still not."
        refused, healed, later = (body_of(server, number) for number in (2, 3, 4))
    assert [tool["type"] for tool in healed["tools"]] == ["computer_use_preview", "function"]
    assert refused["truncation"] == healed["truncation"] == "auto"
    assert (refused.get("previous_response_id") is not None) == stores and "previous_response_id" not in healed
    assert (later.get("previous_response_id") is not None) == stores
    for body in (healed,) if stores else (healed, later):
        forms = {item["call_id"]: item["type"] for item in body["input"] if item["type"].endswith("_output")}
        assert forms == {"free": "computer_call_output", "waits": "function_call_output"}
        assert [item["id"] for item in body["input"] if item["type"] == "reasoning"] == ["rs_1"]
        [call_there] = [item for item in body["input"] if item["type"] == "function_call"]
        assert call_there["call_id"] == "waits" and json.loads(call_there["arguments"]) == {"actions": [BOOK]}
    assert refused["input"][-2]["type"] == "computer_call_output"
    assert kinds(later["input"]) == ["message"] or not stores


async def test_a_hook_sees_and_changes_what_is_done_but_not_what_is_to_be_confirmed(site: Site, tmp_path: Path) -> None:
    seen: list[Fields] = []
    asked: list[str] = []

    def guard(told: HookInput) -> HookOutput | None:
        given: Fields = told.tool_input
        seen.append(given)
        if given["actions"][0]["type"] == "click":
            return HookOutput(decision="block", reason="no clicks")
        changed = SpecificOutput(permission_decision="allow", updated_input={"actions": [{"type": "wait"}]})
        return HookOutput(hook_specific_output=changed)

    def decide(question: ExecApproval) -> bool:
        asked.append(question.text)
        return True

    pending = {"pending_safety_checks": [CHECK]}
    with ScriptedModel() as server:
        server.add(items(acts("blocked", BOOK, **pending)), items(acts("changed", {"type": "screenshot"}, **pending)))
        server.add(items(said("Not here.")))
        hooks = [PythonHook("PreToolUse", guard)]
        settings = {"browser": str(tmp_path / "no-browser")}
        made = agent(server, "responses", site, tmp_path, hooks=hooks, on_approval=decide, settings=settings)
        await made.run("go")
    assert seen == [{"actions": [BOOK], **pending}, {"actions": [{"type": "screenshot"}], **pending}]
    assert [json.loads(text.removeprefix("computer ")) for text in asked] == [{"actions": [{"type": "wait"}]}]
    assert "acknowledged_safety_checks" not in outputs(server)["blocked"]
    assert "no clicks" in words_after(server, "blocked")


@pytest.mark.parametrize(
    "words",
    [
        "Tool 'computer' is not supported with gpt-4.1.",
        "Invalid value: 'computer'. Supported values are: 'function', 'web_search'.",
    ],
)
async def test_where_the_server_refuses_the_item_the_function_is_told_of(
    site: Site, tmp_path: Path, words: str
) -> None:
    warned: list[str] = []

    def see(event: Event | ToolEvent) -> None:
        if isinstance(event, WarningEvent):
            warned.append(event.message)

    given = json.dumps({"actions": [{"type": "wait"}]})
    with ScriptedModel() as server:
        server.add(http_error(400, words, code="unsupported_value"))
        server.add(items(function_call("one", "computer", given)), items(said("Not here.")))
        settings = {"browser": str(tmp_path / "no-browser")}
        made = agent(server, "responses", site, tmp_path, settings=settings, on_event=see)
        assert (await made.run("go")).text == "Not here."
        told = [body_of(server, number)["tools"] for number in range(3)]
        names = [[tool.get("name", tool["type"]) for tool in tools] for tools in told]
        kinds = [[tool["type"] for tool in tools] for tools in told]
    assert kinds == [["computer", "function"], *[["function", "function"]] * 2]
    assert names == [["computer", "open_url"]] * 3
    assert outputs(server)["one"]["output"].startswith("The screen cannot be used")
    assert [text for text in warned if "native form of the screen" in text]


def test_the_form_of_the_screen_is_the_models() -> None:
    profiles = load_profiles()
    state = conversation(Path.cwd(), profile=profiles.model("gpt-5.5"))
    state.computer = ComputerSettings(display_width=640, display_height=480)
    assert BUILTINS["computer"].spec(state).to_responses() == {"type": "computer"}
    assert BUILTINS["computer_use_preview"].spec(state).to_responses() == {
        "type": "computer_use_preview", "display_width": 640, "display_height": 480, "environment": "browser",
    }  # fmt: skip
    for name in ("claude-opus-4", "gpt-4.1", "qwen3-vl"):
        state.profile = profiles.model(name)
        for tool in ("computer", "computer_use_preview"):
            spec = BUILTINS[tool].spec(state).to_responses()
            assert (spec["type"], spec["name"]) == ("function", "computer")
            assert list(spec["parameters"]["properties"]) == ["actions"]


@pytest.mark.parametrize("name", ["computer", "computer_use_preview"])
def test_a_toolset_tells_of_the_screen_on_both_wires(tmp_path: Path, name: str) -> None:
    with Toolset.for_model("gpt-5.5", cwd=tmp_path, sandbox="read-only", tools=[name]) as tools:
        assert [spec["type"] for spec in tools.specs()] == [name, "function"]
        assert [spec["function"]["name"] for spec in tools.specs("chat")] == ["computer", "open_url"]


def test_a_toolset_says_beside_its_answers_what_they_cannot(tmp_path: Path) -> None:
    looks = function_call("call_f", "nobody")
    with Toolset.for_model("gpt-5.5", cwd=tmp_path, sandbox="read-only", tools=["computer"]) as tools:
        tools.conversation.computer = ComputerSettings(browser=str(tmp_path / "no-browser"))
        odd = acts("odd", {"type": "dance"}, pending_safety_checks=[CHECK])
        answers = tools.run_sync([odd, looks])
        many = tools.call_sync("computer", {"actions": [{"type": "wait"}] * 101})
        unread = tools.run_sync([{"type": "computer_call", "id": "cu", "call_id": "unread", "actions": {}}])
    assert [answer["type"] for answer in unread] == ["computer_call_output", "message"]
    assert "it has `actions`, a list, or one `action`" in unread[1]["content"][0]["text"]
    assert many.text == "One call makes at most 100 actions, not 101."
    assert [answer["type"] for answer in answers] == ["computer_call_output", "function_call_output", "message"]
    assert "acknowledged_safety_checks" not in answers[0] and answers[2]["role"] == "developer"
    assert "This is no action" in answers[2]["content"][0]["text"]


def test_what_a_hook_says_of_a_screen_stands_beside_its_picture() -> None:
    shot = ComputerCallOutput(call_id="c", output=msgspec.Raw(b'{"type":"computer_screenshot","image_url":"data:,"}'))
    said = ToolOutput(shot, True, True, beside="A dialog.").replaced("Go on.")
    assert said.body == shot and said.unsaid(NativePayload("computer_call", "{}")) == "Go on."
    assert ToolOutput("text", True, True).replaced("Go on.") == ToolOutput("Go on.", True)


def test_every_door_shows_the_picture_and_the_words(tmp_path: Path) -> None:
    pixel = "iVBORw0KGgo="
    url = f"data:image/png;base64,{pixel}"
    shot = msgspec.json.encode({"type": "computer_screenshot", "image_url": url})
    item = read_item(json.dumps(acts("c", {"type": "type", "text": "Ada"})))
    body = ComputerCallOutput(call_id="c", output=msgspec.Raw(shot))
    output = ToolOutput(body, True, True, beside="A dialog.")
    events = ItemStarted(item=item), ItemCompleted(item=item, output=output)
    lines, told, cells, placed = io.BytesIO(), list[str](), list[object](), list[str]()

    def place(given: str) -> None:
        placed.append(given)

    doors: list[JsonLines | Updates | Conversation] = [
        JsonLines(lines),
        Updates(lambda update: told.append(update.model_dump_json()), str(tmp_path)),
        Conversation(cells.append, cells.append, place),
    ]
    for door in doors:
        for event in events:
            door.on_event(event)
    shown = json.loads(lines.getvalue().splitlines()[-1])["item"]
    assert (shown["tool"], shown["arguments"]) == ("computer", {"actions": [{"type": "type", "text": "Ada"}]})
    assert [part.get("text") or part["image_url"] for part in shown["output"]] == ["A dialog.", url]
    assert pixel in told[-1] and "A dialog." in told[-1]
    assert placed == [url] and any(isinstance(cell, Image) for cell in cells)
    assert "A dialog." in str(next(cell for cell in cells if isinstance(cell, ToolCell)).rows(80))
    assert [kind.__struct_config__.tag for kind in content_items(output)] == ["inputText", "inputImage"]


def test_a_session_has_one_screen() -> None:
    names = expand_profile(["*"], ModelProfile(name="m"))
    assert "computer" in names and "computer_use_preview" not in names and names.count("open_url") == 1
    assert expand_profile(["computer_use_*"], ModelProfile(name="m"))[-2:] == ["computer_use_preview", "open_url"]


def test_old_pictures_of_the_screen_give_way() -> None:
    """Else a long conversation would be too large for every server."""
    shot = json.dumps({"type": "computer_screenshot", "image_url": "data:image/png;base64," + "A" * 500_000})

    taken = [make_item(ComputerCallOutput(call_id=str(n), output=msgspec.Raw(shot.encode()))) for n in range(40)]
    kept = bounded(tuple(taken))
    whole = [item for item in kept if len(item.raw) > 500_000]
    assert whole == taken[-len(whole) :] and sum(len(item.raw) for item in kept) < MAX_IMAGE_BYTES + 40 * 300
    assert NO_SCREENSHOT.encode() in kept[0].raw and b'"call_id":"0"' in kept[0].raw
    assert bounded(kept) is kept
    assert len(shortened(taken[0], 100).raw) < 300
