"""Let the real Codex terminal interface drive our app-server, in tmux. Development only: started by
`scripts/compat_app_server` where a binary is given and tmux is there."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.headless import environment

from ferrule.testing import ScriptedModel
from tests.cli.played import execute

WAIT_S = 30.0
TOKEN_ENV = "FERRULE_TOKEN"
SOCKET = "ferrule-compat-app-server"


def main() -> int:
    """Say something, allow a command, and look at what came of it. Exits with 1 where it does not come."""
    if shutil.which("tmux") is None:
        print("the terminal interface is left out: there is no tmux")
        return 0
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferrule-compat-") as base:
        home, work = Path(base, "home"), Path(base, "work")
        home.mkdir()
        work.mkdir()
        (home / "auth.json").write_text('{"OPENAI_API_KEY": "unused"}')
        script: list[Any] = ["Hello from the model.", execute("touch made_here; echo hi", 9_000), "All done."]
        with ScriptedModel(script, models=("gpt-5.5",)) as model, served(model.base_url, home, work) as url:
            words = [f"HOME={home}", f"CODEX_HOME={home}", f"{TOKEN_ENV}=secret", sys.argv[1], "--remote", url]
            line = " ".join(["env", *words, "--remote-auth-token-env", TOKEN_ENV, "-C", str(work)])
            tmux("new-session", "-d", "-x", "120", "-y", "40", "-c", str(work), f"{line}; sleep 60")
            try:
                return play(work)
            finally:
                tmux("kill-server")


def play(work: Path) -> int:
    """Play the session."""
    steps = (
        ("Ask Codex", "hello there"),
        ("Hello from the model.", "make it"),
        ("Would you like to run", "y"),
        ("All done.", ""),
    )
    for awaited, typed in steps:
        deadline = time.monotonic() + WAIT_S
        while awaited not in (shown := tmux("capture-pane", "-p")):
            if time.monotonic() > deadline:
                print(f"the terminal interface does not show {awaited!r} but:\n{shown}")
                return 1
            time.sleep(0.2)
        time.sleep(0.5)  # it draws before it reads keys
        tmux("send-keys", "-l", typed)
        if len(typed) > 1:
            time.sleep(0.5)  # what comes at once with a line's end is a paste
            tmux("send-keys", "Enter")
    print("the terminal interface of the reference talked, asked and ran a command")
    return 0 if (work / "made_here").exists() else 1


@contextmanager
def served(base_url: str, home: Path, work: Path) -> Iterator[str]:
    """Our server; its URL."""
    program = subprocess.Popen(
        [
            str(Path(sys.executable).parent / "ferrule"), "app-server", "--websocket", "--bind", "127.0.0.1:0",
            "--token-env", TOKEN_ENV, "--base-url", base_url, "--wire", "responses", "-m", "gpt-5.5", "-a", "untrusted",
        ],
        cwd=work, env=environment(home) | {"FERRULE_HOME": str(home / "ferrule"), TOKEN_ENV: "secret"},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert program.stdout is not None
    try:
        yield program.stdout.readline().decode().strip()
    finally:
        program.terminate()
        program.wait()
        program.stdout.close()


def tmux(*words: str) -> str:
    """Run a command of tmux, in a server of its own."""
    return subprocess.run(["tmux", "-L", SOCKET, *words], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(main())
