"""Tries every attack in turn.

`main(SCENE)` reads the scene (a JSON file, see `scene.py`) and prints one JSON object: attack -> what happened. `OPEN`
means that the kernel let it happen, all else is why it did not. What counts is the effect on the host, afterwards.
"""
# ruff: noqa: PTH123, BLE001

import errno
import json
import os

from . import (
    files,
    git,
    kernel,
    namespaces,
    processes,
    sockets,
    terminals,
    working,
)
from .common import ATTACKS

__all__ = ["files", "git", "kernel", "main", "namespaces", "processes", "sockets", "terminals", "working"]


def main(path: str) -> None:
    with open(path) as file:
        scene = json.load(file)
    results = {}
    # First what looks at the descriptors, before anybody opens one.
    first = {"inherited_descriptors": ATTACKS["inherited_descriptors"]}
    for name, function in (first | ATTACKS).items():
        try:
            results[name] = function(scene)
        except OSError as error:
            results[name] = errno.errorcode.get(error.errno or 0, str(error))
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(results), flush=True)
    os._exit(0)  # no destructor may wait for what the attacks have left
