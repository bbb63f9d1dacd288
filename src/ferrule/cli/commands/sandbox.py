"""`ferrule sandbox`: run your own command in the model's sandbox."""

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec

from ferrule.cli.options import (
    Parser,
    add_config_flag,
    add_rights_flags,
    configuration,
    existing_directory,
    split_command,
)
from ferrule.cli.passing import our_streams, pass_through, raw_terminal
from ferrule.cli.running import run_interruptibly
from ferrule.dispatch.workspace import Workspace
from ferrule.process.launcher import Limits, Pty
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import (
    DangerFullAccess,
    InContainer,
    InContainerReadOnly,
    ReadOnly,
    WorkspaceWrite,
)
from ferrule.protocol.settings import Settings
from ferrule.sandbox.caches import cache_hint
from ferrule.sandbox.environment import refuse_nesting
from ferrule.sandbox.sandbox import Sandbox, open_launcher
from ferrule.session.caches import with_caches

if TYPE_CHECKING:
    from ferrule.sandbox.local_way import Decider


def main(arguments: list[str]) -> int:
    """Run the command; exit with its code (128 + n for signal n)."""
    parser = Parser("sandbox", "Run a command confined as the model's commands are, with your whole environment.")
    add_rights_flags(parser)
    parser.add_argument(
        "-w", dest="writable", action="append", default=[], metavar="DIR", help="another folder that may be written"
    )
    parser.add_argument("--network", action="store_true", help="let it reach the network")
    add_config_flag(parser)
    parser.epilog = "The command follows --: ferrule sandbox -- make test"
    own, command = split_command(arguments)
    options = parser.parse_args(own)
    options.add_dir += [existing_directory(path, "-w") for path in options.writable]
    settings = configuration(options).settings
    return run_interruptibly(_run(_with_network(settings) if options.network else settings, command))


def _with_network(settings: Settings) -> Settings:
    policy = settings.sandbox_policy
    if not isinstance(policy, ReadOnly | WorkspaceWrite):
        return settings
    return msgspec.structs.replace(settings, sandbox_policy=msgspec.structs.replace(policy, network_access=True))


async def _in_container(settings: Settings, command: list[str]) -> int:
    """Run the command in a container, as the model's commands are there."""
    decider = _decider(settings)
    workspace = Workspace(settings.sandbox_policy, settings.cwd, settings.home, report=_tell, decider=decider)
    assert workspace.container is not None
    stdio = our_streams()
    try:
        child = await workspace.launch(command, workspace.container.environment, settings.cwd, stdio, Limits())
        with raw_terminal(child) if isinstance(stdio, Pty) else nullcontext():
            code, _ = await pass_through(child)
        return code
    finally:
        await workspace.close()


async def _run(settings: Settings, command: list[str]) -> int:
    if not command:
        raise UsageError("give the command after --, like `ferrule sandbox -- make test`")
    if isinstance(settings.sandbox_policy, InContainer | InContainerReadOnly):
        return await _in_container(settings, command)
    stdio = our_streams()
    sandbox: Sandbox | None = None
    variables: dict[str, str] = {}
    if not isinstance(settings.sandbox_policy, DangerFullAccess):
        refuse_nesting(settings)
        from pathlib import Path

        policy, variables = with_caches(settings)
        sandbox = await open_launcher(
            policy,
            settings.cwd,
            Path(settings.home),
            unconfined_accepted=settings.accept_no_sandbox,
            report=_tell,
            decider=_decider(settings),
        )
        for warning in sandbox.warnings:
            _tell(warning)
    try:
        child = await (sandbox or PlainLauncher()).launch(
            command, {**os.environ, **variables}, settings.cwd, stdio, Limits()
        )
        with raw_terminal(child) if isinstance(stdio, Pty) else nullcontext():
            code, said = await pass_through(child)
        closed = code and sandbox is not None and isinstance(settings.sandbox_policy, WorkspaceWrite)
        hint = cache_hint(said, os.environ) if closed else None
        if hint is not None:
            _tell(hint.removeprefix("note: "))
        return code
    finally:
        if sandbox is not None:
            await sandbox.close()


def _decider(settings: Settings) -> "Decider | None":
    """Return who decides what the command reaches, where the policy has a list of domains."""
    if isinstance(getattr(settings.sandbox_policy, "network_access", False), tuple):
        from ferrule.cli.by_rules import ByRules

        return ByRules(settings, _tell)
    return None


def _tell(text: str) -> None:
    print(f"ferrule: {text}", file=sys.stderr)
