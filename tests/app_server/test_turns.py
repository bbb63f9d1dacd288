"""Threads and turns, as a client of the reference sees them."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from ferrule.doors.app_server import opened
from ferrule.doors.app_server.methods import METHODS
from ferrule.doors.app_server.schema import schema
from ferrule.testing import Gate, ScriptedModel, Stall, custom_tool_call, function_call, http_error, reasoning, step
from ferrule.testing.steps import Usage
from tests.app_server.client import Client, RpcError
from tests.app_server.served import configure_in, piped, thread_of
from tests.cli.played import execute

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** Update File: old.txt\n@@\n-old\n+newer\n*** End Patch\n"
STUB = Path(__file__).parents[1] / "mcp" / "stub.py"
COUNTED = Usage(100, 20, 50, 5)


def kinds(client: Client) -> list[str]:
    """The methods since the last turn began; items by their type."""
    found = []
    for message in client.said[client._seen :]:
        method = message.get("method")
        if method in ("item/started", "item/completed"):
            found.append(f"{method} {message['params']['item']['type']}")
        elif method not in (None, "item/commandExecution/outputDelta", "item/fileChange/patchUpdated"):
            found.append(method)
    return found


async def test_a_turn_is_told_in_the_order_of_the_reference(tmp_path: Path) -> None:
    with ScriptedModel(step(reasoning("First."), "Hello there.", usage=COUNTED)) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start()
            turn = await client.turn(thread)
            assert turn["status"] == "completed" and turn["error"] is None and turn["itemsView"] == "summary"
            assert [item["text"] for item in turn["items"]] == ["Hello there."]
            assert kinds(client) == [
                "thread/started",
                "thread/status/changed",
                "turn/started",
                "item/started userMessage",
                "item/completed userMessage",
                "item/started reasoning",
                "item/reasoning/summaryPartAdded",
                "item/reasoning/summaryTextDelta",
                "item/completed reasoning",
                "item/started agentMessage",
                "item/agentMessage/delta",
                "item/completed agentMessage",
                "thread/tokenUsage/updated",
                "thread/status/changed",
                "turn/completed",
            ]
            counted = (await client.notified("thread/tokenUsage/updated"))["tokenUsage"]
            assert counted["total"] == counted["last"]
            assert counted["last"] == {
                "totalTokens": 120, "inputTokens": 100, "cachedInputTokens": 50, "cacheWriteInputTokens": 0,
                "outputTokens": 20, "reasoningOutputTokens": 5,
            }  # fmt: skip
            of_schema(client)


WHOLE = schema()
VALIDATORS = {
    entry["properties"]["method"]["const"]: jsonschema_rs.validator_for(
        {"definitions": WHOLE["definitions"], **entry["properties"]["params"]}
    )
    for entry in WHOLE["oneOf"]
}


def of_schema(client: Client) -> None:
    """All that the server said is as its schema says."""
    for message in client.said:
        if "method" in message:
            VALIDATORS[message["method"]].validate(message["params"])


async def test_commands_patches_and_plans_are_items_with_what_they_came_to(tmp_path: Path) -> None:
    plan = {"explanation": "why", "plan": [{"step": "a", "status": "in_progress"}]}
    script: list[Any] = [
        step(execute("echo hi; exit 3", 9_000), function_call("update_plan", plan)),
        dict(custom_tool_call("apply_patch", PATCH)),
        "Done.",
    ]
    with ScriptedModel(script) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            (tmp_path / "work" / "old.txt").write_text("old\n")
            thread = await client.start()
            await client.turn(thread)
            [began] = client.items("commandExecution", "item/started")
            [ended] = client.items("commandExecution")
            assert began["id"] == ended["id"] and began["status"] == "inProgress"
            assert (ended["status"], ended["exitCode"], ended["aggregatedOutput"]) == ("failed", 3, "hi\n")
            assert ended["command"].endswith("'echo hi; exit 3'") and ended["cwd"] == str(tmp_path / "work")
            assert (await client.notified("item/commandExecution/outputDelta"))["delta"] == "hi\n"
            [patched] = client.items("fileChange")
            assert patched["status"] == "completed"
            assert [(change["kind"]["type"], change["diff"]) for change in patched["changes"]] == [
                ("add", "hello\n"), ("update", "@@ -1 +1 @@\n-old\n+newer\n"),
            ]  # fmt: skip
            assert patched["changes"][0]["path"] == str(tmp_path / "work" / "new.txt")
            assert (await client.notified("turn/diff/updated"))["diff"].startswith("diff --git a/new.txt b/new.txt\n")
            told = await client.notified("turn/plan/updated")
            assert told["plan"] == [{"step": "a", "status": "inProgress"}] and told["explanation"] == "why"
            of_schema(client)


@pytest.mark.parametrize(
    ("decision", "runs", "status"),
    [
        ("accept", True, "completed"),
        ("acceptForSession", True, "completed"),
        ({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}, True, "completed"),
        ("decline", False, "completed"),
        ("cancel", False, "interrupted"),
        ("yes", False, "completed"),
        ({}, False, "completed"),
        (None, False, "completed"),
    ],
)
async def test_every_decision_about_a_command(tmp_path: Path, decision: Any, runs: bool, status: str) -> None:
    with ScriptedModel([execute("touch a", 9_000), "Done."]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start(approvalPolicy="untrusted")
            client.answers["item/commandExecution/requestApproval"] = lambda params: {"decision": decision}
            turn = await client.turn(thread)
            [asked] = client.asked
            assert asked["params"]["command"] == "/bin/bash -lc 'touch a'" and asked["params"]["threadId"] == thread
            assert asked["params"]["availableDecisions"][0] == "accept"
            assert (tmp_path / "work" / "a").exists() == runs and turn["status"] == status
            [item] = client.items("commandExecution")
            assert item["id"] == asked["params"]["itemId"]
            assert item["status"] == ("completed" if runs else "declined")
            assert (await client.notified("serverRequest/resolved"))["requestId"] == asked["id"]
            flags = [
                message["params"]["status"].get("activeFlags")
                for message in client.said
                if message.get("method") == "thread/status/changed"
            ]
            assert ["waitingOnApproval"] in flags
            of_schema(client)


@pytest.mark.parametrize(("decision", "status"), [("accept", "completed"), ("decline", "declined")])
async def test_a_patch_is_asked_about_with_its_changes(tmp_path: Path, decision: str, status: str) -> None:
    with ScriptedModel([dict(custom_tool_call("apply_patch", PATCH)), "Done."]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            (tmp_path / "work" / "old.txt").write_text("old\n")
            thread = await client.start(approvalPolicy="untrusted")
            client.answers["item/fileChange/requestApproval"] = lambda params: {"decision": decision}
            await client.turn(thread)
            [asked] = client.asked
            [began], [ended] = client.items("fileChange", "item/started"), client.items("fileChange")
            assert began["id"] == ended["id"] == asked["params"]["itemId"] and len(began["changes"]) == 2
            assert ended["status"] == status and (tmp_path / "work" / "new.txt").exists() == (decision == "accept")


TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "lookup", "description": "Looks up", "inputSchema": {"type": "object"}},
    {
        "type": "namespace",
        "name": "crm",
        "description": "Customers",
        "tools": [{"type": "function", "name": "find", "description": "Finds", "inputSchema": {"type": "object"}}],
    },
]


async def test_the_client_runs_its_own_tools_also_those_of_a_namespace(tmp_path: Path) -> None:
    script: list[Any] = [
        dict(function_call("lookup", {"q": "x"})), dict(function_call("find", {}, namespace="crm")), "Done.",
    ]  # fmt: skip
    with ScriptedModel(script) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start(dynamicTools=TOOLS)
            client.answers["item/tool/call"] = lambda params: {
                "contentItems": [{"type": "inputText", "text": f"found by {params['tool']}"}], "success": True,
            }  # fmt: skip
            await client.turn(thread)
            calls = [(one["params"]["namespace"], one["params"]["tool"]) for one in client.asked]
            assert calls == [(None, "lookup"), ("crm", "find")]
            assert list(model.outputs().values()) == ["found by lookup", "found by find"]
            items = client.items("dynamicToolCall")
            assert [(item["namespace"], item["tool"], item["success"]) for item in items] == [
                (None, "lookup", True), ("crm", "find", True),
            ]  # fmt: skip
            offered = msgspec.json.decode(model.requests[-1].raw)["tools"]
            assert any(tool.get("name") == "crm" and tool["type"] == "namespace" for tool in offered)
            for wrong, words in (({"name": "no name"}, "cannot be named"), ({"inputSchema": "x"}, "no object")):
                with pytest.raises(RpcError, match=words):
                    await client.call("thread/start", dynamicTools=[TOOLS[0] | wrong])
            of_schema(client)


async def test_the_model_and_mcp_servers_ask_the_user(tmp_path: Path) -> None:
    question = {"id": "q", "header": "H", "question": "Which?", "options": [{"label": "A", "description": "a"}]}
    script: list[Any] = [
        dict(function_call("request_user_input", {"questions": [question]})),
        step(
            function_call("ask", {}, namespace="mcp__stub"),
            function_call("write", {"text": "hi"}, namespace="mcp__stub"),
        ),
        "Done.",
    ]
    with ScriptedModel(script) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start(config={"mcp_servers.stub": {"command": sys.executable, "args": [str(STUB)]}})
            client.answers["item/tool/requestUserInput"] = lambda params: {"answers": {"q": {"answers": ["A"]}}}
            client.answers["mcpServer/elicitation/request"] = lambda params: {
                "action": "accept", "content": {"ok": True},
            }  # fmt: skip
            await client.turn(thread)
            assert next(iter(model.outputs().values())) == '{"answers":{"q":{"answers":["A"]}}}'
            asked = [one["params"] for one in client.asked if one["method"] == "mcpServer/elicitation/request"]
            by_message = {one["message"].split()[0]: one for one in asked}
            assert by_message["Really?"]["requestedSchema"]["type"] == "object"
            assert by_message["Allow"]["_meta"]["codex_approval_kind"] == "mcp_tool_call"
            assert {one["serverName"] for one in asked} == {"stub"}
            items = client.items("mcpToolCall")
            assert {(one["server"], one["tool"], one["status"]) for one in items} == {
                ("stub", "ask", "completed"), ("stub", "write", "completed"),
            }  # fmt: skip
            of_schema(client)


async def test_a_turn_is_steered_and_interrupted_by_its_id_alone(tmp_path: Path) -> None:
    with ScriptedModel([execute("echo up; sleep 60", 30_000)]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start()
            client.forget()
            say = {"threadId": thread, "input": [{"type": "text", "text": "go"}]}
            turn = (await client.call("turn/start", **say))["turn"]["id"]
            await client.notified("item/commandExecution/outputDelta")
            for method, given in (("turn/steer", "expectedTurnId"), ("turn/interrupt", "turnId")):
                with pytest.raises(RpcError, match=turn):
                    await client.call(method, **say, **{given: "another"})
            assert (await client.call("turn/steer", **say, expectedTurnId=turn))["turnId"] == turn
            assert (await client.call("turn/start", **say))["turn"]["id"] == turn
            await client.call("turn/interrupt", threadId=thread, turnId=turn)
            assert (await client.notified("turn/completed"))["turn"]["status"] == "interrupted"
            for method, given in (("turn/steer", "expectedTurnId"), ("turn/interrupt", "turnId")):
                with pytest.raises(RpcError, match="no active turn"):
                    await client.call(method, **say, **{given: turn})


async def test_a_compaction_is_interrupted_and_not_steered(tmp_path: Path) -> None:
    gate = Gate()
    with ScriptedModel(["One.", step("A summary.", stall=Stall(gate=gate))]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start()
            await client.turn(thread)
            client.forget()
            await client.call("thread/compact/start", threadId=thread)
            turn = (await client.notified("turn/started"))["turn"]["id"]
            say = {"threadId": thread, "input": [{"type": "text", "text": "go"}]}
            with pytest.raises(RpcError, match="compaction"):
                await client.call("turn/steer", **say, expectedTurnId=turn)
            for method in ("turn/start", "thread/compact/start"):
                with pytest.raises(RpcError, match="turn is running"):
                    await client.call(method, **say)
            await client.call("turn/interrupt", threadId=thread, turnId=turn)
            assert (await client.notified("turn/completed"))["turn"]["status"] == "interrupted"
            gate.open()


async def test_a_sub_agent_is_a_thread_of_its_own_that_asks(tmp_path: Path) -> None:
    script: list[Any] = [dict(function_call("spawn_agent", {"message": "beta"})), "Done."]
    with ScriptedModel(script) as model:
        model.play(execute("touch a", 9_000), "Child done.", when="beta")
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start(approvalPolicy="untrusted", config={"features.multi_agent": True})
            client.answers["item/commandExecution/requestApproval"] = lambda params: {"decision": "accept"}
            await client.call("turn/start", threadId=thread, input=[{"type": "text", "text": "alpha"}])
            asked = await client.notified("item/commandExecution/requestApproval")
            child = asked["threadId"]
            begun = [one["params"]["thread"] for one in client.said if one.get("method") == "thread/started"]
            assert [(one["id"], one["parentThreadId"]) for one in begun] == [(thread, None), (child, thread)]
            ended = await client.notified("turn/completed", threadId=child)
            assert ended["turn"]["items"][0]["text"] == "Child done." and (tmp_path / "work" / "a").exists()
            assert (await client.notified("serverRequest/resolved"))["threadId"] == child
            waits = {"type": "active", "activeFlags": ["waitingOnApproval"]}
            await client.notified("thread/status/changed", threadId=child, status=waits)
            of_schema(client)


async def test_settings_come_with_a_thread_or_a_turn_and_hold_from_then_on(tmp_path: Path) -> None:
    with ScriptedModel(["One.", execute("touch a", 9_000), "Two.", execute("touch b", 9_000), "Three."]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            opened = await client.call("thread/start", model="gpt-5", baseInstructions="Be brief.", sandbox="read-only")
            thread = thread_of(opened)
            assert opened["sandbox"] == {"type": "readOnly", "networkAccess": False} and opened["model"] == "gpt-5"
            await client.turn(thread, model="gpt-5.5", effort="high")
            asked = msgspec.json.decode(model.requests[-1].raw)
            assert asked["model"] == "gpt-5.5" and asked["instructions"].startswith("Be brief.")
            assert asked["reasoning"]["effort"] == "high"
            await client.turn(thread, sandboxPolicy={"type": "workspaceWrite"}, approvalPolicy="never")
            assert (tmp_path / "work" / "a").exists()
            await client.turn(thread)
            assert (tmp_path / "work" / "b").exists()
            assert msgspec.json.decode(model.requests[-1].raw)["model"] == "gpt-5.5"
            for wrong in (
                {"cwd": "/nonexistent"}, {"cwd": "work"}, {"personality": "friendly"}, {"effort": "much"},
                {"approvalsReviewer": "auto_review"}, {"outputSchema": 3},
                {"sandboxPolicy": {"type": "workspaceWrite", "writableRoots": ["relative"]}},
                {"approvalPolicy": {"granular": {"mcp_elicitations": True, "rules": True, "sandbox_approval": True}}},
            ):  # fmt: skip
                with pytest.raises(RpcError, match=r"cwd|personality|effort|Reviewer|Schema|Roots|granular"):
                    await client.turn(thread, **wrong)
            with pytest.raises(RpcError, match="modelProvider"):
                await client.call("thread/start", modelProvider="another")
            with pytest.raises(RpcError, match="the client: unknown key"):
                await client.call("thread/start", config={"no_such_key": 1})


async def test_what_a_turn_fails_with_is_told_and_the_thread_goes_on(tmp_path: Path) -> None:
    with ScriptedModel([http_error(400, "no more"), "Again."]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start()
            turn = await client.turn(thread)
            assert turn["status"] == "failed" and "no more" in turn["error"]["message"]
            told = await client.notified("error")
            assert told["error"] == turn["error"] and not told["willRetry"]
            assert (await client.turn(thread))["status"] == "completed"


async def test_threads_are_listed_read_named_resumed_forked_and_deleted(tmp_path: Path) -> None:
    with ScriptedModel(["One.", step(execute("echo hi", 9_000)), "Two.", "Three.", "A summary.", "Four."]) as model:
        configure = configure_in(tmp_path, model.base_url)
        async with piped(configure) as client:
            first = await client.start()
            turns = [(await client.turn(first, text))["id"] for text in ("alpha", "beta")]
            await client.call("thread/name/set", threadId=first, name="my name")
            await client.start()  # nothing was said in it: it is not stored
        async with piped(configure) as client:
            [listed] = (await client.call("thread/list"))["data"]
            assert (listed["id"], listed["name"], listed["preview"]) == (first, "my name", "alpha")
            assert listed["status"] == {"type": "notLoaded"} and not listed["turns"]
            assert not (await client.call("thread/list", searchTerm="nothing of the kind"))["data"]
            for none in ({"cwd": "/"}, {"sourceKinds": ["subAgent"]}, {"excludedThreadIds": [first]}):
                assert not (await client.call("thread/list", **none))["data"]
            read = (await client.call("thread/read", threadId=first, includeTurns=True))["thread"]
            assert [turn["id"] for turn in read["turns"]] == turns
            told = [[item["type"] for item in turn["items"]] for turn in read["turns"]]
            assert told == [["userMessage", "agentMessage"], ["userMessage", "commandExecution", "agentMessage"]]
            page = await client.call("thread/turns/list", threadId=first, limit=1)
            assert page["data"][0]["id"] == turns[1] and page["nextCursor"] == "1"
            with pytest.raises(RpcError, match="thread not loaded"):
                await client.turn(first)
            resumed = await client.call("thread/resume", threadId=first)
            assert [turn["id"] for turn in resumed["thread"]["turns"]] == turns
            await client.turn(first)
            assert "alpha" in model.requests[-1].raw.decode()
            fork = await client.call("thread/fork", threadId=first, lastTurnId=turns[0])
            copy = thread_of(fork)
            assert fork["thread"]["forkedFromId"] == first and len(fork["thread"]["turns"]) == 1
            assert (await client.call("thread/loaded/list"))["data"] == [first, copy]
            client.forget()
            await client.call("thread/compact/start", threadId=first)
            assert (await client.notified("turn/completed"))["turn"]["status"] == "completed"
            assert client.items("contextCompaction")
            await client.turn(first)
            await client.call("thread/archive", threadId=first)
            assert [one["id"] for one in (await client.call("thread/list", archived=True))["data"]] == [first]
            assert (await client.call("thread/unsubscribe", threadId=copy))["status"] == "unsubscribed"
            assert (await client.call("thread/unsubscribe", threadId=copy))["status"] == "notLoaded"
            await client.call("thread/delete", threadId=copy)
            assert not (await client.call("thread/list"))["data"]
            of_schema(client)


async def test_what_is_said_as_a_turn_ends_is_answered(tmp_path: Path) -> None:
    with ScriptedModel(["One.", "To beta."]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start(config={"snapshots": True})  # a turn ends with a last look at all files
            client.forget()
            say = {"threadId": thread, "input": [{"type": "text", "text": "alpha"}]}
            turn = (await client.call("turn/start", **say))["turn"]["id"]
            await client.hear(lambda message: bool(client.items("agentMessage")))
            with suppress(RpcError):  # where the machine was busy, the turn has ended before
                await client.call("turn/steer", **say, expectedTurnId=turn)
                await client.hear(lambda message: len(client.items("agentMessage")) == 2)


async def test_requests_for_a_thread_wait_until_it_is_closed(tmp_path: Path) -> None:
    with ScriptedModel(["One."]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start()
            await client.turn(thread)
            methods = ("thread/unsubscribe", "thread/resume", "thread/resume", "thread/unsubscribe", "thread/resume")
            for asked in [await client.ask(method, threadId=thread) for method in methods]:
                await client.result(asked)


async def test_a_thread_that_cannot_be_opened_leaves_no_copy_and_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(path: Path) -> Any:
        raise RpcError({"code": 0, "message": "unreadable"})  # as of a failing disk, which cannot be had here

    missing = {"mcp_servers": {"gone": {"command": "/nonexistent", "required": True}}}
    with ScriptedModel(["One."]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start()
            await client.turn(thread)
            await client.call("thread/unsubscribe", threadId=thread)
            for method in ("thread/fork", "thread/resume"):
                with pytest.raises(RpcError, match="gone"):
                    await client.call(method, threadId=thread, config=missing)
                with monkeypatch.context() as broken:
                    broken.setattr(opened, "turns_of", unreadable)
                    with pytest.raises(RpcError, match="unreadable"):
                        await client.call(method, threadId=thread)
            assert [one["id"] for one in (await client.call("thread/list"))["data"]] == [thread]
            await client.call("thread/resume", threadId=thread)


async def test_models_configuration_and_commands_need_no_thread(tmp_path: Path) -> None:
    with ScriptedModel([], models=("a", "b")) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            listed = (await client.call("model/list"))["data"]
            assert [(one["id"], one["isDefault"]) for one in listed] == [("gpt-5.5", True), ("a", False), ("b", False)]
            config = (await client.call("config/read"))["config"]
            assert config["model"] == "gpt-5.5" and config["sandbox_mode"] == "workspace-write"
            (tmp_path / "work" / "folder").mkdir()
            (tmp_path / "work" / "folder" / "reader.py").touch()
            root = str(tmp_path / "work")
            [found] = (await client.call("fuzzyFileSearch", query="rdr", roots=[root]))["files"]
            assert (found["root"], found["path"], found["file_name"]) == (root, "folder/reader.py", "reader.py")
            assert (await client.call("account/read")) == {"account": None, "requiresOpenaiAuth": False}
            assert (await client.call("configRequirements/read")) == {"requirements": None}
            (tmp_path / "home" / "skills" / "s").mkdir(parents=True)
            (tmp_path / "home" / "skills" / "s" / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\n")
            [entry] = (await client.call("skills/list", cwds=[root]))["data"]
            assert [(one["name"], one["scope"], one["enabled"]) for one in entry["skills"]] == [("s", "user", True)]
            script = "echo hi; echo err >&2; echo $WORD; touch a; exit 3"
            words = ["sh", "-c", script]
            done = await client.call("command/exec", command=words, env={"WORD": "w"}, timeoutMs=20_000)
            assert done == {"exitCode": 3, "stdout": "hi\nw\n", "stderr": "err\n"}
            outside = {"command": ["touch", str(tmp_path / "outside")], "timeoutMs": 20_000}
            assert (await client.call("command/exec", **outside))["exitCode"] and not (tmp_path / "outside").exists()
            long = asyncio.create_task(client.call("command/exec", command=["sleep", "60"], timeoutMs=200))
            assert (await long)["exitCode"] == 124
            wrong: dict[str, Any]
            for wrong in ({"command": []}, {"command": ["true"], "tty": True}, {"command": ["no-such-program"]}):
                with pytest.raises(RpcError, match="command"):
                    await client.call("command/exec", **wrong)


def test_the_schema_has_every_method() -> None:
    assert jsonschema_rs.meta.is_valid(WHOLE)
    assert len(VALIDATORS) == len(WHOLE["oneOf"])
    assert VALIDATORS.keys() > METHODS.keys() | {"initialize", "item/tool/call", "turn/completed"}
