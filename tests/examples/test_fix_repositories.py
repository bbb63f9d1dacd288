"""examples/fix_repositories.py: patches of what was fixed and of what was not; the originals stay as they are."""

import shutil
from pathlib import Path

from ferrule.testing import ScriptedModel, function_call
from tests.examples.running import git, repository, run

PROGRAM = "fix_repositories.py"
TEST = "grep -q 4 sum.txt && touch tested"


def states(*repositories: Path) -> list[str]:
    """All that git sees in them, ignored files too."""
    return [git(path, "status", "--porcelain", "--ignored") + git(path, "log", "--all") for path in repositories]


def test_what_fails_is_fixed_in_a_copy_and_verified(tmp_path: Path) -> None:
    source, out = tmp_path / "src", tmp_path / "out"
    fine = repository(source / "fine", {"sum.txt": "4\n"})
    fixable = repository(source / "fixable", {"sum.txt": "3\n", "test_sum.txt": "x\n", "latest": "x\n"})
    stuck = repository(source / "stuck", {"sum.txt": "5\n"})
    git(source, "init", "-q", "empty")
    before = states(fine, fixable, stuck)
    edits = [
        function_call("shell_command", {"command": f"echo {text} > sum.txt; echo y | tee test_sum.txt latest"})
        for text in (4, 6)
    ]
    with ScriptedModel([]) as model:
        model.play(edits[0], "Done.", when="fixable")
        model.play(edits[1], "I think so.", edits[0], "Now.", when="stuck")
        done = run(PROGRAM, source, "--test", TEST, "--out", out, base_url=model.base_url)
        assert done.returncode == 1 and done.stdout.startswith("4 repositories, 0 patched before, 2 to fix\n"), done
        assert f"\nfixed   fixable: {out / 'fixable.patch'} (" in done.stdout
        assert "it changes test_sum.txt: see" in done.stdout and "changes latest" not in done.stdout
        assert (
            f"\nfailed  stuck: its tests still fail; what was tried is in {out / 'stuck.failed.patch'}" in done.stdout
        )
        assert sorted(path.name for path in out.iterdir()) == ["fixable.patch", "stuck.failed.patch"]

        assert f"\nfailed  {source / 'empty'} has no commit" in done.stdout
        shutil.rmtree(source / "empty")
        again = run(PROGRAM, source, "--test", TEST, "--out", out, base_url=model.base_url)
        assert again.returncode == 0 and again.stdout.startswith("3 repositories, 1 patched before, 1 to fix"), again
        model.check()
    assert states(fine, fixable, stuck) == before
    assert sorted(path.name for path in out.iterdir()) == ["fixable.patch", "stuck.patch"]
    git(stuck, "apply", str(out / "stuck.patch"))
    assert (stuck / "sum.txt").read_text() == "4\n"


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    repository(tmp_path / "src" / "one", {"sum.txt": "3\n"})
    for folder, why in [
        ("src", "No model is configured"),
        ("gone", "no git repository in"),
        (".", "no git repository in"),
    ]:
        done = run(PROGRAM, folder, "--test", TEST, cwd=tmp_path)
        assert done.returncode == 2 and why in done.stderr and "Traceback" not in done.stderr
