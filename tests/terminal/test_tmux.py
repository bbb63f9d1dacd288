"""The whole command on a real terminal, by tmux."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.testing import Gate, ScriptedModel, Stall, custom_tool_call, function_call, step
from ferrule.testing.steps import StepLike
from tests.cli.command import COMMAND, Place, wait_until
from tests.cli.played import execute
from tests.processes import alive
from tests.programs import need
from tests.terminal.test_first_steps import PATCH
from tests.terminal.test_output import PLACEHOLDER, whole_png


class Pane:
    """One terminal of tmux, with a shell that tells the command's exit code."""

    def __init__(self, folder: Path, place: Place) -> None:
        self._socket = folder / "tmux"
        self._place = place

    def tmux(self, *words: str) -> str:
        """Run tmux on a server of our own."""
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words],
            env=self._place.env(), capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        return done.stdout

    def start(self, url: str, *flags: str) -> None:
        """Start the command after a line that has to come back."""
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", self._shell(url, *flags))

    def start_again(self, url: str, *words: str) -> None:
        """Start it in the same terminal, in place of what was there."""
        self.tmux("respawn-pane", "-k", self._shell(url, *words))

    def _shell(self, url: str, *words: str) -> str:
        """Return a shell that runs the command, and tells how it ended and left the terminal."""
        first, rest = (words[:1], words[1:]) if words[:1] == ("resume",) else ((), words)
        command = shlex.join([*COMMAND, *first, "--base-url", url, "--wire", "responses", "-m", "gpt-5.5", *rest])
        folder = shlex.quote(str(self._place.cwd))
        script = (
            f"cd {folder}; export VISUAL=false; echo before; {command}; echo code $?; stty -a; echo ended; read end"
        )
        return f"/bin/sh -c {shlex.quote(script)}"

    @property
    def screen(self) -> str:
        """What is on it."""
        return self.tmux("capture-pane", "-p")

    def until(self, text: str) -> str:
        """Wait until this is on it."""
        seen = ""

        def shows() -> bool:
            nonlocal seen
            seen = self.screen
            return text in seen

        try:
            wait_until(shows, 40)
        except AssertionError:
            raise AssertionError(f"{text!r} does not come:\n{seen}") from None
        return seen

    def type(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        self.tmux("send-keys", *keys)

    def say(self, text: str) -> None:
        """Type a text and send it."""
        self.tmux("send-keys", "-l", text)
        self.until(text)
        self.type("Enter")

    def child(self) -> int:
        """The command's process."""
        pid = self.tmux("list-panes", "-F", "#{pane_pid}").strip()
        while Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] != COMMAND[0]:
            pid = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        return int(pid)


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    need("tmux")
    (tmp_path / "work").mkdir()
    made = Pane(tmp_path, Place(tmp_path / "work", tmp_path / "user" / ".ferrule"))
    yield made
    made.tmux("kill-server")


def test_a_task_is_approved_steered_interrupted_and_left(pane: Pane, tmp_path: Path) -> None:
    gate = Gate()
    script: list[StepLike] = [
        custom_tool_call("apply_patch", PATCH),
        step("Written.", stall=Stall(at="Writ", gate=gate)),
        "Steered.",
        execute("echo $$ > pid; kill -9 $$", 10_000),
        execute("echo $$ > pid; exec sleep 60", 60_000),
        "Never said.",
    ]
    with ScriptedModel(script) as model:
        pane.start(model.base_url, "-s", "danger-full-access", "-a", "untrusted")
        pane.until("ferrule ")
        pane.say("write it")
        pane.until("Write this patch?")
        pane.type("y")
        gate.wait_reached()
        pane.say("and more")
        gate.open()
        pane.until("Steered.")
        assert (tmp_path / "work" / "hello.txt").read_text() == "hello\nworld\n"
        pane.say("run")
        pane.until("Run this command?")
        pane.type("y")
        pane.until("✗ exit")
        pane.until("Run this command?")
        pane.type("y")
        wait_until(lambda: (tmp_path / "work" / "pid").exists() and "sleep 60" in pane.screen)
        pane.until("… 1 s")
        pane.type("Escape")
        pane.until("interrupted")
        pane.say("/quit")
        screen = pane.until("ended\n")
        assert screen.startswith("before\ncode 0\n") and "ferrule " not in screen
        assert " echo " in screen and " icanon " in screen, "the terminal is as it was"
        assert not alive(int((tmp_path / "work" / "pid").read_text()))


def test_a_child_a_compaction_and_a_resume(pane: Pane, tmp_path: Path) -> None:
    (tmp_path / "work" / "p.png").write_bytes(whole_png())
    script: list[StepLike] = [
        function_call("spawn_agent", {"message": "the childs task"}),
        "Started.",
        function_call("view_image", {"path": "p.png"}),
        "Seen.",
        "A summary of it.",
        "Later.",
    ]
    with ScriptedModel(script) as model:
        model.play(execute("touch made", 10_000), "Childs words.", when="the childs task")
        pane.start(model.base_url, "-s", "danger-full-access", "-a", "untrusted", "-c", "features.multi_agent=true")
        pane.until("ferrule ")
        pane.say("go")
        pane.until("(sub-agent ")
        pane.type("y")
        pane.until(" is done")
        assert (tmp_path / "work" / "made").exists() and "Childs words." in pane.until("Started.")
        pane.say("look")
        seen = pane.until("Seen.")
        assert " image /" in seen and PLACEHOLDER not in seen
        pane.say("/compact")
        pane.until("conversation compacted: ")
        pane.say("/quit")
        pane.until("ended\n")
        pane.start_again(model.base_url, "resume", "--last")
        pane.until("› look")
        pane.say("and later")
        pane.until("Later.")
        assert "A summary of it." in model.last_request.raw.decode()
        pane.say("/quit")
        screen = pane.until("ended\n")
        assert screen.startswith("before\ncode 0\n") and " echo " in screen and " icanon " in screen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_and_an_editor_that_fails_restore_the_terminal(pane: Pane, number: signal.Signals) -> None:
    with ScriptedModel() as model:
        pane.start(model.base_url, "-s", "danger-full-access")
        pane.until("ferrule ")
        pane.tmux("send-keys", "-H", "ff", "61")
        pane.until("› \N{REPLACEMENT CHARACTER}a")  # a byte that is no text
        pane.type("C-g")
        pane.until("the editor ended with 1")  # the terminal was lent to it, and is taken back
        os.kill(pane.child(), number)
        screen = pane.until("ended\n")
        assert screen.startswith("before\ncode 130\n") and " echo " in screen and " icanon " in screen


def test_a_window_that_is_closed_ends_it_and_its_commands(pane: Pane, tmp_path: Path) -> None:
    with ScriptedModel([execute("echo $$ > pid; exec sleep 60", 60_000)]) as model:
        pane.start(model.base_url, "-s", "danger-full-access", "-a", "never")
        pane.until("ferrule ")
        pane.say("go")
        pane.until("… 1 s")
        ours, command = pane.child(), int((tmp_path / "work" / "pid").read_text())
        pane.tmux("kill-server")
        wait_until(lambda: not alive(ours) and not alive(command))
