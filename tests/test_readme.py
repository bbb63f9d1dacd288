"""The programs of README.md run as they stand; only the address of the model server is put in."""

import re
from pathlib import Path

import pytest

from ferrule import resolve_tool
from ferrule.testing import ScriptedModel, function_call, message
from ferrule.tools import catalogue
from tests.builtin.states import conversation

PROGRAMS = re.findall(r"```python\n(.*?)```", Path(__file__).parent.with_name("README.md").read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def _in_a_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("one two three\n")


def test_there_are_three() -> None:
    assert len(PROGRAMS) == 3


def test_an_agent(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [[function_call("word_count", {"path": "README.md"})], [message("It has three words.")]]
    with ScriptedModel(steps) as model:
        program = PROGRAMS[0].replace('model="gpt-5.5"', f'model="gpt-5.5", base_url="{model.base_url}"')
        exec(program, {})
        assert model.outputs() == {"call_1": "3"}
    assert capsys.readouterr().out == "It has three words.\n"


def test_the_openai_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [[function_call("exec_command", {"cmd": "cat README.md"})]]
    with ScriptedModel(script) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        names: dict[str, object] = {}
        exec(PROGRAMS[1], names)
        names["client"].close()  # type: ignore[attr-defined]
    assert "one two three" in str(names["outputs"])


async def test_a_typed_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_catalogue", {})
    exec(PROGRAMS[2], {})
    [tool] = resolve_tool("count_words", conversation(tmp_path))
    from tests.tools.contexts import context

    observation = await tool(tool.action_type(path="README.md"), context(cwd=tmp_path))
    assert observation.words == 3
