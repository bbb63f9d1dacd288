"""Ferrule's sandboxes in the real Inspect AI: its own checks of sandboxes, evaluations over both wires, crashes.

Inspect takes seconds to import, so only the worker that runs these tests does. Checks that wait for seconds, and other
users than root, are in `scripts/inspect_checks`.
"""

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.integrations.task_sandboxes.owner import place_of
from ferrule.sandbox.plan import Level
from ferrule.testing import Request, ScriptedModel, Step, function_call, step
from tests.integrations.frameworks import program
from tests.sandbox.conftest import require

pytestmark = [  # of what Inspect calls, and of what it leaves open, once a sample
    pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]
SLOW = {
    *("test_exec_timeout", "test_exec_timeout_kills_process", "test_exec_timeout_kills_child_processes"),
    *("test_exec_input_large", "test_read_and_write_large_file_binary"),
}
"""They wait for seconds, or move 50 MB."""
SECOND_USER = "test_exec_as_user"
HELD = """
import asyncio, sys
from ferrule.integrations.task_sandboxes import Sandboxes, Wanted

async def main():
    made = await Sandboxes.of("inspect").open(Wanted())
    await made.write("left", b"x" * 1000)
    print(made.id, flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ferrule's own folder, and with it a place for the sandboxes of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("FERRULE_HOME", str(folder))
        patch.setenv("INSPECT_LOG_DIR", str(folder / "logs"))
        yield folder
        gc.collect()  # what Inspect left open is told here, where nobody minds
        assert not place_of("inspect").exists()


@pytest.fixture(scope="module")
def kind() -> Any:
    """The provider, as Inspect finds it."""
    asyncio.run(require(Level.NAMESPACES))
    from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

    return registry_find_sandboxenv("ferrule")


@pytest.fixture
async def sandbox(kind: Any) -> AsyncIterator[Any]:
    made = await kind.sample_init("task", None, {})
    yield made["default"]
    await kind.sample_cleanup("task", None, made, False)
    await kind.task_cleanup("task", None, True)


async def test_inspects_own_checks(kind: Any) -> None:
    from inspect_ai.util._sandbox import self_check

    await kind.task_init("task", None)

    async def check(name: str) -> str | None:
        made = await kind.sample_init("task", None, {})
        try:
            await getattr(self_check, name)(made["default"])
        except Exception as error:  # noqa: BLE001  told below, with its name
            return f"{name}: {error!r}"
        finally:
            await kind.sample_cleanup("task", None, made, False)
        return None

    names = set(self_check.__all__) - SLOW - (set() if os.getuid() == 0 else {SECOND_USER})
    assert len(names) >= 38
    failures = [text for text in await asyncio.gather(*map(check, sorted(names))) if text is not None]
    await kind.task_cleanup("task", None, True)
    assert failures == []


async def test_a_timeout_ends_all_and_tells_what_was_printed(sandbox: Any) -> None:
    line = "echo first; (trap '' TERM; sleep 60; touch late) & sleep 60"
    with pytest.raises(TimeoutError, match="after 1 seconds") as caught:
        await sandbox.exec(["sh", "-c", line], timeout=1)
    assert caught.value.truncated_output == "first\n"  # type: ignore[attr-defined]  # where Inspect looks for it
    left = await sandbox.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls"])
    assert "sleep 60" not in left.stdout


async def test_of_a_flood_the_end_is_kept(sandbox: Any) -> None:
    from inspect_ai.util._sandbox.limits import override_max_exec_output_size

    with override_max_exec_output_size(1000):
        done = await sandbox.exec(["sh", "-c", "seq 100000; seq 3 >&2"])
        assert (len(done.stdout), done.stdout[-7:], done.stderr) == (1000, "100000\n", "1\n2\n3\n")
        assert len((await sandbox.exec(["sh", "-c", "head -c 1700 /dev/zero | tr '\\0' a; echo"])).stdout) == 1000
    done = await sandbox.exec(["printf", r"\377\303\050ok"])
    assert done.stdout == "��(ok"


async def test_what_cannot_be_written(sandbox: Any) -> None:
    await sandbox.exec(["sh", "-c", "mkdir out; mkfifo pipe; touch file; echo kept > sealed; chmod 400 sealed"])
    for path, error in (
        ("/usr/bin/new", PermissionError),
        ("/proc/version", PermissionError),
        ("out", IsADirectoryError),
        ("pipe", PermissionError),
        ("file/below", PermissionError),
        ("sealed", PermissionError),
        ("x" * 300, FileNotFoundError),
        ("a\0b", ValueError),
    ):
        with pytest.raises(error):
            await sandbox.write_file(path, "new")
    assert await sandbox.read_file("sealed") == "kept\n"


async def test_what_cannot_be_read(sandbox: Any) -> None:
    await sandbox.exec(["sh", "-c", "ln -s loop loop; mkfifo pipe; printf '\\303(' > bytes"])
    for path in ("loop", "nothing", "x" * 300, "/etc/passwd/x"):
        with pytest.raises(FileNotFoundError):
            await sandbox.read_file(path)
    for path in ("pipe", "/dev/zero"):
        with pytest.raises(PermissionError, match="Not a regular file"):
            await sandbox.read_file(path)
    with pytest.raises(UnicodeDecodeError):
        await sandbox.read_file("bytes")
    assert await sandbox.read_file("bytes", text=False) == b"\xc3("
    assert "Linux" in await sandbox.read_file("/proc/version")


async def test_links_in_a_workspace_lead_to_no_file_of_the_machine(sandbox: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the machine's")
    await sandbox.exec(["ln", "-s", str(tmp_path / "secret"), "link"])
    with pytest.raises(FileNotFoundError):
        await sandbox.read_file("link")
    await sandbox.exec(["ln", "-sf", "/tmp/made-by-link", "link"])
    await sandbox.write_file("link", "inside")
    assert await sandbox.read_file("/tmp/made-by-link") == "inside"
    assert not Path("/tmp/made-by-link").exists()


async def test_commands_that_cannot_start_are_results(sandbox: Any) -> None:
    from inspect_ai.util import SandboxUnavailableError

    missing = await sandbox.exec(["nothing-here"])
    assert (missing.success, missing.returncode, "nothing-here" in missing.stderr) == (False, 127, True)
    assert (await sandbox.exec(["true"], cwd="nowhere")).returncode == 127
    assert "unable to find user" in (await sandbox.exec(["true"], user="nobody-here")).stderr
    with pytest.raises(ValueError, match="embedded null byte"):
        await sandbox.exec(["echo", "a\0b"])
    for half in (sandbox.exec(["cat"], input="\ud83d"), sandbox.write_file("x", "\ud83d"), sandbox.exec(["\ud83d"])):
        with pytest.raises(SandboxUnavailableError, match="half of a surrogate pair"):  # which Inspect tells the model
            await half
    await sandbox._sandbox.aclose()
    for late in (sandbox.exec(["true"]), sandbox.read_file("x"), sandbox.write_file("x", "y")):
        with pytest.raises(SandboxUnavailableError, match="has ended"):
            await late


async def test_a_script_runs_as_soon_as_it_is_written(sandbox: Any) -> None:
    async def again(name: str) -> None:
        for number in range(20):
            await sandbox.write_file(name, f"#!/bin/sh\necho {number}\n")
            await sandbox.exec(["chmod", "+x", name]) if not number else None
            assert (await sandbox.exec([f"./{name}"], concurrency=False)).stdout == f"{number}\n"

    await asyncio.gather(*map(again, "abc"))


async def test_what_daemonises_goes_on_and_holds_nobody(sandbox: Any) -> None:
    done = await sandbox.exec(
        ["sh", "-c", "(setsid sh -c 'while ! test -e stop; do sleep 0.05; done; echo > stopped' &) ; echo up"]
    )
    assert done.stdout == "up\n"
    await sandbox.exec(["touch", "stop"])
    done = await sandbox.exec(["sh", "-c", "while ! test -e stopped; do sleep 0.02; done"], timeout=20)
    assert done.success


def test_configurations(kind: Any, home: Path) -> None:
    from inspect_ai.util import SandboxEnvironmentSpec

    from ferrule.integrations.inspect import FerruleSandboxConfig
    from ferrule.protocol.errors import FerruleError

    config = FerruleSandboxConfig(user="agent", working_dir="/work", env={"A": "b"}, memory=256 << 20)
    again = SandboxEnvironmentSpec.model_validate(SandboxEnvironmentSpec("ferrule", config).model_dump())
    assert (again.config, hash(again.config)) == (config, hash(config))
    with pytest.raises(ValueError, match="immage"):
        FerruleSandboxConfig(immage="x")  # type: ignore[call-arg]
    for name, wrong in (("memory", 1), ("cpus", 0), ("cpus", -1), ("cpus", float("nan"))):
        with pytest.raises(ValueError, match=name):
            FerruleSandboxConfig(**{name: wrong})

    async def made() -> None:
        environments = await kind.sample_init("task", config, {})
        done = await environments["default"].exec(["sh", "-c", "id -un; pwd; echo $A $HOME; touch here"])
        assert done.stdout == ("agent\n/work\nb /home/agent\n" if os.getuid() == 0 else "root\n/work\nb /root\n")
        await kind.sample_cleanup("task", config, environments, False)
        for wrong, told in (
            ("no-such-image", "there is no image 'no-such-image'"),
            (FerruleSandboxConfig(domains=("http://x",)), "domains"),
            (FerruleSandboxConfig(user="Ann"), "Ann"),
        ):
            with pytest.raises(FerruleError, match=told):
                await kind.task_init("task", wrong)
        await kind.task_cleanup("task", None, True)

    asyncio.run(made())


def answers(request: Request) -> Step:
    """What the model says: a command, then what it printed."""
    if request.outputs:
        return step(f"It says {request.outputs[-1].text.strip()}.")
    return step(function_call("bash", {"command": "cat data.txt made; id -un"}))


@pytest.mark.usefixtures("kind")
def test_a_container_has_what_its_configuration_asks_for() -> None:
    from ferrule.integrations.inspect import FerruleSandboxConfig, _wanted
    from ferrule.integrations.task_sandboxes.in_container import _settings

    wanted = _wanted(
        FerruleSandboxConfig(
            image="box", user="ann", working_dir="/w", env={"A": "b"}, domains=("a.example",), memory=256 << 20,
            cpus=1.5, level="container",
        )
    )  # fmt: skip
    assert (wanted.image, wanted.level, wanted.domains, wanted.folder) == ("box", "container", ("a.example",), "/w")
    made = _settings(wanted, None)
    assert (made.user, made.env["A"], made.memory_bytes, made.cpus) == ("ann", "b", 256 << 20, 1.5)


@pytest.mark.usefixtures("kind")
def test_an_evaluation() -> None:
    from inspect_ai import Task, eval  # noqa: A004  its name
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import bash

    samples = [
        Sample(
            id=f"s{number}",
            input="Look.",
            target=f"It says of {number}\nset up\nroot.",
            files={"data.txt": f"of {number}\n"},
            setup="echo set up > made",
        )
        for number in range(4)
    ]
    with ScriptedModel(answers) as model:
        chosen = get_model("openai/scripted-model", base_url=model.base_url, api_key="x", responses_api=True)
        task = Task(
            dataset=samples, solver=[use_tools(bash(timeout=30)), generate()], scorer=includes(), sandbox="ferrule"
        )
        (log,) = eval(task, model=chosen, max_samples=3, display="none", log_samples=True)
    assert log.status == "success", log.error
    assert log.samples is not None
    assert {one.output.completion for one in log.samples} == {str(one.target) for one in samples}
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    assert not place_of("inspect").exists()


def test_what_a_killed_evaluation_left_is_removed_and_nothing_of_one_that_runs(
    kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [sys.executable, "-c", HELD]
    runs = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    killed, running = runs
    with killed, running:
        ids = [run.stdout.readline().strip() for run in runs if run.stdout]
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        asyncio.run(kind.cli_cleanup(ids[1]))
        asyncio.run(kind.cli_cleanup("cntr_none"))
        told = capsys.readouterr().out
        assert f"in use by a running evaluation: {ids[1]}" in told
        assert "there is no sandbox cntr_none" in told
        assert (place_of("inspect") / ids[0] / "data" / "left").exists()
        for count in (1, 0):
            asyncio.run(kind.cli_cleanup(None))
            assert f"removed {count} sandbox" in capsys.readouterr().out
        assert [path.name for path in place_of("inspect").glob("cntr_*")] == [ids[1]]
        running.communicate("", timeout=30)
    asyncio.run(kind.cli_cleanup(None))
    assert not place_of("inspect").exists()


async def test_what_is_kept_is_named_and_removed_by_its_id(kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (made,) = (await kind.sample_init("task", None, {})).values()
    await made.write_file("out", "kept")
    await kind.task_cleanup("task", None, False)
    kept = made._sandbox.id
    assert kept in capsys.readouterr().out
    assert (place_of("inspect") / kept / "data" / "out").read_text() == "kept"
    await kind.cli_cleanup(kept)
    assert not place_of("inspect").exists()


@pytest.mark.usefixtures("kind")
def test_the_program_of_the_page_over_chat(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedModel([function_call("bash", {"command": "cat data.txt"}), step("It is 42.", expect="42")]) as model:
        exec(program("Inspect AI").replace("http://localhost:11434/v1", model.base_url), {"__name__": "program"})
    assert capsys.readouterr().out.splitlines()[-1] == "1.0"
