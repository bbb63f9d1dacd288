"""A gateway whose containers run on an imported image."""

import asyncio
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.containers.images import Images
from ferrule.containers.report import containers_report
from ferrule.sandbox.linux.holders import can_map_ids
from ferrule.testing import ScriptedModel
from tests.containers.small import import_root, small_root
from tests.gateway.served import new_place, serving
from tests.gateway.test_containers import does

NODE = "#!/bin/sh\necho v99.1.$(id -u)\n"
USER = 7


def test_clients_get_containers_on_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = new_place(tmp_path)
    root = tmp_path / "root"
    small_root(root, ("sh", "cat", "id"))
    user = USER if can_map_ids(tmp_path) else 0
    (root / "usr/local/bin").mkdir(parents=True)
    (root / "usr/local/bin/node").write_text(NODE)
    (root / "usr/local/bin/node").chmod(0o755)
    import_root(place.home, root, "small", {"Env": ["PATH=/bin:/usr/local/bin", "OF_IMAGE=yes"], "User": f"{USER}:8"})
    chosen = ("-c", "gateway.containers.image=small", "-c", "gateway.containers.spares=0")
    with (
        ScriptedModel(does) as model,
        serving(place, model.base_url, *chosen) as gateway,
    ):
        tools = [{"type": "shell", "environment": {"type": "container_auto"}}]
        said = gateway.create(input="$echo $OF_IMAGE $(pwd) $(id -u); cat /etc/hostname", tools=tools)
        assert f"yes /mnt/data {user}\ncontainer" in said["output"][-1]["content"][0]["text"]
        told = str(model.requests[0].body["tools"])
        assert f"There are Node.js 99.1.{user}. There is no Python" in told and "with sh" in told
        assert gateway.ask("POST", "/containers", {"name": "mine"}).json["status"] == "running"
        code = [{"type": "code_interpreter", "container": {"type": "auto"}}]
        failed = gateway.create(input="print(1)", tools=code, include=["code_interpreter_call.outputs"])
        assert "this container has no Python" in failed["output"][0]["outputs"][0]["logs"]
    monkeypatch.setenv("FERRULE_HOME", str(place.home))
    assert main(["serve", "-c", "gateway.containers.image=none", "--base-url", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err.startswith("ferrule: there is no image 'none'")
    report = asyncio.run(containers_report(Images(place.home / "images").get("small")))
    assert [line for line in report if f"on the image small: There are Node.js 99.1.{user}." in line]
