"""Changes to the user's `config.toml` that leave every other line unchanged.

The text is edited, not the values: then both are read again, and a change that did more than intended is not written.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ferrule.protocol.errors import UsageError

_HEADER = re.compile(r"\s*\[(?!\[)(?P<key>.+)\]\s*(#.*)?")


def put_server(path: Path, name: str, table: Mapping[str, Any]) -> None:
    """Append `[mcp_servers.NAME]` to the file: texts, lists of texts, tables of texts.

    Raises `UsageError` if the server exists already, or the file cannot be changed.
    """
    text = _read(path)
    wanted = _parse(path, text)
    servers = wanted.setdefault("mcp_servers", {})
    if name in servers:
        raise UsageError(f"{path} already has a server named {name!r}: `ferrule mcp remove {name}` removes it")
    servers[name] = dict(table)
    section = "\n".join([f"[mcp_servers.{_key(name)}]", *(f"{_key(k)} = {_value(v)}" for k, v in table.items())])
    _write(path, f"{text.rstrip()}\n\n{section}\n".lstrip("\n"), wanted)


def remove_server(path: Path, name: str) -> bool:
    """Remove `[mcp_servers.NAME]`, keeping comments before the next table. Return False if there is none.

    Raises `UsageError` if the file cannot be changed.
    """
    text = _read(path)
    wanted = _parse(path, text)
    servers = wanted.get("mcp_servers", {})
    if name not in servers:
        return False
    del servers[name]
    if not servers:
        del wanted["mcp_servers"]
    _write(path, "".join(_without(text, ("mcp_servers", name))), wanted)
    return True


def set_folders(path: Path, folders: Sequence[str]) -> None:
    """Write `[file_search]` with these folders; without any, take it out. Raises `UsageError` if the file cannot be
    changed."""
    text = _read(path)
    wanted = _parse(path, text)
    wanted.pop("file_search", None)
    kept = "".join(_without(text, ("file_search",)))
    if folders:
        wanted["file_search"] = {"folders": list(folders)}
        kept = f"{kept.rstrip()}\n\n[file_search]\nfolders = {_value(folders)}\n".lstrip("\n")
    _write(path, kept, wanted)


def _without(text: str, table: tuple[str, ...]) -> Iterator[str]:
    inside = False
    aside: list[str] = []  # blank lines and comments, which may belong to what follows
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        header = _HEADER.fullmatch(line.rstrip("\r\n"))
        if header is not None:
            was, inside = inside, _path(header["key"])[: len(table)] == table
            if was and not inside:
                yield from aside
            aside = []
        if not inside:
            yield line
        elif line.strip() and not line.lstrip().startswith("#"):
            aside = []
        else:
            aside.append(line)


def _path(key: str) -> tuple[str, ...]:
    try:
        table = tomllib.loads(f"[{key}]")
    except tomllib.TOMLDecodeError:
        return ()
    path = []
    while table:
        ((name, table),) = table.items()
        path.append(name)
    return tuple(path)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # a TOML string, except for this character


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def _write(path: Path, text: str, wanted: Mapping[str, Any]) -> None:
    """Write the file atomically, keeping a link a link, and the file's permissions."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        found = None
    if found != wanted:
        raise UsageError(f"{path} writes that in a form which this command cannot change: edit it by hand")
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        temporary.write_bytes(text.encode())
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
