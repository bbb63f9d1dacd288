"""What a client's roots mean for a session: they narrow its workspace, and never widen it. Pure but for `realpath`."""

import os
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import WorkspaceWrite
from ferrule.protocol.settings import Settings
from ferrule.sandbox.plan import is_within


class Narrowed(msgspec.Struct, frozen=True):
    """The settings for a client with such roots, and the roots that lie outside of what the user allows."""

    settings: Settings
    outside: tuple[str, ...] = ()


def narrowed(settings: Settings, roots: Iterable[str]) -> Narrowed:
    """Return the settings with the workspace that a client's roots name, as far as it lies in the configured one.

    The working directory becomes the first such root unless it is one itself; further roots stay writable beside it.
    What the user lets be written elsewhere stays writable. Without any such root nothing changes.
    """
    policy = settings.sandbox_policy
    configured = policy.writable_roots if isinstance(policy, WorkspaceWrite) else ()
    areas = _areas(settings)
    given = list(dict.fromkeys(map(os.path.realpath, roots)))
    common = {root: [part for area in areas if (part := _common(root, area))] for root in given}
    inside = list(dict.fromkeys(part for parts in common.values() for part in parts))
    outside = tuple(root for root in given if not common[root])
    if not inside or settings.cwd in inside:
        return Narrowed(settings, outside)
    cwd, *more = inside
    if isinstance(policy, WorkspaceWrite):
        policy = msgspec.structs.replace(policy, writable_roots=(*configured, *_others(more, configured)))
    return Narrowed(msgspec.structs.replace(settings, cwd=cwd, sandbox_policy=policy), outside)


def place_in(settings: Settings, cwd: str) -> str:
    """Return the real path of a directory in which the settings let work be done. Raises `UsageError` for another
    one."""
    real = os.path.realpath(cwd)
    if not os.path.isdir(real):
        raise UsageError(f"cwd: {cwd} is not a directory")
    if not any(is_within(real, area) for area in _areas(settings)):
        raise UsageError(f"cwd: {cwd} does not lie in {settings.cwd}, where this server works")
    return real


def folder_of(uri: str) -> str | None:
    """Return the directory that a root's `file:` URI names; None if there is none on this machine."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return path if local and "\0" not in path and os.path.isabs(path) and os.path.isdir(path) else None


def _areas(settings: Settings) -> tuple[str, ...]:
    """Return the directories in which work may be done."""
    policy = settings.sandbox_policy
    more = policy.writable_roots if isinstance(policy, WorkspaceWrite) else ()
    return (settings.cwd, *map(os.path.realpath, more))


def _common(one: str, other: str) -> str | None:
    """Return what lies in both directories: one of them, or nothing."""
    if is_within(one, other):
        return one
    return other if is_within(other, one) else None


def _others(roots: Sequence[str], configured: Sequence[str]) -> list[str]:
    return [root for root in roots if not any(is_within(root, os.path.realpath(known)) for known in configured)]
