"""A door for the tests of a module: one process, a session a test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ferrule.testing import ScriptedModel
from tests.acp.editor import Door, opened
from tests.cli.command import Place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    folder = tmp_path_factory.mktemp("acp").resolve()
    (folder / "work").mkdir()
    home = folder / "user" / ".ferrule"
    (home / "rules").mkdir(parents=True)
    (home / "rules" / "default.rules").write_text('prefix_rule(pattern=["echo", "forbidden"], decision="forbidden")\n')
    (home / "prompts").mkdir()
    (home / "prompts" / "greet.md").write_text("---\ndescription: says hello\n---\nSay hello to $1")
    tools = ["shell_command", "apply_patch", "read_file", "file_editor", "update_plan", "request_user_input"]
    with ScriptedModel(models=("scripted-model", "another-model")) as model:
        async with opened(
            Place(folder / "work", home), model, "-c", f"tools={tools}", "-c", "model_context_window=200000"
        ) as running_door:
            yield running_door
