"""Models of one's own: calls as text, and what their servers are asked and told of."""

import base64
import json
import os
import re
from pathlib import Path

import pytest

from ferrule.testing import ScriptedModel
from tests.cli.command import FULL_ACCESS, Done, Place
from tests.own_server import OwnServer, llama_cpp, lm_studio, ollama, own_server

CALL = '<tool_call>\n{"name": "shell_command", "arguments": {"command": "echo seen"}}\n</tool_call>'


def test_exec_takes_the_key_and_a_resume_remembers_it(place: Place) -> None:
    with ScriptedModel([CALL, "First.", "Second."]) as model:
        flags = [f'model_providers.box={{base_url="{model.base_url}", tool_calls="text"}}', "model_provider=box"]
        configured = [part for flag in flags for part in ("-c", flag)]
        done = place.run("exec", *configured, "-m", "scripted-model", "--json", *FULL_ACCESS, "go")
        assert done.code == 0, done.err
        resumed = place.run("exec", "--json", *FULL_ACCESS, "resume", "--last", "again")
        assert resumed.code == 0, resumed.err
        bodies = [json.loads(request.raw) for request in model.requests]
    items = [line["item"] for line in done.lines if line["type"] == "item.completed"]
    (command,) = [item for item in items if item["type"] == "command_execution"]
    assert command["aggregated_output"] == "seen\n"
    assert all("tools" not in body for body in bodies)
    assert "<tool_response>" in json.dumps(bodies[-1]["messages"][:-1])


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def ask(place: Place, server: OwnServer, *arguments: str) -> Done:
    return place.run("exec", "--base-url", server.base_url, "-m", "m", *FULL_ACCESS, *arguments)


def errors(done: Done) -> list[str]:
    items = [line["item"] for line in done.lines if line["type"] == "item.completed"]
    return [item["message"] for item in items if item["type"] == "error"]


def test_a_template_that_drops_tools_is_told_while_the_model_works_and_by_doctor(place: Place) -> None:
    with own_server(llama_cpp(tools=False)) as server:
        done = ask(place, server, "--json", "go")
        shown = ask(place, server, "go")
        report = place.run("doctor", "--base-url", server.base_url, "-m", "m")
        assert server.asked[0] == "POST /v1/chat/completions", "the first request waits for nothing"
    (told,) = errors(done)
    assert done.code == 0 and done.lines[-1]["type"] == "turn.completed"
    assert "takes no tools" in told and 'tool_calls = "text"' in told and "--jinja" in told
    assert told in " ".join(shown.err.split()) and shown.out == "Done.\n"
    assert "llama.cpp: tools: no, images: no, context window: 32,768 tokens" in report.out
    assert f"PROBLEM: {told}" in report.out


def test_calls_as_text_need_no_template_with_tools(place: Place) -> None:
    with own_server(llama_cpp(tools=False)) as server:
        provider = f'model_providers.box={{base_url="{server.base_url}", tool_calls="text"}}'
        flags = ("-c", provider, "-c", "model_provider=box", "-m", "m")
        done = place.run("exec", *flags, *FULL_ACCESS, "--json", "go")
        report = place.run("doctor", *flags)
    assert (done.code, errors(done)) == (0, [])
    assert "tools: no" in report.out and "takes no tools" not in report.out


def test_a_window_too_small_for_the_tools_is_told_with_the_step_for_its_server(place: Place) -> None:
    for routes, step in (
        (llama_cpp(window=2048), "--ctx-size"),
        (ollama(capabilities=["tools"], parameters="num_ctx 2048"), "num_ctx"),
        (lm_studio(window=2048), "longer context"),
    ):
        with own_server(routes) as server:
            (told,) = errors(ask(place, server, "--json", "go"))
        assert "2,048 tokens" in told and step in told


def test_images_for_a_model_without_vision_are_told(place: Place) -> None:
    picture = Path(place.cwd, "p.png")
    picture.write_bytes(base64.b64decode(PIXEL))
    with own_server(llama_cpp()) as server:
        assert errors(ask(place, server, "--json", "go")) == []
        (told,) = errors(ask(place, server, "--json", "-i", str(picture), "go"))
    assert "takes no images" in told


def test_a_server_that_does_not_answer_such_questions_is_silent_and_holds_nothing_up(place: Place) -> None:
    with own_server() as server:
        done = ask(place, server, "--json", "go")
        assert (done.code, done.err, errors(done)) == (0, "", [])
    with own_server(held=["GET /props"]) as server:
        done = ask(place, server, "--json", "go")
        assert (done.code, done.err, errors(done)) == (0, "", [])


REAL = os.environ.get("FERRULE_TEST_LLAMACPP")
"""The base URL of a llama.cpp that runs a model: `docs/local_models.md` says how to start one from PyPI alone."""


@pytest.mark.skipif(REAL is None, reason="FERRULE_TEST_LLAMACPP is not set")
def test_a_real_llama_cpp_is_understood(place: Place) -> None:
    assert REAL is not None
    report = place.run("doctor", "--base-url", REAL)
    said = r"^abilities +llama\.cpp: tools: (yes|no), images: (yes|no), context window: [\d,]+ tokens$"
    assert re.search(said, report.out, re.MULTILINE)
