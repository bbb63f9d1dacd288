"""What a client shows: one line for each point, which `gateway_clients` reads."""

import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any

Point = Callable[..., Any]


async def show(points: Sequence[Point], *given: Any) -> None:
    """Run each point with what it needs, and print how it went."""
    for point in points:
        name = point.__name__.replace("_", " ")
        try:
            result = point(*given)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 (whatever goes wrong is what is shown)
            frame = traceback.extract_tb(error.__traceback__)[1:2] or traceback.extract_tb(error.__traceback__)
            why = " ".join(f"{type(error).__name__}: {error}".split())[:1000] + f" ({frame[0].line})"
            print(f"failed: {name}: {why}", flush=True)
        else:
            print(f"passed: {name}", flush=True)
