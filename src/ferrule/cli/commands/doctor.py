"""`ferrule doctor`: this machine's capabilities, the configuration, the written paths. Always exits with 0."""

import asyncio
import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ferrule._version import __version__
from ferrule.builtin.js_repl.node import find_node
from ferrule.builtin.searching.ripgrep import find_ripgrep
from ferrule.cli.options import Parser, add_config_flag, add_directory_flag, add_model_flags, configuration
from ferrule.config import CONFIG_FILE, ferrule_home
from ferrule.lookup import Located, Places, locate
from ferrule.model.provider import list_models, open_model
from ferrule.model.stream import ModelError
from ferrule.process.environment import child_environment
from ferrule.process.shell import default_shell
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.redaction import without_secrets
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.sandbox.policy import command_places

if TYPE_CHECKING:
    from ferrule.model.abilities import Abilities

PROBE_SECONDS = 3.0
"""Seconds for the model server to list its models: long enough for a slow network, short enough to wait for."""
SHOWN_MODELS = 8
"""Model names that fit one line; gateways list hundreds."""

PROGRAMS = {
    "git": "repositories are told apart by their folders only",
    "rg": "files are searched by Python, which is slower; pip install 'ferrule[rg]' brings it",
    "node": "js_repl cannot run; pip install 'ferrule[js]' brings it",
}
"""Optional programs, and the effect of each missing one."""

EXTRAS = {
    "tui": ("textual", "`ferrule` alone opens no terminal interface"),
    "mcp": ("mcp", "MCP servers cannot be used"),
    "gateway": ("sqlalchemy", "`ferrule serve` cannot run"),
    "acp": ("acp", "`ferrule acp` cannot run in editors"),
    "egress": ("cryptography", "secrets cannot be bound to domains"),
    "search": ("pypdf", "PDFs are not read, and file_search finds files by their words alone"),
    "images": ("PIL", "view_image refuses large pictures"),
    "otel": ("opentelemetry", "spans and metrics are not reported"),
    "grammar": ("llguidance", "the input of freeform tools is not checked against their grammar"),
}
"""Extras without a program: the module of each, and the effect of a missing one."""

WRITTEN = {
    "sessions/": "every session, as it happens",
    "prompt_history.jsonl": "what you have sent in the terminal interface",
    "rules/default.rules": "commands that you allow for good",
    "trust/": "what you have confirmed of projects",
    "sandbox/": "the sandbox's own state",
    "caches/": "caches of build tools, by commands, where you have set caches = true",
    "images/": "what `ferrule runtime import` and `build` unpack",
    "file_search/": "indexes of the folders that file_search searches, with their texts",
    "memory.sqlite": "what `ferrule memory add` keeps",
    "mcp_logins/": "tokens of `ferrule mcp login`",
}
"""Files below the home folder. Beside them: what the model's tools write, and files named by flags."""

PROBLEM = "PROBLEM"
Section = Callable[[Settings], Iterator[str]]


def main(arguments: list[str]) -> int:
    """Print the report."""
    parser = Parser("doctor", "Say what this machine offers, what is configured, and which paths are written.")
    add_model_flags(parser)
    add_directory_flag(parser)
    add_config_flag(parser)
    options = parser.parse_args(arguments)
    for line in _machine():
        print(line)
    try:
        settings = configuration(options).settings
        print(f"configuration  {_configuration(Path(settings.home, CONFIG_FILE))}")
    except UsageError as error:
        print(f"configuration  {PROBLEM}: {error}")
        settings = Settings(cwd=os.getcwd(), home=ferrule_home())
    sections: tuple[Section, ...] = (_paths, _programs, _model, _environment, _sandbox, _network, _containers, _git)
    for section in sections:
        for line in section(settings):
            print(safe(line), flush=True)
    return 0


def _configuration(file: Path) -> str:
    return f"{file} and flags: readable" if file.exists() else f"flags only: there is no {file}"


def _machine() -> Iterator[str]:
    yield f"ferrule        {__version__}"
    yield f"python         {platform.python_version()} ({sys.executable})"
    yield f"platform       {platform.system()} {platform.release()} {platform.machine()}"


def _paths(settings: Settings) -> Iterator[str]:
    yield f"home           {settings.home} ({_writability(Path(settings.home))})"
    for name, what in WRITTEN.items():
        yield f"  written      {os.path.join(settings.home, name)} ({what})"


def _writability(folder: Path) -> str:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        return f"{PROBLEM}: {existing} is not a directory"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{PROBLEM}: {existing} cannot be written"
    return "writable" if existing == folder else "will be made"


def _programs(settings: Settings) -> Iterator[str]:
    places = command_places(settings.sandbox_policy, settings.cwd, settings.home)
    for name, without in PROGRAMS.items():
        found = _program(name, places)
        for path in found.passed_over:
            yield f"{name:<14} PROBLEM: {path} is not run, because commands can write there"
        if found.path is None:
            yield f"{name:<14} not found: {without}"
        else:
            yield f"{name:<14} {_version(found.path)} ({found.path})"
    yield f"{'chromium':<14} {_browser(settings, places)}"
    yield f"shell          {default_shell(os.environ, places).path}"
    for name, (module, without) in EXTRAS.items():
        yield f"extra {name:<8} {_extra(name, module, without)}"


