"""Kill sessions at seeded moments: scripts/crash [--moments N] [--seed S] [--only NUMBER]. See docs/soak.md."""

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.cli.warm import Warm, WarmPlace, warm
from tests.crash.scene import Course, Scene, folder_of, kill, listed, play

TWICE = 0.3
"""The share of sessions that are killed once more while they go on."""
LISTED_EVERY = 10
"""Of so many sessions one is looked for in the list, by a command of its own."""
UNKILLED = 1_000_000
"""The first number of those that measure how long a session takes."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/crash", description="Kill sessions; nothing may be lost.")
    parser.add_argument(
        "--moments", type=int, default=200, help="how many kills of a session that has begun (default: 200)"
    )
    parser.add_argument("--seed", default=secrets.token_hex(3), help="what the moments are drawn from")
    parser.add_argument("--only", type=int, help="only the moment of this number")
    parser.add_argument("--keep", action="store_true", help="keep the folders of moments with problems")
    return parser.parse_args(argv)


def scene_of(root: Path, number: int, forker: Warm) -> Scene:
    """The scene of a number: both wires, with and without the sandbox."""
    place = folder_of(root, number)
    warm_place = WarmPlace(place.cwd, place.home, forker)
    return Scene(warm_place, "responses" if number % 2 else "chat", confined=number % 4 < 2)


def run(given: argparse.Namespace, root: Path, forker: Warm) -> int:
    """Kill again and again; return the number of problems."""
    courses: dict[int, Course] = {}
    problems = begun = 0
    numbers = count() if given.only is None else iter([given.only])
    for number in numbers:
        kind = number % 4
        if kind not in courses:
            with scene_of(root, UNKILLED + kind, forker) as scene:
                courses[kind], wrong = play(scene)
            print(f"unkilled {scene.wire}, confined={scene.confined}: {courses[kind]}", flush=True)
            problems += tell("unkilled", wrong)
        with scene_of(root, number, forker) as scene:
            rng = random.Random(f"{given.seed}/{number}")
            moment, again = courses[kind].draw(rng), courses[kind].draw(rng) if rng.random() < TWICE else None
            had_begun, wrong = kill(scene, moment, again, last=rng.random() < 0.5)
            session = scene.session()
            if session is not None and number % LISTED_EVERY == 0:
                wrong += listed(scene, session)
        begun += had_begun
        name = f"{number} ({scene.wire}, confined={scene.confined}, {moment.name}, then {again and again.name})"
        problems += tell(name, wrong)
        if not (wrong and given.keep):
            shutil.rmtree(root / str(number))
        if begun == given.moments:
            break
    return problems


def tell(name: str, wrong: list[str]) -> int:
    """Print what is wrong at a moment."""
    for one in wrong:
        print(f"  ! {name}: {one}", flush=True)
    return len(wrong)


def main(argv: Sequence[str]) -> int:
    """The command: 0 if nothing was wrong."""
    given = arguments(argv)
    started = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="ferrule-crash-", dir="/var/tmp")).resolve()  # /tmp would be a writable root
    print(f"seed {given.seed}; {given.moments} moments in {root}", flush=True)
    with warm() as forker:
        problems = run(given, root, forker)
    if not (problems and given.keep):
        shutil.rmtree(root)
    print(f"{problems} problems, {time.monotonic() - started:.0f} s, seed {given.seed}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
