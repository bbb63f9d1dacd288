"""The terminal interface in lines only."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ferrule.doors.terminal.plain import Plain
from ferrule.session.talk import Opening
from ferrule.testing import ScriptedModel, custom_tool_call, function_call, reasoning, step
from ferrule.testing.steps import StepLike
from tests.cli.played import execute
from tests.terminal.screen import SECONDS, asking
from tests.terminal.test_dialogs import QUESTIONS
from tests.terminal.test_first_steps import PATCH


@dataclass
class Lines:
    """What was printed, and who types lines."""

    out: io.StringIO
    keys: int
    model: ScriptedModel

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self.keys, f"{line}\n".encode())

    async def until(self, text: str) -> str:
        """Wait until this is printed; return all that is."""
        try:
            async with asyncio.timeout(SECONDS):
                while text not in self.out.getvalue():  # noqa: ASYNC110 - a StringIO tells nobody
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{text!r} does not come:\n{self.out.getvalue()}") from None
        return self.out.getvalue()


@asynccontextmanager
async def talking(folder: Path, script: Sequence[StepLike], **changed: Any) -> AsyncIterator[Lines]:
    """A session in lines; ends with the input."""
    read, write = os.pipe()
    with ScriptedModel(script) as model, os.fdopen(read, encoding="utf-8") as source:
        lines = Lines(io.StringIO(), write, model)
        opening = Opening(settings=asking(folder, model.base_url, **changed))
        running = asyncio.create_task(Plain(opening, source, lines.out, 80).run())
        try:
            await lines.until("ferrule ")
            yield lines
        finally:
            os.close(write)
            await running
    assert "\x1b" not in lines.out.getvalue()


async def test_a_task_in_lines_with_an_approval_and_a_patch(tmp_path: Path) -> None:
    script: list[StepLike] = [
        step(reasoning("Thinking."), "I **write**.", custom_tool_call("apply_patch", PATCH)),
        execute("echo out; exit 3", 10_000),
        "# Done",
    ]
    async with talking(tmp_path, script) as lines:
        lines.type("write it")
        text = await lines.until("y, s, n, t? ")
        assert "· Thinking.\nI write.\n" in text and "Write this patch?" in text and " y yes, once" in text
        lines.type("y")
        text = await lines.until("Run this command?")
        assert "1 + hello" in text
        lines.type("y")
        text = await lines.until("\nDone\n")
        assert "command\n$ echo out; exit 3\n" in text and "  out\n  ✗ exit 3" in text
    assert (tmp_path / "hello.txt").read_text() == "hello\nworld\n"


async def test_a_patch_that_waits_is_a_whole_diff_with_line_numbers_in_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 13)))
    added = "".join(f"+line {number}\n" for number in range(90))
    patch = f"*** Begin Patch\n*** Update File: a.txt\n@@\n 10\n-11\n+eleven\n*** Add File: b.txt\n{added}*** End Patch"
    async with talking(tmp_path, [custom_tool_call("apply_patch", patch), "Ended."]) as lines:
        lines.type("write it")
        asked = await lines.until("y, s, n, t? ")
        assert "change a.txt +1 -1\n 8   8\n" in asked and "\n11 - 11\n11 + eleven\n" in asked
        assert all(f"\n{number + 1:>2} + line {number}\n" in asked for number in range(90))
        lines.type("n")
        await lines.until("Ended.")


async def test_a_no_with_words_and_an_answer_to_a_question(tmp_path: Path) -> None:
    asked = function_call("request_user_input", {"questions": QUESTIONS})
    script: list[StepLike] = [execute("touch made", 10_000), asked, "Ended."]
    async with talking(tmp_path, script, tools=("exec_command", "request_user_input")) as lines:
        lines.type("go")
        await lines.until("y, s, a, n, t? ")
        lines.type("t rather not")
        await lines.until("Which color?")
        lines.type("9")
        await lines.until("What name?")
        lines.type("Ada")
        await lines.until("Ended.")
        outputs = "".join(lines.model.outputs().values())
        assert "rather not" in outputs and '["9"]' in outputs and '["Ada"]' in outputs
    assert not (tmp_path / "made").exists()


async def test_commands_in_lines(tmp_path: Path) -> None:
    async with talking(tmp_path, ["One."], approval_policy="never") as lines:
        lines.type("/nonsense")
        await lines.until("no command /nonsense")
        lines.type("!echo by hand")
        await lines.until("  by hand\n  ✓ exit 0")
        lines.type("first")
        await lines.until("One.")
        lines.type("/copy")
        await lines.until("One.\nOne.\n")
        lines.type("/quit")
    assert b"by hand" in lines.model.last_request.raw


async def test_ctrl_c_ends_a_shell_command_in_lines(tmp_path: Path) -> None:
    async with talking(tmp_path, [], approval_policy="never") as lines:
        lines.type("!sleep 60")
        await lines.until("$ sleep 60")
        os.kill(os.getpid(), signal.SIGINT)
        await lines.until("  ✗ exit 143")
