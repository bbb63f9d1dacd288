"""`ferrule acp` with the client side of the SDK: one process, a session a test."""

import asyncio
import base64
import re
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    EnvVariable,
    HttpMcpServer,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    SseMcpServer,
    TextResourceContents,
)

from ferrule.locks import try_lock
from ferrule.testing import Gate, Stall, function_call, http_error, message, reasoning, step
from tests.acp.calls import ESCALATED, shell
from tests.acp.editor import WITH_FORMS, WITH_TERMINALS, Door
from tests.mcp.stub import server
from tests.processes import running

pytestmark = pytest.mark.asyncio(loop_scope="module")
PNG = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()


async def test_it_says_what_it_serves_and_wants_to_be_greeted_first(door: Door) -> None:
    said = await door.conn.initialize(7)
    able = said.agent_capabilities
    assert said.protocol_version == 1 and said.agent_info is not None and said.agent_info.name == "ferrule"
    assert able is not None and able.load_session and able.prompt_capabilities is not None
    assert able.prompt_capabilities.image and able.prompt_capabilities.embedded_context
    assert not able.prompt_capabilities.audio
    served = able.session_capabilities
    assert served is not None and all((served.list, served.fork, served.resume, served.close))
    assert able.mcp_capabilities is not None and able.mcp_capabilities.http and not able.mcp_capabilities.sse


async def test_a_turn_is_told_as_it_happens(door: Door) -> None:
    door.model.play(
        [
            reasoning("I think"),
            message("First."),
            shell("echo out; pwd"),
            function_call("update_plan", {"plan": [{"step": "look", "status": "in_progress"}]}, call_id="c2"),
        ],
        [message("All done.")],
        when="told-as-it-happens",
    )
    session = await door.new()
    done = await door.say(session, "told-as-it-happens")
    editor = door.editor
    assert done.stop_reason == "end_turn" and done.usage is not None and done.usage.total_tokens > 0
    await editor.until(lambda: editor.of("available_commands_update"))
    assert editor.text == "First.All done." and editor.of("session_info_update")[0]["title"] == "told-as-it-happens"
    assert editor.of("usage_update")[-1]["size"] == 200_000 and editor.of("usage_update")[-1]["used"] > 0
    assert [update["content"]["text"] for update in editor.of("agent_thought_chunk")] == ["I think"]
    call = editor.calls()["c1"]
    assert (call["title"], call["kind"], call["status"]) == ("echo out; pwd", "execute", "completed")
    assert f"out\n{door.place.cwd}" in call["content"][0]["content"]["text"]
    assert call["rawInput"] == {"command": "echo out; pwd"} and call["rawOutput"]["exit_code"] == 0
    (plan,) = editor.of("plan")
    assert plan["entries"] == [{"content": "look", "priority": "medium", "status": "in_progress"}]
    assert "c2" not in editor.calls()
    assert all(update["session"] == session.session_id for update in editor.updates)


async def test_a_commands_output_is_shown_while_it_runs(door: Door) -> None:
    go_on = door.place.cwd / "go-on"
    script = f"echo early; while ! test -e {go_on}; do sleep 0.02; done; echo late; exit 3"
    door.model.play([shell(script)], [message("ok")], when="shown-while-it-runs")
    session = await door.new()
    turn = asyncio.create_task(door.say(session, "shown-while-it-runs"))
    await door.editor.until(lambda: "early" in str(door.editor.calls().get("c1", {}).get("content")))
    assert door.editor.calls()["c1"]["status"] == "in_progress"
    go_on.touch()
    await turn
    call = door.editor.calls()["c1"]
    assert call["status"] == "failed" and "early\nlate" in call["content"][0]["content"]["text"]


