"""The edge of configuration: finds and reads files, and decides which of the project's are read."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ferrule.config.check import check
from ferrule.config.keys import ConfigTable
from ferrule.config.layers import Layer, assignment, merge, toml_layer
from ferrule.config.mcp_json import complain
from ferrule.config.narrow import TOOL_KEYS
from ferrule.config.project import PROJECT_FOLDER, Found, find_files, programs_of
from ferrule.config.project_layers import ProjectLayers, project_layers
from ferrule.config.resolve import Configuration, Hooks, settings_of
from ferrule.config.trust import Change, Record, RecordProblem, TrustRecords, Wish, read_project
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import InContainerReadOnly, ReadOnly, SandboxPolicy
from ferrule.protocol.settings import HookPrograms
from ferrule.protocol.specs import Wire
from ferrule.reading import Unreadable, read_file

CONFIG_FILE = "config.toml"
UNUSED = "in read-only mode nothing can be written, so {} stays as it is: to add it, choose -s workspace-write"
MAX_OWN_BYTES = 4 << 20
"""Size limit of the user's own file: far more than anybody writes."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a front end. `defaults` are the front end's own; `flags` and `assignments` (`-c`) override every
    file, flags last. `cwd` is absolute, and so are `add_dirs`."""

    cwd: str
    defaults: Mapping[str, object] = {}
    assignments: tuple[str, ...] = ()
    flags: tuple[Layer, ...] = ()
    base_url: str | None = None
    api_key_env: str | None = None
    wire: Wire | None = None
    add_dirs: tuple[str, ...] = ()


def load(sources: Sources, env: Mapping[str, str] = os.environ) -> Configuration:
    """Read all layers. Raises `UsageError` that names the file and the key."""
    home = ferrule_home(env)
    given = [*map(assignment, sources.assignments), *sources.flags]
    for layer in given:
        check(layer.source, layer.values)
    user = read_layer(Path(home, CONFIG_FILE))
    own = check(user.source, user.values)
    root = project_root(sources.cwd)
    wishes = _wishes(own)
    reading = read_project(root, home, wishes.get(root))
    TrustRecords(home).see(top for top, wish in wishes.items() if wish == "trusted" and top != root)
    base, above = merge([Layer("defaults", sources.defaults), user]), merge(given)
    project = project_layers(reading, env, base | _chosen(merge([user, *given])))
    merged = merge([Layer("", base), Layer("", project.values), Layer("", above)])
    table = check("the configuration", merged)
    complain("the configuration", table.mcp_servers)
    settings = settings_of(
        table,
        cwd=sources.cwd,
        home=home,
        project=root if reading.trusted else None,
        project_hooks=_hooks_beside(project, above),
        project_rules=project.rules,
        project_skills=project.skills,
        project_chose=frozenset(key for key in TOOL_KEYS if key in project.values and key not in above),
        hook_programs=HookPrograms(root, programs_of(reading.files)),
        base_url=sources.base_url,
        api_key_env=sources.api_key_env,
        wire=sources.wire,
        add_dirs=sources.add_dirs,
    )
    settings = msgspec.structs.replace(settings, named_servers=_named(above, merged))
    return Configuration(
        settings=settings,
        warnings=(*reading.warnings, *project.warnings, *_unused(settings.sandbox_policy, sources.add_dirs)),
        unconfirmed=reading.unconfirmed,
    )


def _unused(policy: SandboxPolicy, add_dirs: tuple[str, ...]) -> tuple[str, ...]:
    """Return a warning if folders are added where nothing can be written."""
    is_unused = isinstance(policy, ReadOnly) and not isinstance(policy, InContainerReadOnly)
    return (UNUSED.format(", ".join(add_dirs)),) if add_dirs and is_unused else ()


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A project's current state and its confirmed state. `below` is the user's configuration, which the project may
    narrow. `problem`: the record is damaged."""

    top: str
    wish: Wish
    found: Found
    below: Mapping[str, object]
    records: TrustRecords
    record: Record | None = None
    problem: str | None = None

    def confirm(self, shown: Iterable[Change]) -> None:
        """Record that the user has confirmed what was shown. Raises `RecordProblem` if it cannot be recorded."""
        self.records.confirm(self.top, shown, self.wish)


def inspect_project(cwd: str, env: Mapping[str, str] = os.environ) -> Inspection:
    """Inspect the project around `cwd` without recording anything. Raises `UsageError` for the user's own file."""
    home = ferrule_home(env)
    user = read_layer(Path(home, CONFIG_FILE))
    top, records = project_root(cwd), TrustRecords(home)
    record, problem = None, None
    try:
        record = records.read(top)
    except RecordProblem as error:
        problem = str(error)
    return Inspection(
        top=top,
        wish=_wishes(check(user.source, user.values)).get(top),
        found=find_files(top),
        below=user.values,
        records=records,
        record=record,
        problem=problem,
    )


def ferrule_home(env: Mapping[str, str] = os.environ) -> str:
    """Return the folder of Ferrule's own files: `FERRULE_HOME`, else `~/.ferrule`. Absolute; it need not exist."""
    if env.get("FERRULE_HOME"):
        return os.path.abspath(os.path.expanduser(env["FERRULE_HOME"]))
    try:
        return str(Path.home() / PROJECT_FOLDER)
    except RuntimeError as error:
        raise UsageError("there is no home directory: set FERRULE_HOME to a folder for Ferrule's own files") from error


def read_layer(path: Path) -> Layer:
    """Read the user's own file into a layer; empty if there is none. Raises `UsageError` if it cannot be read."""
    try:
        return toml_layer(str(path), read_file(path, MAX_OWN_BYTES))
    except FileNotFoundError:
        return Layer(str(path), {})
    except Unreadable as problem:
        raise UsageError(f"{path} {problem}") from problem


def project_root(cwd: str) -> str:
    """Return the top of the git repository around `cwd`, else `cwd`; links resolved."""
    here = folder = os.path.realpath(cwd)
    while not os.path.exists(os.path.join(folder, ".git")):
        if folder == (above := os.path.dirname(folder)):
            return here
        folder = above
    return folder


def _wishes(own: ConfigTable) -> dict[str, Wish]:
    """Return the trust levels of projects in the user's own file, by their real paths."""
    return {os.path.realpath(os.path.expanduser(path)): entry.trust_level for path, entry in own.projects.items()}


def _named(above: Mapping[str, object], merged: Mapping[str, object]) -> frozenset[str]:
    """Return the MCP servers that `-c` starts, unless some layer says how their calls are approved."""
    given, servers = above.get("mcp_servers", {}), merged.get("mcp_servers", {})
    assert isinstance(given, Mapping) and isinstance(servers, Mapping)
    named = (name for name, table in given.items() if not {"command", "url"}.isdisjoint(table))
    return frozenset(name for name in named if "approval" not in servers[name])


def _chosen(yours: Mapping[str, object]) -> dict[str, object]:
    """Return the tools that the user has chosen, by a flag or a file: not a front end's defaults."""
    return {key: yours.get(key) for key in TOOL_KEYS}


def _hooks_beside(project: ProjectLayers, above: Mapping[str, object]) -> Hooks:
    """Return the project's hooks, except for events whose hooks are set by `-c`, which replace them."""
    given = above.get("hooks", {})
    assert isinstance(given, Mapping)
    return {event: hooks for event, hooks in project.hooks.items() if event not in given}
