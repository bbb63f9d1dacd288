"""What a project's files can do to `ferrule exec`: the model is told, and started, what the user has confirmed."""

import os
from pathlib import Path
from typing import Any

import pytest

from ferrule.testing import ScriptedModel
from tests.cli.command import FULL_ACCESS, Done, Place

SECRET = "sk-canary-4711"


def run(place: Place, *arguments: str, script: Any = ("Done.",), **more: Any) -> tuple[Done, str]:
    """One task; also everything that the model was sent."""
    with ScriptedModel(list(script)) as model:
        done = place.run("exec", "--base-url", model.base_url, "-m", "m", *FULL_ACCESS, *arguments, "go", **more)
        sent = "".join(request.raw.decode() for request in model.requests)
    return done, sent


@pytest.mark.parametrize("kind", ["pipe", "endless", "foreign", "environ", "folder", "dangling"])
def test_s17_an_agents_file_that_is_no_file_of_the_repository_is_passed_over(place: Place, kind: str) -> None:
    (place.cwd / ".git").mkdir()
    (place.cwd.parent / "secret").write_text(SECRET)
    file = place.cwd / "AGENTS.md"
    targets = {"endless": "/dev/zero", "foreign": "../secret", "environ": "/proc/self/environ", "dangling": "../none"}
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case _:
            file.symlink_to(targets[kind])
    (place.cwd / "sub").mkdir()
    (place.cwd / "sub" / "AGENTS.md").write_text("Use tabs.")
    done, sent = run(place, cwd=place.cwd / "sub", env={"API_KEY": SECRET})
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert SECRET not in sent and "Use tabs." in sent
    assert done.err.count("AGENTS.md") == 1 and f"{file} " in done.err, done.err


def test_s17_a_link_that_stays_in_the_repository_is_followed(place: Place) -> None:
    (place.cwd / ".git").mkdir()
    (place.cwd / "docs").mkdir()
    (place.cwd / "docs" / "guide.md").write_text("Use tabs.")
    (place.cwd / "AGENTS.md").symlink_to(Path("docs", "guide.md"))
    done, sent = run(place)
    assert done.code == 0 and "Use tabs." in sent and "AGENTS.md" not in done.err
