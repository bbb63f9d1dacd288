"""Every tool that reads, on what never ends or does not stand there: an answer at once, and nothing is opened."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from ferrule import Agent
from tests.session.models import InProcessModel, calls, says
from tests.session.test_turn import outputs

PATCH = "*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch\n"
ENDS = (
    "FIFO",
    "socket",
    "not a directory",
    "not a file",
    "symbolic links",
    "does not exist",
    "No such file",
    "not a valid directory",
)


def readings(path: str) -> Iterator[tuple[str, dict[str, object]]]:
    """A call of each tool that opens a file or folder."""
    yield "read_file", {"file_path": path}
    yield "view_image", {"path": path}
    yield "list_dir", {"dir_path": path}
    yield "grep_files", {"pattern": "x", "path": path}
    yield "grep", {"pattern": "x", "path": path}
    yield "glob", {"pattern": "*", "path": path}
    yield "file_editor", {"command": "view", "path": path}
    yield "file_editor", {"command": "str_replace", "path": path, "old_str": "a", "new_str": "b"}
    yield "str_replace_based_edit_tool", {"command": "view", "path": path}
    yield "apply_patch", {"input": PATCH.format(path=path)}


async def test_b148_no_tool_waits_for_what_never_ends(tmp_path: Path) -> None:
    for fifo in ("fifo", "notebook.ipynb", "paper.pdf"):
        os.mkfifo(tmp_path / fifo)
    for link, target in (("picture.png", "fifo"), ("loop", "loop"), ("dangling", "nowhere")):
        (tmp_path / link).symlink_to(target)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        wanted = [one for name in os.listdir(tmp_path) for one in readings(str(tmp_path / name))]
        batch = [calls(tool, json.dumps(given), call_id=f"{at}") for at, (tool, given) in enumerate(wanted)]
        model = InProcessModel(batch, [says("ok")])
        agent = Agent(model, tools=list(dict(wanted)), cwd=tmp_path, sandbox="danger-full-access")
        async with await agent.open() as session, asyncio.timeout(20):
            await session.run("go")
            answers = dict(outputs(session))
    assert len(answers) == len(wanted) == 70
    for at, (tool, given) in enumerate(wanted):
        answer = answers[f"{at}"].lower()
        assert tool == "view_image" or any(end.lower() in answer for end in ENDS), (tool, given, answer)