def _browser(settings: Settings, places: Places) -> str:
    from ferrule.containers.screen import ScreenError
    from ferrule.containers.screen.program import find_program

    try:
        program = find_program(settings.computer.browser, places)
    except ScreenError as error:
        return f"not found: `computer` has no screen: {error}"
    return f"{_version(program.path)} ({program.path})"


def _extra(name: str, module: str, without: str) -> str:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            return f"not installed: {without}; pip install 'ferrule[{name}]'"
        return f"{PROBLEM}: {module} needs {error.name}, which is not installed: {without}"
    except ImportError as error:
        return f"{PROBLEM}: {module} cannot be loaded, so {without}: {error}"
    return "installed"


def _program(name: str, places: Places) -> Located:
    match name:
        case "rg":
            return find_ripgrep(os.environ, places)
        case "node":
            return find_node(os.environ, places)
    return locate(name, os.environ.get("PATH"), places)


def _version(path: str) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"PROBLEM: does not run: {error}"
    return (done.stdout.splitlines() or ["no version"])[0]


def _model(settings: Settings) -> Iterator[str]:
    try:
        model = open_model(settings.provider)
    except UsageError as error:
        yield f"provider       none: {error}"
        return
    endpoint, configured = model.server.endpoint, settings.provider
    variable = (configured and configured.env_key) or model.accepts.env_key
    yield f"provider       {endpoint.name} at {without_secrets(endpoint.base_url)}, {model.wire} wire"
    yield f"key            {_key_state(variable, os.environ)}"
    yield f"model          {settings.model.model or model.accepts.default_model or 'the first that the server lists'}"
    try:
        listed = asyncio.run(asyncio.wait_for(list_models(model), PROBE_SECONDS))
    except TimeoutError:
        yield f"server         PROBLEM: no answer to GET /models within {PROBE_SECONDS:g} s"
    except (ModelError, UsageError) as error:
        yield f"server         PROBLEM: {error}"
    else:
        names = ", ".join(listed[:SHOWN_MODELS]) + (", …" if len(listed) > SHOWN_MODELS else "")
        yield f"server         lists {len(listed)} models: {names}"
        yield from _abilities(settings, next(iter(listed), ""))


def _abilities(settings: Settings, first: str) -> Iterator[str]:
    """Report what a server of the user's own says it can, and what is missing for the session's tools."""
    from ferrule.model.abilities import Wanted, ask_abilities, is_own, shortcomings
    from ferrule.session.offline import open_offline

    async def ask() -> "tuple[Abilities | None, str, Wanted]":
        quiet = msgspec.structs.replace(settings, mcp_servers={})
        session, model = await open_offline(quiet)
        async with session:
            name = settings.model.model or model.accepts.default_model or first
            tokens = session.opening_tokens()
            wanted = Wanted(tokens, native=model.native_calls, window=settings.model.context_window)
            own = is_own(model.profiles, model.accepts.name, model.server.endpoint.base_url)
            return await ask_abilities(model.server, model.accepts.name, name) if own else None, name, wanted

    found, name, wanted = asyncio.run(ask())
    if found is None:
        return
    yield f"abilities      {found.server}: {', '.join(found.in_words())}"
    for text in shortcomings(found, name, wanted):
        yield f"abilities      {PROBLEM}: {text}"


def _key_state(variable: str | None, env: Mapping[str, str]) -> str:
    """Report whether the key is set; never show its value."""
    if variable is None:
        return "none is sent"
    return f"{variable} is {'set' if env.get(variable, '').strip() else 'not set'}"


def _environment(settings: Settings) -> Iterator[str]:
    withheld = child_environment(settings.command_environment, os.environ).withheld
    yield f"withheld       {', '.join(withheld) or 'nothing'} (variables that commands do not see)"


def _containers(settings: Settings) -> Iterator[str]:
    from ferrule.containers.images import ImageError, Images
    from ferrule.containers.local import IMAGES
    from ferrule.containers.report import containers_report

    name, image = settings.gateway.containers.image, None
    if name is not None:
        try:
            image = Images(Path(settings.home, IMAGES)).get(name)
        except ImageError as error:
            yield f"Containers: gateway.containers.image: {error}"
    yield from asyncio.run(containers_report(image))


def _git(settings: Settings) -> Iterator[str]:
    """Report git's own protection against a folder that a command disguised as a repository (git-config(1))."""
    from ferrule.git.config import user_settings

    if user_settings(os.environ).get("safe.barerepository") != "explicit":
        yield "git            advice: run `git config --global safe.bareRepository explicit`, so that git obeys no"
        yield "               repository that a command hides in an ordinary folder; docs/security.md says what remains"


def _network(settings: Settings) -> Iterator[str]:
    access = getattr(settings.sandbox_policy, "network_access", None)
    if isinstance(access, tuple):
        yield f"network        only ports 80 and 443 of {', '.join(access)}; other domains are asked for, or refused"


def _sandbox(settings: Settings) -> Iterator[str]:
    from ferrule.sandbox.environment import NESTED, is_inside
    from ferrule.sandbox.probe import probe

    home = Path(settings.home)
    if is_inside():
        yield f"Sandbox: not tried: {NESTED}"
    elif _writability(home).startswith(PROBLEM):
        yield "Sandbox: not tried: it would keep its state in the home folder; set FERRULE_HOME to one that is writable"
    else:
        places = command_places(settings.sandbox_policy, settings.cwd, settings.home)
        try:
            yield from asyncio.run(probe(home, places)).lines()
        except (FerruleError, OSError) as error:
            yield f"Sandbox: {PROBLEM}: {error}"
