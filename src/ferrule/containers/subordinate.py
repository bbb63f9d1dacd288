"""The user ids that the administrator gave to an ordinary user (subuid(5)), and what runs with them."""

import subprocess
import sys
from pathlib import Path

from ferrule.sandbox.linux.holders import subordinate_ids
from ferrule.sandbox.linux.id_map import SubordinateMap
from ferrule.sandbox.linux.kernel import StepError
from ferrule.sandbox.linux.mothers import PLACE

REMOVE = """
import sys
sys.path += sys.argv[1:3]
from linux.id_map import SubordinateMap
users, groups = (tuple(map(int, word.split(","))) for word in sys.argv[3:5])
SubordinateMap(users, groups).enter(0)
from pathlib import Path
from removal import remove_tree
remove_tree(Path(sys.argv[5]))
"""


def enter_map() -> bool:
    """Become root of a user namespace with one's subordinate ids, for good; False where that cannot be.

    What is written as another user then belongs to that user's subordinate id on disk. Call it before there are
    threads.
    """
    given = subordinate_ids()
    if given is None:
        return False
    try:
        SubordinateMap(*given).enter(0)
    except (OSError, StepError):
        return False
    return True


def remove_mapped(top: Path) -> bool:
    """Remove a folder with files of subordinate ids; False where that cannot be."""
    given = subordinate_ids()
    if given is None:
        return False
    ranges = [f"{first},{count}" for first, count in given]
    here = str(Path(__file__).parent)
    words = [sys.executable, "-I", "-S", "-c", REMOVE, str(PLACE), here, *ranges, str(top)]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
