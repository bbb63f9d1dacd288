from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.conversation import Conversation
from tests.builtin.workbench import Bench
from tests.processes import children, eventually, gained, held

SHELLS = ("exec_command", "write_stdin", "shell", "container.exec", "shell_command", "local_shell", "native_shell")


class Benches:
    """Makes benches and closes them all."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.made: list[Bench] = []

    def __call__(
        self,
        *names: str,
        cwd: Path | None = None,
        budget: OutputBudget | None = None,
        state: Conversation | None = None,
    ) -> Bench:
        bench = Bench(cwd or self.cwd, *(names or SHELLS), budget=budget, state=state)
        self.made.append(bench)
        return bench


@pytest.fixture
async def benches(tmp_path: Path) -> AsyncIterator[Benches]:
    """A maker of benches. Afterwards no child, zombie or thread of theirs may be left."""
    before = held()
    made = Benches(tmp_path)
    yield made
    for bench in made.made:
        await bench.close()
    assert eventually(lambda: not gained(before).threads)
    assert not gained(before).children


@pytest.fixture
def own_children() -> Callable[[], list[int]]:
    """Tells which child processes came with this test: servers that tests share are children too."""
    before = set(children())
    return lambda: [pid for pid in children() if pid not in before]


@pytest.fixture
def bench(benches: Benches) -> Bench:
    """All tools that run commands, and the patch tool that they hand patches to."""
    return benches(*SHELLS, "apply_patch")


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home: files of whoever runs the tests have no part in them."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FERRULE_HOME", raising=False)
    (tmp_path / "home").mkdir()
