"""A server on a machine that lets nobody make containers says so to the client, with what helps."""

import shutil
from pathlib import Path

import pytest

from ferrule.testing import ScriptedModel
from tests.cli import command
from tests.gateway.served import new_place, serving
from tests.gateway.test_skills import shell

CLOSED = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
PYTHON = {"type": "code_interpreter", "container": {"type": "auto"}}


def test_without_user_namespaces_the_client_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    closed = ("unshare", "--user", "--map-root-user", "sh", "-c", CLOSED, "sh")
    monkeypatch.setattr(command, "COMMAND", (*closed, *command.COMMAND))
    with ScriptedModel(lambda request: "Without tools.") as model, serving(new_place(tmp_path), model.base_url) as here:
        asked = {"model": "m", "input": "hi"}
        for path, body, param in (
            ("/responses", asked | {"tools": [PYTHON]}, "tools[0].container"),
            ("/responses", asked | {"tools": [shell()], "stream": True}, "tools[0].environment"),
            ("/containers", {"name": "c"}, None),
        ):
            answer = here.ask("POST", path, body)
            assert (answer.status, answer.error["code"], answer.error["type"], answer.error["param"]) == (
                503, "container_unavailable", "server_error", param,
            ), answer.body  # fmt: skip
            assert "sysctl -w user.max_user_namespaces" in answer.error["message"]
        assert model.requests == []
        assert here.create()["output"][0]["content"][0]["text"] == "Without tools."
