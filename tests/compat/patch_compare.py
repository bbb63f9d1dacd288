"""Compare the patch engine with the Codex binary on a generated corpus. Development only: started by
`scripts/compat_patch`, which installs the binary."""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ferrule.patch import PatchError, UpdateFile, apply_patch, parse
from tests.compat.patch_corpus import Case, generate

Tree = dict[str, bytes | None]
"""Relative path -> content, None for a folder."""


class Outcome(NamedTuple):
    """What one engine did."""

    done: bool
    tree: Tree
    text: str


def main() -> int:
    """Run the comparison; exit code 1 when some case is explained by no listed departure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("binary")
    options.add_argument("--count", type=int, default=3000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--show", type=int, default=5)
    options.add_argument("--errors", action="store_true", help="show the error texts that differ")
    given = options.parse_args()
    counts: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    shown = 0
    for case in generate(given.seed, given.count):
        theirs, ours = _run_binary(given.binary, case), _run_ours(case, overwrite=False)
        verdict = judge(case, theirs, ours)
        counts[verdict] += 1
        if verdict == UNEXPLAINED and shown < given.show:
            shown += 1
            _show(case, theirs, ours)
        if not theirs.done and not ours.done:
            alike = ours.text.startswith(theirs.text.rstrip("\n"))
            errors["starts like the reference's" if alike else "differs"] += 1
            if not alike and given.errors:
                print("-", theirs.text.strip(), "\n+", ours.text)
    for verdict, count in counts.most_common():
        print(f"{count:6}  {verdict}")
    print("text when both fail:", dict(errors))
    return 1 if counts[UNEXPLAINED] else 0


SAME = "same tree, same verdict"
UNEXPLAINED = "UNEXPLAINED"


def judge(case: Case, theirs: Outcome, ours: Outcome) -> str:
    """`SAME`, the departure that explains the difference, or `UNEXPLAINED`."""
    if theirs.done == ours.done and theirs.tree == ours.tree:
        return SAME
    for name, explains in DEPARTURES.items():
        if explains(case, theirs, ours):
            return name
    return UNEXPLAINED


def _partial(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    return not theirs.done and not ours.done and ours.tree == _start(case) and theirs.tree != ours.tree


def _overwrite(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    """With overwriting allowed the engines agree again, or differ as listed."""
    if ours.done or "already exists" not in ours.text:
        return False
    allowed = _run_ours(case, overwrite=True)
    return judge(case, theirs, allowed) != UNEXPLAINED


def _nothing(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    return not ours.done and "change nothing" in ours.text and theirs.done


def _their_text(*parts: str) -> Callable[[Case, Outcome, Outcome], bool]:
    return lambda case, theirs, ours: not theirs.done and any(part in theirs.text for part in parts)


def _flattened(tree: Tree) -> Tree:
    """Line ends, trailing newline, blanks and typographic characters aside."""
    table = str.maketrans({"–": "-", "“": '"', "”": '"', "\u00a0": " "})
    return {
        path: content
        and "\n".join("".join(line.translate(table).split()) for line in content.decode("utf-8", "replace").split("\n"))
        .strip("\n")
        .encode()
        for path, content in tree.items()
    }


def _endings(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    return theirs.done and ours.done and _without(theirs.tree, b"\r") == _without(ours.tree, b"\r")


def _final_newline(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    """Equal but for a last newline, which only the reference adds and the file did not have."""
    return (
        theirs.done
        and ours.done
        and theirs.tree.keys() == ours.tree.keys()
        and any(content and content[-1:] != b"\n" for content in case.tree.values())
        and all(content in _terminated(ours.tree[path]) for path, content in theirs.tree.items())
    )


def _terminated(content: bytes | None) -> tuple[bytes | None, ...]:
    return (content,) if content is None else (content, content + b"\n", content + b"\r\n")


def _without(tree: Tree, removed: bytes) -> Tree:
    return {path: content and content.replace(removed, b"") for path, content in tree.items()}


def _context_kept(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    return theirs.done and ours.done and _flattened(theirs.tree) == _flattened(ours.tree)


def _addition(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    """The same lines at another place, and some chunk only adds: after its anchor, or with a blank line behind it. A
    later hunk for the same file may then fit in one of the trees only."""
    parsed = ours.done or "Failed to find" in ours.text
    if not (parsed and _has_addition(case.patch)):
        return False
    if theirs.done and ours.done:
        return _sorted(theirs.tree) == _sorted(ours.tree)
    return theirs.done != ours.done and _is_repeated(case.patch)


def _is_repeated(patch: str) -> bool:
    paths = [hunk.path for hunk in parse(patch).hunks]
    return len(set(paths)) < len(paths)


def _sorted(tree: Tree) -> dict[str, list[str]]:
    """Each file's lines in no order, blank ones left out."""
    texts = {path: (content or b"").decode("utf-8", "replace") for path, content in _flattened(tree).items()}
    return {path: sorted(filter(None, text.split("\n"))) for path, text in texts.items()}


