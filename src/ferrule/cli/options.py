"""Flags shared by several commands, and the configuration they form together with the files."""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from ferrule.cli.main import one_line
from ferrule.config import Configuration, Layer, Sources, load
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import SandboxMode

FLAG_KEYS = {
    "model": ("-m", "model"),
    "sandbox": ("-s", "sandbox_mode"),
    "container": ("--container-image", "container"),
    "approval": ("-a", "approval_policy"),
    "profile": ("--profile", "profile"),
    "max_turns": ("--max-turns", "max_turns"),
    "max_tool_calls": ("--max-tool-calls", "max_tool_calls"),
    "max_output_tokens": ("--max-output-tokens", "model_max_output_tokens"),
    "token_budget": ("--token-budget", "run_token_budget"),
    "cost_budget": ("--cost-budget", "run_cost_budget"),
    "timeout": ("--timeout", "run_timeout"),
    "turn_timeout": ("--turn-timeout", "turn_timeout"),
}
"""Flags that set one key of the configuration: the flag's name in errors, and the key."""


NOBODY_TO_ASK = {"approval_policy": "never"}
"""Defaults of a front end that cannot ask: below every file and flag."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one sentence, like every other error."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"ferrule {command}",
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(f"{message} (see {self.prog} --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit after printing the help. Raises `BrokenPipeError` if its reader is gone."""
        sys.stdout.flush()
        super().exit(status, message)


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the model and its server."""
    parser.add_argument("-m", "--model", metavar="MODEL", help="the model's name")
    parser.add_argument("--base-url", metavar="URL", help="a model server, such as http://localhost:11434/v1")
    add_wire_flag(parser)
    parser.add_argument(
        "--api-key-env", metavar="NAME", help="the environment variable that holds the key for the server"
    )


def add_wire_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the server's API."""
    parser.add_argument("--wire", choices=("responses", "chat", "messages"), help="the server's API")


def add_profile_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the tool profile."""
    parser.add_argument("--profile", metavar="NAME", help="a tool profile instead of the model's; `all` is every tool")


def add_rights_flags(
    parser: argparse.ArgumentParser,
    asking: str = "nobody can be asked here, so never is the default",
    *,
    directory: bool = True,
) -> None:
    """Add the flags for permissions and directories. `asking` says which approval policy is the default; without
    `directory` the working directory is no choice."""
    parser.add_argument(
        "-s", "--sandbox", metavar="MODE", help="read-only, workspace-write (default), container or danger-full-access"
    )
    parser.add_argument(
        "-a", "--ask-for-approval", dest="approval", metavar="POLICY",
        help=f"untrusted, on-failure, on-request or never; {asking}",
    )  # fmt: skip
    parser.add_argument(
        "--container-image", metavar="NAME", help="run commands in a container on this image (implies -s container)"
    )
    if directory:
        add_directory_flag(parser)
    parser.add_argument(
        "--add-dir", metavar="DIR", action="append", default=[], help="another directory that may be written"
    )


def add_limit_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that bound a run, but for its time."""
    parser.add_argument("--max-turns", type=int, metavar="N", help="the maximum number of model requests")
    parser.add_argument("--max-tool-calls", type=int, metavar="N", help="the maximum number of tool calls")
    parser.add_argument("--max-output-tokens", type=int, metavar="N", help="the maximum length of one answer")
    parser.add_argument("--token-budget", type=int, metavar="N", help="end the run once its requests took N tokens")
    parser.add_argument(
        "--cost-budget", type=float, metavar="AMOUNT", help="end the run once it has cost this much, by [prices.MODEL]"
    )


def add_directory_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the working directory."""
    parser.add_argument("-C", "--cd", dest="directory", metavar="DIR", help="the working directory")


def read_given(flag: str, path: str) -> bytes:
    """Return what is in the file that a flag names. Raises `UsageError`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read: {error.strerror}") from error


def schema_in(path: str) -> dict[str, object]:
    """Return the schema in the file of `--output-schema`. Raises `UsageError`."""
    try:
        return msgspec.json.decode(read_given("--output-schema", path), type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--output-schema: {path} is not a JSON object: {error}") from error


def add_config_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag for any other setting."""
    parser.add_argument(
        "-c", "--config", dest="assignments", metavar="KEY=VALUE", action="append", default=[],
        help="a setting, as in config.toml; VALUE is TOML or plain text",
    )  # fmt: skip


def configuration(
    options: argparse.Namespace, defaults: Mapping[str, object] | None = None, *, cwd: str | None = None
) -> Configuration:
    """Return the configuration for these flags; print its warnings to standard error. `cwd` replaces the current
    directory."""
    loaded = load(sources_of(options, defaults, cwd=cwd))
    print_warnings(loaded.warnings)
    return loaded


def sources_of(
    options: argparse.Namespace, defaults: Mapping[str, object] | None = None, *, cwd: str | None = None
) -> Sources:
    """Return where the configuration for these flags is loaded from."""
    given = dict(vars(options))
    given.update(_container(given))
    flags = [Layer(flag, {key: given[name]}) for name, (flag, key) in FLAG_KEYS.items() if given.get(name) is not None]
    return Sources(
        cwd=cwd or working_directory(given.get("directory")),
        defaults=defaults or {},
        assignments=tuple(given.get("assignments") or ()),
        flags=tuple(flags),
        base_url=given.get("base_url"),
        wire=given.get("wire"),
        api_key_env=given.get("api_key_env"),
        add_dirs=tuple(existing_directory(path, "--add-dir") for path in given.get("add_dir") or ()),
    )


def _container(given: Mapping[str, object]) -> dict[str, object]:
    """Return what `--container-image` stands for: the mode, and the image. Raises `UsageError` beside another mode."""
    image = given.get("container_image")
    if image is None:
        return {}
    if given.get("sandbox") not in (None, SandboxMode.CONTAINER):
        raise UsageError("--container-image needs -s container")
    return {"sandbox": str(SandboxMode.CONTAINER), "container": {"image": image}}


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each as one line on standard error; file names in it are untrusted."""
    for warning in warnings:
        print(f"ferrule: warning: {one_line(warning)}", file=sys.stderr)


def split_command(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split our own arguments from the words of the command after `--`."""
    if "--" not in arguments:
        return arguments, []
    border = arguments.index("--")
    return arguments[:border], arguments[border + 1 :]


def working_directory(given: str | None) -> str:
    """Return the absolute directory of `-C`, else the current one. Raises `UsageError` if it does not exist."""
    if given is not None:
        return existing_directory(given, "-C")
    try:
        return os.path.realpath(os.getcwd())
    except FileNotFoundError as error:
        raise UsageError("the working directory no longer exists; choose another one with -C") from error


def is_given(options: argparse.Namespace, flag: str, key: str) -> bool:
    """Return whether `key`, or a key below it, is set on the command line: by `flag` or by `-c`."""
    assigned = (text.partition("=")[0].strip().partition(".")[0] for text in options.assignments)
    return getattr(options, flag, None) is not None or key in assigned


def existing_directory(path: str, flag: str) -> str:
    """Return the real path of the value of `flag`. Raises `UsageError` if there is no directory."""
    if not os.path.isdir(path):
        raise UsageError(f"{flag}: {path} is not a directory")
    return os.path.realpath(path)
