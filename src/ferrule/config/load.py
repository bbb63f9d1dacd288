"""The edge: which files there are, what stands in them, and whether the project is trusted."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ferrule.config.check import check
from ferrule.config.keys import ConfigTable
from ferrule.config.layers import Layer, assignment, merge, narrowed
from ferrule.config.mcp_json import MCP_JSON, complain, read_mcp_json
from ferrule.config.resolve import Configuration, settings_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.specs import Wire

CONFIG_FILE = "config.toml"
PROJECT_FOLDER = ".ferrule"


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What a door was told. `defaults` are the door's own; `flags` and `assignments` (`-c`) win over every file, flags
    last. `cwd` is absolute, and so are `add_dirs`."""

    cwd: str
    defaults: Mapping[str, object] = {}
    assignments: tuple[str, ...] = ()
    flags: tuple[Layer, ...] = ()
    base_url: str | None = None
    wire: Wire | None = None
    add_dirs: tuple[str, ...] = ()


def load(sources: Sources, env: Mapping[str, str] = os.environ) -> Configuration:
    """Read all layers. Raises `UsageError` that names the file and the key."""
    home = ferrule_home(env)
    given = [*map(assignment, sources.assignments), *sources.flags]
    for layer in given:
        check(layer.source, layer.values)
    user = read_layer(Path(home, CONFIG_FILE))
    base = merge([Layer("defaults", sources.defaults), user])
    root = project_root(sources.cwd)
    project, warnings = _project_layer(root, home, check(user.source, user.values))
    layers = [Layer("", base)]
    for own in () if project is None else (read_mcp_json(Path(root, MCP_JSON), env), project):
        check(own.source, own.values)
        narrow, more = narrowed(own, base)
        layers.append(narrow)
        warnings += more
    table = check("the configuration", merge([*layers, *given]))
    complain("the configuration", table.mcp_servers)
    settings = settings_of(
        table,
        cwd=sources.cwd,
        home=home,
        project=None if project is None else root,
        base_url=sources.base_url,
        wire=sources.wire,
        add_dirs=sources.add_dirs,
    )
    return Configuration(
        settings=settings,
        warnings=tuple(warnings),
    )


def ferrule_home(env: Mapping[str, str] = os.environ) -> str:
    """Where Ferrule keeps its own files: `FERRULE_HOME`, else `~/.ferrule`. Absolute; it need not exist."""
    if env.get("FERRULE_HOME"):
        return os.path.abspath(os.path.expanduser(env["FERRULE_HOME"]))
    try:
        return str(Path.home() / PROJECT_FOLDER)
    except RuntimeError as error:
        raise UsageError("there is no home directory: set FERRULE_HOME to a folder for Ferrule's own files") from error


def read_layer(path: Path) -> Layer:
    """The layer of a file; empty where there is none. Raises `UsageError` where it cannot be read."""
    try:
        return Layer(str(path), tomllib.loads(path.read_bytes().decode()))
    except FileNotFoundError:
        return Layer(str(path), {})
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#x}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def project_root(cwd: str) -> str:
    """The top of the git repository around `cwd`, else `cwd`; links resolved."""
    here = Path(os.path.realpath(cwd))
    return str(next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here))


def _project_layer(root: str, home: str, user: ConfigTable) -> tuple[Layer | None, list[str]]:
    """The layer of a trusted project, None for any other; whether the user has to know that it was not read."""
    folder = Path(root, PROJECT_FOLDER)
    if os.path.realpath(folder) == os.path.realpath(home):
        return None, []
    levels = {os.path.realpath(os.path.expanduser(path)): entry.trust_level for path, entry in user.projects.items()}
    level = levels.get(root)
    if level == "trusted":
        return read_layer(folder / CONFIG_FILE), []
    if level is None and _holds_something(folder):
        advice = f'[projects."{root}"] trust_level = "trusted" in {Path(home, CONFIG_FILE)}'
        return None, [f"{folder} is not read, because the project is not trusted; to trust it, put {advice}"]
    return None, []


def _holds_something(folder: Path) -> bool:
    """Whether there is anything to read: while a confined command runs, its placeholder may stand here, empty."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False
