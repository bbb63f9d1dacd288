"""Images in a session, with any model: a file of the workspace, shown by the events, and what guards it."""

import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from ferrule.dispatch.front_end import callbacks
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.events import Event, ExecApproval, ItemCompleted, PatchApplyEnd, TurnDiff, ViewImage
from ferrule.protocol.image_settings import ImageGenerationSettings
from ferrule.protocol.permissions import AskForApproval, ReadOnly, ReviewDecision, WorkspaceWrite
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.session.opening import open_session
from ferrule.testing import ScriptedModel, function_call
from ferrule.tools.events import ToolEvent
from tests.image_generation.conftest import paints, server  # noqa: F401 - fixtures
from tests.image_generation.painter import Painter, Reply, colour_at, drawn, in_json
from tests.image_generation.test_command import PROGRAM

NAMES = ("a-red-wall-as-an-oil-painting.png", "a-red-wall-as-an-oil-painting-2.png")


def settings(
    folder: Path, model: ScriptedModel, table: ImageGenerationSettings | None, *, wire: Wire = "chat", **more: Any
) -> Settings:
    (folder / "work").mkdir(exist_ok=True)
    rights: dict[str, Any] = {"approval_policy": AskForApproval.NEVER, "sandbox_policy": WorkspaceWrite()}
    return Settings(
        cwd=str(folder / "work"),
        home=str(folder / "home"),
        model=ModelSettings(model="gpt-5.5"),
        provider=ProviderSettings(name="up", base_url=model.base_url, wire_api=wire),
        image_generation=table,
        **rights | more,
    )


def draw(prompt: str) -> dict[str, Any]:
    return function_call("image_generation", {"prompt": prompt})


def of(server: Painter, **more: Any) -> ImageGenerationSettings:  # noqa: F811
    return ImageGenerationSettings(base_url=server.base_url, **more)


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_an_image_becomes_a_file_and_is_shown(tmp_path: Path, paints: Painter, wire: Wire) -> None:  # noqa: F811
    events: list[Event | ToolEvent] = []
    with ScriptedModel(
        [[draw("A red wall, as an oil painting!")], [draw("a red wall as an OIL painting")], "ok"]
    ) as model:
        chosen = settings(tmp_path, model, of(paints, model="flux"), wire=wire)
        async with await open_session(chosen, callbacks(events.append, None, None)) as session:
            await session.run("draw")
            made = [Path(tmp_path, "work", name).read_bytes() for name in NAMES]
            undone = await session.undo()
        assert "image_generation" in model.requests[0].tool_names
        outputs = model.last_request.outputs
    assert [colour_at(image, 1, 1) for image in made] == [(255, 0, 0)] * 2
    assert undone is not None and list((tmp_path / "work").iterdir()) == []
    told = [f"The image is in {name} (PNG, 64x48 pixels)." for name in NAMES]
    assert [output.text[: len(said)] for output, said in zip(outputs, told, strict=True)] == told
    assert [asked.fields["model"] for asked in paints.asked] == ["flux", "flux"]
    looked = [event.path for event in events if isinstance(event, ViewImage)]
    assert looked == [str(tmp_path / "work" / name) for name in NAMES]
    assert [event.success for event in events if isinstance(event, PatchApplyEnd)] == [True, True]
    diff = [event.unified_diff for event in events if isinstance(event, TurnDiff)][-1]
    assert f"Binary files /dev/null and b/{NAMES[0]} differ" in diff
    shown = [event.output for event in events if isinstance(event, ItemCompleted) and event.output is not None]
    body = shown[0].body
    assert isinstance(body, tuple)
    text, image = body
    assert isinstance(text, InputText) and isinstance(image, InputImage)
    assert colour_at(b64decode((image.image_url or "").partition(",")[2]), 1, 1) == (255, 0, 0)


async def test_what_a_backend_does_wrong_is_told_and_leaves_no_file(tmp_path: Path, paints: Painter) -> None:  # noqa: F811
    paints.answer = lambda asked: Reply([b"down"], status=503)
    with ScriptedModel([[draw("red")], [function_call("image_generation", {"prompt": ""})], "ok"]) as model:
        async with await open_session(settings(tmp_path, model, of(paints))) as session:
            await session.run("draw")
        failed, empty = (output.text for output in model.last_request.outputs)
    assert failed == "The image server answered with the status 503. There is no image."
    assert "prompt" in empty and len(paints.asked) == 1
    assert list((tmp_path / "work").iterdir()) == []


async def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path, paints: Painter) -> None:  # noqa: F811
    def late(asked: object) -> Reply:
        (tmp_path / "work" / "red.png").write_text("mine")
        return in_json(drawn("red"))

    paints.answer = late
    with ScriptedModel([[draw("red")], "ok"]) as model:
        async with await open_session(settings(tmp_path, model, of(paints))) as session:
            await session.run("draw")
        (output,) = model.last_request.outputs
    assert (tmp_path / "work" / "red.png").read_text() == "mine" and "red.png" in output.text


@pytest.mark.parametrize("answer", [ReviewDecision.APPROVED, ReviewDecision.DENIED])
async def test_under_untrusted_the_user_is_asked_once_before_anything_is_sent(
    tmp_path: Path,
    paints: Painter,  # noqa: F811
    answer: ReviewDecision,
) -> None:
    questions: list[ExecApproval] = []

    def decide(question: ExecApproval) -> ReviewDecision:
        assert paints.asked == []
        questions.append(question)
        return answer

    with ScriptedModel([[draw("red secret")], "ok"]) as model:
        chosen = settings(tmp_path, model, of(paints), approval_policy=AskForApproval.UNTRUSTED)
        async with await open_session(chosen, callbacks(None, decide, None)) as session:
            await session.run("draw")
    (question,) = questions
    assert "image_generation: red secret" in question.text and "red-secret.png" in question.text
    assert len(paints.asked) == (answer is ReviewDecision.APPROVED)


async def test_a_read_only_session_makes_no_image(tmp_path: Path, paints: Painter) -> None:  # noqa: F811
    with ScriptedModel([[draw("red")], "ok"]) as model:
        async with await open_session(settings(tmp_path, model, of(paints), sandbox_policy=ReadOnly())) as session:
            await session.run("draw")
        assert "read-only" in model.last_request.outputs[0].text
    assert paints.asked == [] and list((tmp_path / "work").iterdir()) == []


async def test_a_program_makes_the_image(tmp_path: Path) -> None:
    table = ImageGenerationSettings(command=(sys.executable, PROGRAM))
    with ScriptedModel([[draw("a house")], "ok"]) as model:
        async with await open_session(settings(tmp_path, model, table)) as session:
            await session.run("draw")
        assert "The image is in a-house.png (PNG, 30x40 pixels)." in model.last_request.outputs[0].text


async def test_a_missing_setting_is_named_and_without_the_table_there_is_no_tool(tmp_path: Path) -> None:
    tables = [
        (ImageGenerationSettings(), "image_generation.base_url is missing"),
        (ImageGenerationSettings(base_url="localhost:1"), "has to begin with http"),
    ]
    with ScriptedModel() as model:
        for table, words in tables:
            model.add([draw("x")], "ok")
            async with await open_session(settings(tmp_path, model, table)) as session:
                await session.run("draw")
            assert words in model.last_request.outputs[0].text
        model.add("ok")
        async with await open_session(settings(tmp_path, model, None)) as session:
            await session.run("hi")
        assert "image_generation" not in model.last_request.tool_names