def _has_addition(patch: str) -> bool:
    chunks = [chunk for hunk in parse(patch).hunks if isinstance(hunk, UpdateFile) for chunk in hunk.chunks]
    return any(not any(line[1:].strip() for line in chunk.lines if line[0] != "+") for chunk in chunks)


def _byte_order_mark(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    return ours.done and any(content.startswith(b"\xef\xbb\xbf") for content in case.tree.values())


def _onto_itself(case: Case, theirs: Outcome, ours: Outcome) -> bool:
    return any(isinstance(hunk, UpdateFile) and hunk.path == hunk.move_to for hunk in parse(case.patch).hunks)


DEPARTURES: dict[str, Callable[[Case, Outcome, Outcome], bool]] = {
    "all or nothing: the reference had applied the first files": _partial,
    "overwriting by Add or Move is refused": _overwrite,
    "an update that changes nothing is refused": _nothing,
    "stacked anchors": _their_text("Unexpected line found in update hunk: '@@"),
    "a pure rename is accepted": _their_text("is empty"),
    "bytes that are not UTF-8 are kept": _their_text("invalid utf-8"),
    "stars or blanks at the markers": _their_text("line of the patch must be", "Patch ***' is not a valid hunk header"),
    "final newline only where the hunk reaches": _final_newline,
    "dominant line ending": _endings,
    "context lines keep their bytes": _context_kept,
    "additions go after their anchor, a blank line behind them aside": _addition,
    "moving onto itself": _onto_itself,
    "a byte order mark is no part of the first line": _byte_order_mark,
}


def _start(case: Case) -> Tree:
    tree: Tree = dict(case.tree)
    for path in case.tree:
        tree.update({str(parent): None for parent in Path(path).parents if str(parent) != "."})
    return tree


def _run_binary(binary: str, case: Case) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        _build(folder, case)
        ran = subprocess.run(
            [binary, "--codex-run-as-apply-patch", case.patch], cwd=folder, capture_output=True, check=False
        )
        return Outcome(
            ran.returncode == 0,
            _snapshot(folder),
            _relative((ran.stdout + ran.stderr).decode("utf-8", "replace"), folder),
        )


def _run_ours(case: Case, *, overwrite: bool) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        _build(folder, case)
        try:
            text = apply_patch(case.patch, folder, overwrite=overwrite)
        except PatchError as error:
            return Outcome(False, _snapshot(folder), _relative(str(error), folder))
        return Outcome(True, _snapshot(folder), text)


def _relative(text: str, folder: str) -> str:
    return text.replace(folder, "$TREE")


def _build(folder: str, case: Case) -> None:
    for name, content in case.tree.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _snapshot(folder: str) -> Tree:
    root = Path(folder)
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def _show(case: Case, theirs: Outcome, ours: Outcome) -> None:
    print("=" * 80)
    print(case.patch.replace("\r", "\\r"))
    print("tree  ", case.tree)
    for name, outcome in (("theirs", theirs), ("ours", ours)):
        print(name, outcome.done, outcome.tree)
        print("   ", outcome.text)


if __name__ == "__main__":
    sys.exit(main())