async def test_an_editor_with_terminals_gets_the_output_in_pieces(door: Door) -> None:
    door.model.play([shell("echo one; sleep 0.5; echo two")], [message("ok")], when="in-pieces")
    session = await door.new(WITH_TERMINALS)
    await door.say(session, "in-pieces")
    assert door.editor.calls()["c1"]["content"] == [{"type": "terminal", "terminalId": "c1"}]
    told = [update["_meta"] for update in door.editor.of("tool_call_update") if "_meta" in update]
    assert told[0] == {"terminal_info": {"terminal_id": "c1", "cwd": str(door.place.cwd)}}
    assert "".join(one["terminal_output"]["data"] for one in told if "terminal_output" in one) == "one\ntwo\n"
    assert told[-1]["terminal_exit"] == {"terminal_id": "c1", "exit_code": 0, "signal": None}


@pytest.mark.parametrize(
    ("decision", "kind", "runs"),
    [
        ("approved", "allow_once", True),
        ("approved_for_session", "allow_always", True),
        ("denied", "reject_once", False),
        ("abort", "reject_once", False),
        ("nonsense", "", False),
        (None, "", False),
    ],
)
async def test_permission_is_asked_and_only_a_yes_is_one(
    door: Door, decision: str | None, kind: str, runs: bool
) -> None:
    mark = door.place.cwd / f"asked-{decision}"
    word = f"permission-{decision}."
    script = f"echo x > {mark}"
    door.model.play([shell(script, **ESCALATED)], [shell(script, "c2", **ESCALATED)], [message("ok")], when=word)
    session = await door.new()
    door.editor.choose = lambda options: decision
    done = await door.say(session, word)
    call, options = door.editor.asked[0]
    offered = {option.option_id: option.kind for option in options}
    assert offered.get(decision or "", "") == kind and set(offered.values()) == {
        "allow_once",
        "allow_always",
        "reject_once",
    }
    assert call.tool_call_id == "c1" and script in str(call.content) and "it must" in str(call.content)
    assert mark.exists() == runs
    assert done.stop_reason == ("cancelled" if decision == "abort" else "end_turn")
    assert len(door.editor.asked) == (1 if decision in ("approved_for_session", "abort") else 2)


async def test_a_command_may_be_allowed_for_good(door: Door) -> None:
    script = "touch for-good"
    door.model.play([shell(script, **ESCALATED)], [message("ok")], when="allow-for-good")
    door.model.play([shell(script, **ESCALATED)], [message("ok")], when="allowed-before")
    session = await door.new()
    door.editor.choose = lambda options: "approved_execpolicy_amendment"
    await door.say(session, "allow-for-good")
    ((_, options),) = door.editor.asked
    assert [option.name for option in options if "amendment" in option.option_id] == [f"Always allow `{script}`"]
    await door.say(await door.new(), "allowed-before")
    assert not door.editor.asked and door.editor.calls()["c1"]["status"] == "completed"


async def test_the_mode_holds_from_the_next_prompt_on_and_rules_hold_in_every_mode(door: Door) -> None:
    outside = door.place.cwd.parent / "outside"
    write = f"echo x > {outside}"
    door.model.play(
        [shell(write)],
        [message("1")],
        [shell(write, "c2"), shell("echo forbidden", "c3")],
        [message("2")],
        when="mode-holds",
    )
    session = await door.new()
    assert session.modes is not None and session.modes.current_mode_id == "workspace-write"
    assert [mode.id for mode in session.modes.available_modes] == ["read-only", "workspace-write", "danger-full-access"]
    door.editor.choose = lambda options: None
    await door.conn.set_session_mode(session_id=session.session_id, mode_id="read-only")
    await door.say(session, "mode-holds")
    assert not outside.exists()
    changed = await door.conn.set_config_option(
        config_id="mode", session_id=session.session_id, value="danger-full-access"
    )
    assert {option.id: option.current_value for option in changed.config_options}["mode"] == "danger-full-access"
    await door.say(session, "mode-holds, again")
    assert outside.exists() and "orbidden" in str(door.editor.calls()["c3"]["content"])
    modes = [update["currentModeId"] for update in door.editor.of("current_mode_update")]
    assert modes == ["read-only", "danger-full-access"]
    with pytest.raises(RequestError, match="there is no mode 'root'"):
        await door.conn.set_session_mode(session_id=session.session_id, mode_id="root")


