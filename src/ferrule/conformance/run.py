"""Run checks against a server, one after the other."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal

import httpx2
import msgspec

from ferrule.conformance import groups
from ferrule.conformance.checks import Check
from ferrule.conformance.failures import Failed, Skipped
from ferrule.conformance.server import Server


class Result(msgspec.Struct, frozen=True):
    """How a check ended, and why so unless it passed."""

    check: str
    about: str
    status: Literal["passed", "failed", "skipped"]
    why: str = ""


def chosen(pattern: str) -> list[Check]:
    """Return the checks whose full name fits a shell pattern, or whose group it is."""
    return [check for check in groups.CHECKS if pattern == check.group or fnmatchcase(check.title, pattern)]


def results(server: Server, checks: list[Check]) -> Iterator[Result]:
    """Run checks, and yield how each ended."""
    for check in checks:
        yield _result(server, check)


def _result(server: Server, check: Check) -> Result:
    try:
        check.run(server)
    except Skipped as skipped:
        return Result(check.title, check.about, "skipped", str(skipped))
    except Failed as failed:
        return Result(check.title, check.about, "failed", str(failed))
    except httpx2.HTTPError as error:
        return Result(check.title, check.about, "failed", f"{type(error).__name__}: {error}")
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        why = f"the answer lacks what the check reads: {type(error).__name__}: {error}"
        return Result(check.title, check.about, "failed", why)
    return Result(check.title, check.about, "passed")
