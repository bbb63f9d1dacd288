"""Inspect's own checks of sandboxes, whole, for Ferrule's. Run by `scripts/inspect_checks`."""

import os
from collections.abc import AsyncIterator

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from ferrule.integrations.inspect import FerruleSandboxConfig


@pytest.fixture
async def sandbox_env() -> AsyncIterator[SandboxEnvironment]:
    kind = registry_find_sandboxenv("ferrule")
    level = os.environ["FERRULE_CHECKED_LEVEL"]
    config = FerruleSandboxConfig(level="container" if level == "container" else "workspace-write")
    made = await kind.sample_init("checks", config, {})
    yield made["default"]
    await kind.sample_cleanup("checks", config, made, False)
    await kind.task_cleanup("checks", config, True)


async def test_remote_commands(sandbox_env: SandboxEnvironment) -> None:
    """Those that Inspect's injected server starts."""
    if os.environ["FERRULE_CHECKED_LEVEL"] != "container":
        pytest.skip("Inspect installs its server in /var/tmp, which nobody can write there")
    done = await sandbox_env.exec_remote(["sh", "-c", "echo out; echo err >&2; exit 3"], stream=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