async def test_another_model_may_be_chosen_also_while_a_turn_runs(door: Door) -> None:
    gate = Gate()
    door.model.play(step(message("one"), stall=Stall(gate=gate)), [message("two")], when="another-model-please")
    session = await door.new()
    options = {option.id: option for option in session.config_options or []}
    assert {"scripted-model", "another-model"} <= {choice.value for choice in options["model"].options}
    turn = asyncio.create_task(door.say(session, "another-model-please"))
    await asyncio.to_thread(gate.wait_reached)
    await door.conn.set_config_option(config_id="model", session_id=session.session_id, value="another-model")
    await door.conn.set_session_mode(session_id=session.session_id, mode_id="read-only")
    assert not door.editor.of("current_mode_update")
    gate.open()
    await turn
    await door.editor.until(lambda: door.editor.of("current_mode_update"))
    await door.say(session, "another-model-please: go on")
    assert door.model.last_request.body["model"] == "another-model"
    with pytest.raises(RequestError, match="no option 'colour'"):
        await door.conn.set_config_option(config_id="colour", session_id=session.session_id, value="red")


async def test_cancel_ends_the_turn_its_commands_and_its_questions(door: Door) -> None:
    mark = f": cancel{id(door)}"
    door.model.play(
        [shell(f"{mark}; sleep 1000; :")],
        [shell("true", "c2", **ESCALATED)],
        [message("still here")],
        when="cancel-command",
    )
    session = await door.new()
    turn = asyncio.create_task(door.say(session, "cancel-command"))
    await door.editor.until(lambda: door.editor.calls().get("c1"))
    queued = asyncio.create_task(door.say(session, "never said"))
    await asyncio.sleep(0.05)
    await door.conn.cancel(session_id=session.session_id)
    assert (await turn).stop_reason == (await queued).stop_reason == "cancelled"
    assert not running(mark) and door.editor.calls()["c1"]["status"] == "failed"

    door.editor.hesitates = True
    turn = asyncio.create_task(door.say(session, "ask me"))
    await door.editor.until(lambda: door.editor.asked)
    await door.conn.cancel(session_id=session.session_id)
    assert (await turn).stop_reason == "cancelled"

    assert (await door.say(session, "go on")).stop_reason == "end_turn"
    assert "still here" in door.editor.text


async def test_a_model_that_fails_is_one_error_with_its_words(door: Door) -> None:
    door.model.play(http_error(400, "no such thing"), when="model-that-fails")
    session = await door.new()
    with pytest.raises(RequestError, match="no such thing"):
        await door.say(session, "model-that-fails")


async def test_images_files_and_links_reach_the_model(door: Door) -> None:
    door.model.play([message("seen")], when="images-and-files")
    session = await door.new()
    await door.say(
        session,
        "images-and-files",
        ImageContentBlock(type="image", data=PNG, mime_type="image/png"),
        ResourceContentBlock(type="resource_link", name="notes", uri="file:///work/my%20notes.md"),
        EmbeddedResourceContentBlock(
            type="resource", resource=TextResourceContents(uri="file:///work/a.py", text="print(1)")
        ),
        EmbeddedResourceContentBlock(
            type="resource", resource=BlobResourceContents(uri="file:///b", blob="//4A")
        ),
    )  # fmt: skip
    body = str(door.model.last_request.body)
    assert f"data:image/png;base64,{PNG}" in body and "[notes](/work/my notes.md)" in body
    assert '<file path="/work/a.py">' in body and "print(1)" in body and "3 bytes that is no text" in body


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (AudioContentBlock(type="audio", data="", mime_type="audio/wav"), "audio is not taken"),
        (ImageContentBlock(type="image", data="@@", mime_type="image/png"), "not base64"),
        (ImageContentBlock(type="image", data=PNG, mime_type="text/html"), "is none"),
        ("  ", "empty"),
    ],
)
async def test_what_no_model_hears_is_refused_in_words(door: Door, block: Any, words: str) -> None:
    session = await door.new()
    with pytest.raises(RequestError, match=words):
        await door.say(session, block)


