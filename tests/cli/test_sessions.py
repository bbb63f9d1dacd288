"""`ferrule sessions`, and resuming by name, directory and path."""

import json
from pathlib import Path

import pytest

from ferrule.testing import ScriptedModel, function_call
from tests.cli.command import FULL_ACCESS, Place


def begin(place: Place, url: str, prompt: str, cwd: Path | None = None) -> str:
    done = place.run("exec", "--json", *FULL_ACCESS, "--base-url", url, prompt, cwd=cwd)
    assert done.code == 0, done.err
    return str(done.lines[0]["thread_id"])


def test_a_life_of_sessions(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with ScriptedModel(["a", "b", "c", "d", "e", "f"]) as server:
        first, second = begin(place, server.base_url, "row"), begin(place, server.base_url, "sail", other)
        listed = place.run("sessions").out
        assert first in listed and "row" in listed and second not in listed
        entries = [json.loads(line) for line in place.run("sessions", "list", "--all", "--json").out.splitlines()]
        assert [entry["id"] for entry in entries] == [second, first]
        assert entries[0]["cwd"] == str(other) and entries[0]["name"] == ""
        assert place.run("sessions", "rename", first, "harbour").code == 0
        assert "harbour" in place.run("sessions", "list").out
        shown = place.run("sessions", "show", "harbour").out
        assert "user:\nrow" in shown and "model:\na" in shown
        fork = place.run("sessions", "fork", "harbour").out.splitlines()[-1]
        assert fork not in (first, second)
        assert place.run("exec", "resume", "harbour", "more").code == 0
        assert "row" in server.last_request.raw.decode() and "more" in server.last_request.raw.decode()
        assert place.run("exec", "resume", "--last", "again").code == 0
        assert "more" in server.last_request.raw.decode()
        assert place.run("exec", "resume", "--last", "here", cwd=other).code == 0
        assert "sail" in server.last_request.raw.decode()
        exported = place.run("sessions", "export", second).out
        assert json.loads(exported.splitlines()[0])["payload"]["id"] == second
        assert place.run("sessions", "archive", first).code == 0
        assert first not in place.run("sessions", "list", "--all").out
        assert place.run("sessions", "rm", second).code == 0
        assert place.run("sessions", "show", second).code == 2
        assert fork in place.run("sessions", "list", "--all").out


@pytest.mark.parametrize("wire", ["responses", "chat", "messages"])
def test_a_session_of_codex_is_brought_by_its_path(place: Place, tmp_path: Path, wire: str) -> None:
    def line(kind: str, payload: object) -> str:
        return json.dumps({"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}) + "\n"

    def said(role: str, text: str) -> str:
        kind = "output_text" if role == "assistant" else "input_text"
        return line("response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": text}]})

    path = tmp_path / "rollout-2026-01-01T00-00-00-0193a0b2-5f3e-7c4d-8e5f-60718293a4b5.jsonl"
    path.write_text(
        line("session_meta", {"id": "0193a0b2-5f3e-7c4d-8e5f-60718293a4b5", "timestamp": "2026-01-01T00:00:00.000Z",
                              "cwd": "/nowhere", "originator": "codex", "cli_version": "0.1", "source": "cli",
                              "model_provider": "evil", "git": {"branch": "x"}})
        + said("user", "<environment_context>\n  <cwd>/nowhere</cwd>\n</environment_context>")
        + said("user", "old words that were summarised")
        + said("assistant", "old answer")
        + line("compacted", {"message": "THE SUMMARY"})
        + line("turn_context", {"cwd": "/nowhere", "approval_policy": "never", "model": "gpt-5.5",
                                "sandbox_policy": {"type": "danger-full-access"}, "summary": "auto"})
        + said("user", "the boat is blue")
        + line("response_item", {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"})
        + line("event_msg", {"type": "token_count", "info": {"total_token_usage": {"input_tokens": 1}}})
    )  # fmt: skip
    before = path.read_bytes()
    with ScriptedModel(["it is blue", "still blue"]) as server:
        done = place.run("exec", "--json", *FULL_ACCESS, "--base-url", server.base_url, "--wire", wire,
                         "resume", str(path), "which colour?")  # fmt: skip
        assert done.code == 0, done.err
        body = server.last_request.raw.decode()
        assert "the boat is blue" in body and "THE SUMMARY" in body and "which colour?" in body
        assert "old answer" not in body and "aborted" in body and not server.failures
        assert path.read_bytes() == before
        new = done.lines[0]["thread_id"]
        assert new != "0193a0b2-5f3e-7c4d-8e5f-60718293a4b5"
        assert place.run("exec", "resume", new, "and now?").code == 0
        assert "the boat is blue" in server.last_request.raw.decode() and not server.failures


def test_undo_of_a_stored_session(place: Place) -> None:
    add = function_call("apply_patch", {"input": "*** Begin Patch\n*** Add File: f.txt\n+one\n*** End Patch"})
    with ScriptedModel([[add], "a", [add], "b", "c"]) as server:
        session = begin(place, server.base_url, "row")
        assert (place.cwd / "f.txt").exists()
        done = place.run("sessions", "undo", session)
        assert done.code == 0 and "taken back: " in done.out and "snapshots = true" in done.out
        assert not (place.cwd / "f.txt").exists()
        assert place.run("sessions", "undo", "--last").code == 2
        assert place.run("sessions", "undo").code == 2
        assert place.run("exec", "resume", session, "again").code == 0
        assert server.last_request.raw.decode().count("<changes_taken_back>") == 1
        assert "<changes_taken_back>" not in place.run("sessions", "show", session).out
        (place.cwd / "f.txt").write_text("by hand")
        left = place.run("sessions", "undo", "--last")
        assert left.code == 1 and "left alone" in left.out and (place.cwd / "f.txt").read_text() == "by hand"
        assert (place.home / "undo" / session).exists()
        assert place.run("sessions", "rm", session).code == 0
        assert not (place.home / "undo" / session).exists()
