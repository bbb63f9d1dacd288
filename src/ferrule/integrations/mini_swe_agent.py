"""An environment of mini-swe-agent: `DefaultAgent(model, FerruleEnvironment(), ...)`, without Docker.

In its configuration files: `environment_class: ferrule.integrations.mini_swe_agent.FerruleEnvironment`. Source:
minisweagent.Environment and what its own environments do.
"""

import asyncio
import os
import platform
import sys
from collections.abc import Mapping
from subprocess import TimeoutExpired
from typing import Any, Self

try:
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge
except ImportError as error:
    needed = (
        "the environment for mini-swe-agent needs the extra `mini-swe-agent`: pip install 'ferrule[mini-swe-agent]'"
    )
    raise ImportError(needed) from error
from pydantic import BaseModel, ConfigDict

from ferrule.integrations.task_sandboxes import Command, Level, Memory, Processors, Sandboxes, TaskSandbox, Wanted
from ferrule.process.run import Completed
from ferrule.protocol.errors import FerruleError
from ferrule.sync import background_loop, wait_for_coroutine

NAME = "mini-swe-agent"
"""Of the place of its sandboxes."""
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The first line of the output that ends a task."""
OUTPUT_BYTES = 50 << 20
"""Of one command: more than any model reads, less than a flood."""


class FerruleEnvironmentConfig(BaseModel):
    """The configuration of an environment; `cwd`, `env`, `forward_env`, `timeout` and `interpreter` as of its others.

    `image` was imported by `ferrule runtime import`; without one commands are the machine's programs. `user` is by
    default the image's own or root. `domains` are all that can be reached of the network: nothing by default. `memory`
    is in bytes, `cpus` a number of processors. `level` `auto` takes a container where the machine has them.
    """

    model_config = ConfigDict(extra="forbid")

    image: str | None = None
    cwd: str = ""
    env: dict[str, str] = {}
    forward_env: list[str] = []
    timeout: int = 30
    interpreter: list[str] = ["/bin/sh", "-c"]
    user: str = ""
    domains: list[str] = []
    memory: Memory | None = None
    cpus: Processors | None = None
    level: Level = "auto"


class FerruleEnvironment:
    """One sandbox, made at once. Each command is a new shell; files and what runs in the background stay until
    `cleanup`. Any thread may call it."""

    def __init__(
        self, *, config_class: type[FerruleEnvironmentConfig] = FerruleEnvironmentConfig, **kwargs: Any
    ) -> None:
        """Raises `FerruleError` where there can be no such sandbox, and what `config_class` raises."""
        self.config = config_class(**kwargs)
        self._sandbox: TaskSandbox | None = wait_for_coroutine(_opened(self.config))

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run the action's `command`. Raises `Submitted` if it ends the task; what else goes wrong is the result."""
        seconds = timeout or self.config.timeout
        forwarded = {name: os.environ[name] for name in self.config.forward_env if name in os.environ}
        line = action.get("command", "")
        if not isinstance(line, str):
            return _failed(FerruleError(f"the command is {line!r}, and has to be a text"), "")
        command = Command(
            argv=[*self.config.interpreter, line],
            env={**forwarded, **self.config.env},
            cwd=cwd,
            timeout=seconds,
            output_bytes=OUTPUT_BYTES,
            merge=True,
        )
        try:
            if self._sandbox is None:
                raise FerruleError("the environment was cleaned up")
            output = _result(wait_for_coroutine(self._sandbox.run(command)), line, seconds)
        except FerruleError as error:
            output = _failed(error, "")
        _end_if_submitted(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return what prompts can name."""
        inside = {} if self._sandbox is None else {"cwd": self._sandbox.folder}
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), inside, platform.uname()._asdict(), kwargs)
        return merged

    def serialize(self) -> dict[str, Any]:
        """Return what the trajectory says of it."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": self.config.model_dump(mode="json"), "environment_type": kind}}}

    def cleanup(self) -> None:
        """End the sandbox and remove its files. May be called again."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            wait_for_coroutine(_closed(sandbox))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cleanup()

    def __del__(self) -> None:
        sandbox = getattr(self, "_sandbox", None)
        if sandbox is not None and not sys.is_finalizing():  # at a program's end all are closed
            asyncio.run_coroutine_threadsafe(_closed(sandbox), background_loop())


async def _opened(config: FerruleEnvironmentConfig) -> TaskSandbox:
    wanted = Wanted(
        image=config.image,
        user=config.user,
        folder=config.cwd,
        domains=tuple(config.domains),
        level=config.level,
        memory_bytes=config.memory,
        cpus=config.cpus,
    )
    return await Sandboxes.of(NAME).open(wanted)


async def _closed(sandbox: TaskSandbox) -> None:
    """Close it, and what all of them share after the last."""
    await sandbox.aclose()
    sandboxes = Sandboxes.of(NAME)
    if not sandboxes.any_open:
        await sandboxes.aclose()


def _result(done: Completed, command: str, seconds: int) -> dict[str, Any]:
    """Return a result as its other environments do."""
    text = done.stdout.head.decode("utf-8", "replace")
    if done.timed_out:
        return _failed(TimeoutExpired(command, seconds), text)
    return {"output": text, "returncode": done.exit_code, "exception_info": ""}


def _failed(error: Exception, output: str) -> dict[str, Any]:
    return {
        "output": output,
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {error}",
        "extra": {"exception_type": type(error).__name__, "exception": str(error)},
    }


def _end_if_submitted(output: Mapping[str, Any]) -> None:
    first, _, rest = output["output"].lstrip().partition("\n")
    if first.strip() == SUBMIT and output["returncode"] == 0:
        extra = {"exit_status": "Submitted", "submission": rest}
        raise Submitted({"role": "exit", "content": rest, "extra": extra})
