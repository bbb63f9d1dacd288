"""The tool `file_search` in a session: which folders it searches, what the model reads, and what is told."""

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from ferrule.protocol.embedding_settings import EmbeddingsSettings, FileSearchSettings
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import AskForApproval, ReadOnly
from ferrule.protocol.settings import Features, ModelSettings, ProviderSettings, Settings
from ferrule.retrieval.folder_search import FolderSearch
from ferrule.session.opening import open_session
from ferrule.session.parser import ConfinedParser
from ferrule.testing import ScriptedModel, function_call
from tests.documents.papers import docx, paragraph
from tests.retrieval.embedding_server import EmbeddingServer

ASK = function_call("file_search", {"query": "how high is the tower"})


def settings(folder: Path, model: ScriptedModel, *folders: str, **more: Any) -> Settings:
    return Settings(
        cwd=str(folder),
        home=str(folder / "home"),
        model=ModelSettings(model="m-1"),
        provider=ProviderSettings(name="up", base_url=model.base_url, wire_api="chat"),
        approval_policy=AskForApproval.NEVER,
        sandbox_policy=ReadOnly(),
        file_search=FileSearchSettings(folders=folders),
        **more,
    )


@pytest.fixture
def server() -> Any:
    server = EmbeddingServer()
    yield server
    server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve()
    (folder / "docs").mkdir()
    (folder / "docs" / "towers.md").write_text("# Towers\n\nThe tower of Brix is 42 m high【1】.\n")
    return folder


async def ask(settings: Settings, model: ScriptedModel, **more: Any) -> str:
    async with await open_session(settings, **more) as session:
        await session.run("How high?")
    (output,) = model.last_request.outputs
    return output.text


async def test_an_agent_searches_the_users_folders(folder: Path, server: EmbeddingServer) -> None:
    embeddings = EmbeddingsSettings(base_url=server.url, model="toy", env_key="E_KEY")
    with ScriptedModel([[ASK], "42 m【docs/towers.md:1】."]) as model:
        chosen = settings(folder, model, "docs", "~/nowhere", embeddings=embeddings)
        read = await ask(chosen, model, env={"E_KEY": "sk-secret", "HOME": str(folder)})
        assert "file_search" in model.requests[0].tool_names
        assert "sk-secret" not in str([request.body for request in model.requests])
    assert read.startswith("【docs/towers.md:1】\n# Towers\n\nThe tower of Brix is 42 m high[1].")
    assert "nowhere cannot be indexed: No such file or directory." in read
    assert server.keys[0] == "Bearer sk-secret" and "how high is the tower" in server.texts()
    assert not [file for file in (folder / "home").rglob("*") if file.is_file() and b"sk-secret" in file.read_bytes()]


async def test_a_document_is_read_by_a_confined_parser(tmp_path: Path) -> None:
    async with aclosing(ConfinedParser(str(tmp_path))) as parser:
        assert await parser.parse("a.docx", docx(paragraph("The tower is high."))) == "The tower is high."
        assert await parser.parse("b.pdf", b"%PDF-1.7 broken") == ""


async def test_the_index_is_begun_with_the_session(folder: Path) -> None:
    with ScriptedModel(["Done."]) as model:
        async with await open_session(settings(folder, model, str(folder / "docs"))) as session:
            access = session._dialogue.toolset.conversation.file_search
            assert access is not None and access._search is not None and access._search._opening is not None


async def test_a_sub_agent_shares_the_search_of_the_session_that_starts_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    make = FolderSearch.__init__

    def noted(self: FolderSearch, *arguments: Any, **options: Any) -> None:
        opened.append(self)
        make(self, *arguments, **options)

    monkeypatch.setattr(FolderSearch, "__init__", noted)
    spawned = function_call("spawn_agent", {"message": "CHILD TASK"})
    with ScriptedModel([[spawned], _wait, [ASK], "Done."]) as model:
        model.play([ASK], "42 m", when="CHILD TASK")
        async with await open_session(settings(folder, model, "docs", features=Features(multi_agent=True))) as session:
            await session.run("How high?")
        answers = [output.text for output in model.last_request.outputs]
    assert "42 m" in answers[1] and answers[2].startswith("【docs/towers.md:1】") and len(opened) == 1


def _wait(request: Any) -> list[dict[str, Any]]:
    return [function_call("wait", {"ids": [json.loads(request.outputs[0].text)["agent_id"]]})]


async def test_without_folders_there_is_no_such_tool_and_a_call_names_the_setting(folder: Path) -> None:
    with ScriptedModel(["Done."]) as model:
        async with await open_session(settings(folder, model)) as session:
            await session.run("How high?")
        assert "file_search" not in model.requests[0].tool_names
    with ScriptedModel([[ASK], "Done."]) as model:
        assert "the setting file_search.folders is missing" in await ask(
            settings(folder, model), model, tools=["file_search"]
        )


async def test_an_empty_query_is_refused(folder: Path) -> None:
    with ScriptedModel([[function_call("file_search", {"query": " "})], "Done."]) as model:
        assert "query must not be empty" in await ask(settings(folder, model, "docs"), model)


async def test_embeddings_that_say_too_little_end_the_session_before_it_begins(folder: Path) -> None:
    with ScriptedModel([]) as model, pytest.raises(UsageError, match=r"embeddings\.model is missing"):
        await open_session(
            settings(folder, model, "docs", embeddings=EmbeddingsSettings(base_url="http://127.0.0.1:1"))
        )