async def test_a_session_is_listed_loaded_resumed_forked_and_closed(door: Door) -> None:
    door.model.play(
        [message("one"), shell("echo stored")],
        [message("two")],
        [message("three")],
        [message("four")],
        when="many-lives",
    )
    session = await door.new()
    await door.say(session, "many-lives")
    listed = (await door.conn.list_sessions(cwd=str(door.place.cwd))).sessions
    assert [one.title for one in listed if one.session_id == session.session_id] == ["many-lives"]
    await door.conn.close_session(session_id=session.session_id)
    with pytest.raises(RequestError, match="there is no session"):
        await door.say(session, "hello?")

    await door.greet()
    await door.conn.load_session(cwd=str(door.place.cwd), session_id=session.session_id, mcp_servers=[])
    told = [update for update in door.editor.updates if update["sessionUpdate"] != "available_commands_update"]
    kinds = [update["sessionUpdate"] for update in told]
    assert kinds == [
        "user_message_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ]
    assert "stored" in str(door.editor.calls()["c1"]["content"]) and door.editor.text == "onetwo"

    copy = await door.conn.fork_session(cwd=str(door.place.cwd), session_id=session.session_id)
    assert copy.session_id != session.session_id
    await door.say(copy, "go on in the copy")
    assert "many-lives" in door.model.last_request.user_text

    await door.greet()
    await door.conn.close_session(session_id=copy.session_id)
    await door.conn.resume_session(cwd=str(door.place.cwd), session_id=copy.session_id)
    await door.say(copy.session_id, "and more")
    assert "go on in the copy" in door.model.last_request.user_text
    assert not door.editor.of("user_message_chunk") and door.editor.text == "four"


async def test_what_a_client_names_is_never_a_file(door: Door) -> None:
    await door.greet()
    door.model.play([message("stored")], when="never-a-file")
    session = await door.new()
    await door.say(session, "never-a-file")
    (stored,) = door.place.home.glob(f"sessions/*/*/*/rollout-*{session.session_id}.jsonl")
    for name in (str(stored), session.session_id[:30], "../../etc/passwd", "", "0" * 8):
        with pytest.raises(RequestError, match="there is no session"):
            await door.conn.load_session(cwd=str(door.place.cwd), session_id=name, mcp_servers=[])
    for cwd, words in (("relative", "absolute path"), ("/nowhere/at/all", "not a directory")):
        with pytest.raises(RequestError, match=words):
            await door.conn.new_session(cwd=cwd, mcp_servers=[])


async def test_commands_are_offered_and_done(door: Door) -> None:
    session = await door.new()
    await door.editor.until(lambda: door.editor.of("available_commands_update"))
    (offer,) = door.editor.of("available_commands_update")
    named = {command["name"]: command["description"] for command in offer["availableCommands"]}
    assert {"compact", "undo", "init", "status", "diff"} <= set(named) and named["prompts:greet"] == "says hello"
    assert (await door.say(session, "/status")).stop_reason == "end_turn"
    assert session.session_id in door.editor.text and "workspace-write" in door.editor.text
    with pytest.raises(RequestError, match="nothing to compact yet"):
        await door.say(session, "/compact")
    door.model.play([message("Hello!")], [message("a path")], when="Say hello to Ann")
    await door.say(session, "/prompts:greet Ann", ImageContentBlock(type="image", data=PNG, mime_type="image/png"))
    assert "Hello!" in door.editor.text and PNG in str(door.model.last_request.body)
    assert (await door.say(session, "/etc/hosts is odd")).stop_reason == "end_turn"


QUESTIONS = [
    {"id": "colour", "header": "Colour", "question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}
]


async def test_the_models_questions_are_forms_where_there_are_forms(door: Door) -> None:
    ask = function_call("request_user_input", {"questions": QUESTIONS})
    door.model.play([ask], [message("ok")], [ask], [message("ok")], when="forms-are-there")
    session = await door.new(WITH_FORMS)
    door.editor.form_answer = {"colour": "blue"}
    await door.say(session, "forms-are-there")
    ((text, mode),) = door.editor.forms
    assert text == "Which colour?" and [one.const for one in mode.requested_schema.properties["colour"].one_of] == [
        "red",
        "blue",
    ]
    assert '"answers":["blue"]' in str(door.model.last_request.body).replace("\\", "")
    door.editor.form_answer = {"colour": "blue", "colour_other": "green"}
    await door.say(session, "forms-are-there, again")
    assert '"answers":["green"]' in str(door.model.last_request.body).replace("\\", "")


async def test_without_forms_a_choice_is_asked_as_permission_and_words_are_refused(door: Door) -> None:
    words = function_call("request_user_input", {"questions": [{"id": "q", "question": "Why?"}]}, call_id="c2")
    door.model.play(
        [function_call("request_user_input", {"questions": QUESTIONS})], [words], [message("ok")], when="no-forms-here"
    )
    session = await door.new()
    door.editor.choose = lambda options: options[1].option_id
    await door.say(session, "no-forms-here")
    ((call, options),) = door.editor.asked
    assert call.title == "Which colour?" and [option.name for option in options] == ["red", "blue", "No answer"]
    body = str(door.model.last_request.body).replace("\\", "")
    assert '"answers":["blue"]' in body and "cannot ask its user such a question" in body


async def test_mcp_servers_of_the_client_bring_tools(door: Door) -> None:
    stub = server()
    brought = McpServerStdio(
        name="the client's", command=stub["command"], args=stub["args"], env=[EnvVariable(name="WORD", value="of-mine")]
    )
    session = await door.new(mcp_servers=[brought])

    def call(request: Any) -> Any:
        (named,) = set(re.findall(r"mcp__\w*environ\w*", str(request.body["tools"])))
        return [function_call(named, {})]

    door.model.play(call, [message("ok")], when="servers-of-the-client")
    await door.say(session, "servers-of-the-client")
    assert "of-mine" in str([shown["content"] for shown in door.editor.calls().values()])
    for wrong, words in (
        (SseMcpServer(type="sse", name="old", url="http://127.0.0.1:1/sse", headers=[]), "sse is not spoken"),
        (HttpMcpServer(type="http", name="odd", url="ftp://x", headers=[]), "must begin with http"),
    ):
        with pytest.raises(RequestError, match=words):
            await door.conn.new_session(cwd=str(door.place.cwd), mcp_servers=[wrong])


async def test_files_of_the_project_count_only_after_a_yes(door: Door) -> None:
    project = door.place.cwd.parent / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".ferrule").mkdir()
    (project / ".ferrule" / "config.toml").write_text('[mcp_servers.planted]\ncommand = "planted"\n')
    door.model.play([message("1")], [message("2")], when="files-of-the-project")
    await door.greet()
    door.editor.hesitates = True
    session = await door.conn.new_session(cwd=str(project), mcp_servers=[])
    turn = asyncio.create_task(door.say(session, "files-of-the-project"))
    await door.editor.until(lambda: door.editor.asked)
    await door.conn.cancel(session_id=session.session_id)
    assert (await turn).stop_reason == "cancelled"

    await door.greet()
    session = await door.conn.new_session(cwd=str(project), mcp_servers=[])
    door.editor.choose = lambda options: None
    await door.say(session, "files-of-the-project")
    ((call, _),) = door.editor.asked
    assert "planted" in str(call.content)
    await door.say(session, "files-of-the-project again")
    assert len(door.editor.asked) == 1
    door.editor.updates.clear()
    await door.say(session, "/mcp")
    assert "planted" not in door.editor.text


async def test_many_sessions_go_to_sleep_and_wake_up(door: Door) -> None:
    door.model.play([message("first")], [message("second")], when="sleep-and-wake")
    session = await door.new()
    await door.say(session, "sleep-and-wake")
    (stored,) = door.place.home.glob(f"sessions/*/*/*/rollout-*{session.session_id}.jsonl")

    def is_held() -> bool:
        with stored.open("rb") as file:
            return not try_lock(file.fileno())

    assert is_held()
    await asyncio.gather(*(door.conn.new_session(cwd=str(door.place.cwd), mcp_servers=[]) for _ in range(20)))
    assert not is_held(), "it sleeps"
    await door.say(session, "are you there?")
    assert door.model.last_request.user_text.count("sleep-and-wake") == 1 and "second" in door.editor.text
