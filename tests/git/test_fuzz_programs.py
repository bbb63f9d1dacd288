"""Whatever git runs in a repository was told before, with its file, key and value. `scripts/fuzz` runs this for longer.

Each program that could be planted writes its name to a list, and git works in the repository.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.git.programs import UNREADABLE, Program, examine

EXAMPLES = max(int(os.environ.get("FERRULE_FUZZ_EXAMPLES", "60")) // 10, 4)
fuzzed = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))

SETTINGS = [
    "core.fsmonitor", "core.hooksPath", "core.editor", "core.pager", "core.sshCommand", "core.alternateRefsCommand",
    "core.attributesFile", "diff.external", "diff.d.textconv", "diff.d.command", "filter.f.clean", "filter.f.smudge",
    "filter.f.process", "merge.m.driver", "gpg.program", "gpg.x509.program", "credential.helper", "sequence.editor",
    "trailer.x.command", "alias.s", "remote.origin.uploadpack", "remote.origin.vcs", "submodule.sub.update",
    "gc.recentObjectsHook", "interactive.diffFilter", "pager.log", "mergetool.x.cmd", "difftool.x.cmd",
]  # fmt: skip
HOOKS = [
    "post-index-change", "pre-commit", "post-commit", "prepare-commit-msg", "commit-msg", "post-checkout", "post-merge",
    "reference-transaction", "pre-auto-gc", "pre-rebase", "post-rewrite", "fsmonitor-watchman", "pre-merge-commit",
]  # fmt: skip
FORMS = ["[{section}]\n\t{name} = {value}\n", "[{section}] {NAME}={value} ; x\n", '[{section}]\n{name}="{value}"\n',
         "[{section}]\r\n\t{name} = \\\n  {value} # x\r\n", "\ufeff[{section}]\n{name} = {value}\n"]  # fmt: skip
PLACES = [
    "config",
    "config.worktree",
    "more",
    "../more",
    "hooks/x.sample",
    "info/attributes.conf",
    "deep/er/more",
    "m\udcff",
]
LAYOUTS = ["plain", "pointer", "pointer with a NUL", "link", "shared", "worktree", "bare"]
COMMANDS = [
    ("status",), ("diff",), ("log", "-p", "--show-signature"), ("add", "-A"), ("commit", "-q", "-m", "x"), ("s",),
    ("fetch", "-q", "origin"), ("checkout", "-q", "-b", "side"), ("stash", "-q"), ("stash", "pop", "-q"),
    ("rebase", "--continue"), ("gc", "--auto", "-q"), ("merge", "-q", "other"), ("show", "--ext-diff"),
]  # fmt: skip


@dataclass
class Plan:
    """What is planted: settings as (key, form, place, by a NUL), hooks, attributes, steps of a rebase."""

    layout: str
    settings: list[tuple[str, str, str, bool]] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    attributes: bool = False
    steps: bool = False


PLANS = st.builds(
    Plan,
    st.sampled_from(LAYOUTS),
    st.lists(
        st.tuples(st.sampled_from(SETTINGS), st.sampled_from(FORMS), st.sampled_from(PLACES), st.booleans()), max_size=6
    ),
    st.lists(st.sampled_from(HOOKS), max_size=3),
    st.booleans(),
    st.booleans(),
)


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A repository with a conflict to merge, and what is copied of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "base")
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main", ".")
        for branch, text in (("main", "a"), ("other", "b"), ("main", "c")):
            git(folder, "checkout", "-q", "-B", branch)
            (folder / "file").write_text(f"{text}\n")
            git(folder, "add", "file")
            git(folder, "commit", "-q", "-m", text)
        yield folder


def git(folder: Path, *words: str, **variables: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "x", f"GIT_{who}_EMAIL": "x@x"}
    subprocess.run(
        ["git", *words], cwd=folder, env=env | variables, check=False, capture_output=True, timeout=30,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def program(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{name}" >> "$RAN"\n')
    path.chmod(0o755)


def lay_out(base: Path, top: Path, layout: str) -> tuple[Path, Path]:
    """The worktree where git works, and the git directory in which things are planted."""
    work = top / "work"
    shutil.copytree(base, work)
    store = top / "store"
    if layout in ("pointer", "pointer with a NUL", "link"):
        (work / ".git").rename(store)
    if layout == "link":
        (work / ".git").symlink_to("../store")
    elif layout.startswith("pointer"):
        (work / ".git").write_text("gitdir: ../store" + ("\0x\n" if "NUL" in layout else "\n"))
    elif layout == "shared":
        (work / ".git").rename(store)
        (work / ".git").mkdir()
        (work / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (work / ".git/commondir").write_text("../../store\n")
    elif layout == "worktree":
        git(work, "worktree", "add", "-q", "../wt")
        return top / "wt", work / ".git"
    elif layout == "bare":
        for part in (work / ".git").iterdir():
            part.rename(work / part.name)
        (work / ".git").rmdir()
        (work / "config").write_text("[core]\n\tbare = false\n\tworktree = ..\n")
        return work, work
    return work, (work / ".git").resolve() if layout in ("plain", "link") else store


def plant(plan: Plan, work: Path, store: Path) -> None:
    with (store / "config").open("ab") as file:
        file.write(b"[extensions]\n\tworktreeConfig = true\n")
        for place in PLACES[2:]:
            file.write(b"[include]\n\tpath = " + os.fsencode(place) + b"\n")
    for number, (key, form, place, by_nul) in enumerate(plan.settings):
        name = f"p{number}"
        if key == "core.hooksPath":
            for hook in HOOKS:
                program(work / name / hook, name)
        else:
            program(work / name, name)
        command = f"{work}/{name}"
        value = f"!{command}" if key in ("alias.s", "credential.helper", "submodule.sub.update") else command
        path = Path(os.fsdecode(os.path.join(os.fsencode(store), os.fsencode(place))))
        path.parent.mkdir(parents=True, exist_ok=True)
        text = written(key, form, value, by_nul)
        if path.exists() and path.stat().st_size:
            text = text.lstrip("\ufeff")
        with path.open("ab") as file:
            file.write(os.fsencode(text))
    for hook in plan.hooks:
        program(store / "hooks" / hook, f"hook {hook}")
    if plan.attributes:
        (store / "info/attributes").write_text("* filter=f diff=d merge=m\n")
    if plan.steps:
        program(work / "step", "step")
        (store / "rebase-merge").mkdir()
        for name, text in (("git-rebase-todo", f"exec\t{work}/step\n"), ("head-name", "refs/heads/main\n"),
                           ("onto", "main\n"), ("orig-head", "main\n"), ("interactive", "")):  # fmt: skip
            (store / "rebase-merge" / name).write_text(text)


def written(key: str, form: str, value: str, by_nul: bool) -> str:
    section, _, name = key.rpartition(".")
    head, _, sub = section.partition(".")
    if by_nul and not sub:
        sub, name = f"{name}\0", "bare"
    header = f'{head} "{sub}"' if sub else head
    return form.format(section=header, name=name, NAME=name.upper(), value=value)


def is_said(ran: str, told: Iterable[Program]) -> bool:
    if ran.startswith("hook "):
        return any(one.key == "hook" and one.file.endswith(f"/{ran[5:]}") for one in told)
    return any(f"/{ran}" in one.value for one in told if one.key != UNREADABLE)


@fuzzed
@given(plan=PLANS)
def test_whatever_git_runs_was_told(base: Path, plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        work, store = lay_out(base, top, plan.layout)
        plant(plan, work, store)
        bare = plan.layout == "bare"
        told = examine(str(work if bare else work / ".git"), lambda path: False, bare=bare).programs
        (work / "file").write_text("changed\n")
        for words in COMMANDS:
            git(work, *words, RAN=str(top / "ran"))
        ran = set((top / "ran").read_text().splitlines()) if (top / "ran").exists() else set()
        silent = {one for one in ran if not is_said(one, told)}
        assert not silent, (silent, plan, told)
