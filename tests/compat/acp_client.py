"""acpx, a published client of the Agent Client Protocol, drives `ferrule acp`: a line for each point."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ferrule.testing import ScriptedModel, function_call, message, reasoning

PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch"
ASKS = {"command": "touch approved", "sandbox_permissions": "require_escalated", "justification": "it must"}


class Place:
    """A project, a home, and the client in it."""

    def __init__(self, client: str, folder: Path) -> None:
        self._client = client
        self.work = folder / "work"
        self.work.mkdir()
        (self.work / "a.txt").write_text("one\n")
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "FERRULE_HOME": str(folder / "home"),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }

    def run(self, model: ScriptedModel, *words: str) -> str:
        """Run the client and return what it prints."""
        command = f"{sys.executable} -m ferrule acp -m scripted-model --base-url {model.base_url}"
        done = subprocess.run(
            [self._client, "--agent", command, "--cwd", str(self.work), *words],
            env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr


def answers(place: Place) -> bool:
    with ScriptedModel([[reasoning("hm"), message("Hello from Ferrule.")]]) as model:
        return "Hello from Ferrule." in place.run(model, "exec", "say hello")


def runs_a_command(place: Place) -> bool:
    steps = [[function_call("shell_command", {"command": "echo from-the-shell"})], [message("ok")]]
    with ScriptedModel(steps) as model:
        return "from-the-shell" in place.run(model, "--approve-all", "exec", "go")


def edits_through_its_files(place: Place) -> bool:
    with ScriptedModel([[function_call("apply_patch", {"input": PATCH})], [message("ok")]]) as model:
        told = place.run(model, "--approve-all", "--format", "json", "exec", "go")
    messages = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    diffs = [part for one in messages for part in _content(one) if part.get("type") == "diff"]
    whole = bool(diffs) and (diffs[-1]["oldText"], diffs[-1]["newText"]) == ("one\n", "two\n")
    return whole and (place.work / "a.txt").read_text() == "two\n"


def _content(message: dict[str, object]) -> list[dict[str, str]]:
    params = message.get("params")
    update = params.get("update") if isinstance(params, dict) else None
    content = update.get("content") if isinstance(update, dict) else None
    return content if isinstance(content, list) else []


def asks_and_does_it_after_a_yes(place: Place) -> bool:
    with ScriptedModel([[function_call("shell_command", ASKS)], [message("ok")]]) as model:
        place.run(model, "--approve-all", "exec", "go")
    return (place.work / "approved").exists()


def does_nothing_after_a_no(place: Place) -> bool:
    with ScriptedModel([[function_call("shell_command", ASKS)], [message("ok")]]) as model:
        place.run(model, "--deny-all", "exec", "go")
        return not (place.work / "approved").exists() and "rejected" in str(model.last_request.body)


def goes_on_with_a_session(place: Place) -> bool:
    with ScriptedModel([[message("first")], [message("second")]]) as model:
        place.run(model, "sessions", "new")
        first = place.run(model, "prompt", "remember-me")
        second = place.run(model, "--ttl", "1", "prompt", "more")
        place.run(model, "sessions", "close")
        return "first" in first and "second" in second and "remember-me" in model.last_request.user_text


POINTS: tuple[Callable[[Place], bool], ...] = (
    answers,
    runs_a_command,
    edits_through_its_files,
    asks_and_does_it_after_a_yes,
    does_nothing_after_a_no,
    goes_on_with_a_session,
)


def main(client: str) -> int:
    failed = 0
    for point in POINTS:
        with tempfile.TemporaryDirectory() as folder:
            passed = point(Place(client, Path(folder).resolve()))
        failed += not passed
        print(f"{'ok  ' if passed else 'FAIL'} acpx: {point.__name__.replace('_', ' ')}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
