"""Ferrule's environment in the real mini-swe-agent, with its default agent and its deterministic model."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.integrations.task_sandboxes.owner import place_of
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.sandbox.plan import Level
from tests.integrations.frameworks import program
from tests.processes import eventually, running
from tests.sandbox.conftest import require

PLACE = "mini-swe-agent"
PROMPTS: dict[str, Any] = {"system_template": "You work in {{cwd}} on {{system}}.", "instance_template": "{{task}}"}
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@pytest.fixture(scope="module", autouse=True)
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module; its package writes into a folder of its own when it is imported."""
    asyncio.run(require(Level.NAMESPACES))
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("FERRULE_HOME", str(folder))
        patch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(folder / "mini"))
        patch.setenv("MSWEA_SILENT_STARTUP", "1")
        from ferrule.integrations import mini_swe_agent

        yield mini_swe_agent
        assert not place_of(PLACE).exists()


@pytest.fixture
def environment(mini: Any) -> Iterator[Any]:
    with mini.FerruleEnvironment(timeout=10, env={"PAGER": "cat"}) as made:
        yield made


def agent(environment: Any, *commands: str) -> Any:
    """An agent whose model gives these commands, one after the other."""
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.models.test_models import DeterministicModel, make_output

    outputs = [make_output("I run it.", [{"command": command}]) for command in commands]
    model: Any = DeterministicModel
    return DefaultAgent(model(outputs=outputs, cost_per_call=0.0), environment, cost_limit=0.0, **PROMPTS)


def test_an_agent_works_in_it_and_submits(environment: Any) -> None:
    made = agent(
        environment,
        "git init -q . && printf 'def f(): return 1\\n' > f.py && git add f.py",
        "sed -i s/1/2/ f.py; echo $PAGER; id -un",
        f"{SUBMIT} && git diff",
    )
    result = made.run("Let f return 2.")
    assert result["exit_status"] == "Submitted"
    assert result["submission"].startswith("diff --git a/f.py b/f.py")
    assert "-def f(): return 1\n+def f(): return 2\n" in result["submission"]
    assert made.messages[0]["content"] == "You work in /mnt/data on Linux."
    assert "<returncode>0</returncode>\n<output>\ncat\nroot\n</output>" in str(made.messages[5]["content"])
    kind = made.serialize()["info"]["config"]["environment_type"]
    assert kind == "ferrule.integrations.mini_swe_agent.FerruleEnvironment"


def test_it_is_made_from_a_configuration(mini: Any) -> None:
    from minisweagent.environments import get_environment

    config = {"environment_class": "ferrule.integrations.mini_swe_agent.FerruleEnvironment", "cwd": "/testbed"}
    made = get_environment(config)
    assert made.execute({"command": "pwd; ls"})["output"] == "/testbed\n"
    made.cleanup()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="imgae"):
        get_environment({**config, "imgae": "x"})
    with pytest.raises(FerruleError, match="there is no image 'none'"):
        mini.FerruleEnvironment(image="none")


def test_files_stay_between_commands_and_shells_do_not(environment: Any) -> None:
    environment.execute({"command": "export A=1; cd /tmp; echo x > /srv/kept"})
    done = environment.execute({"command": "echo ${A-none} $PWD; cat /srv/kept; echo bad >&2; exit 3"})
    assert done == {"output": "none /mnt/data\nx\nbad\n", "returncode": 3, "exception_info": ""}
    assert environment.execute({"command": "pwd"}, cwd="/srv")["output"] == "/srv\n"
    assert environment.execute({"command": "pwd"}, cwd="nowhere")["returncode"] == -1


def test_a_timeout_is_told_as_its_others_tell_it(environment: Any) -> None:
    done = environment.execute({"command": "echo first; (sleep 60; touch late) & sleep 60"}, timeout=1)
    assert (done["returncode"], done["output"]) == (-1, "first\n")
    assert done["exception_info"].startswith("An error occurred while executing the command: Command 'echo first")
    assert done["extra"]["exception_type"] == "TimeoutExpired"
    assert environment.execute({"command": "ls"})["output"] == ""


@pytest.mark.parametrize("command", [None, 5, ["ls"], "a\0b", "\ud83d"])
def test_what_is_no_command_is_told(environment: Any, command: object) -> None:
    done = environment.execute({"command": command})
    assert (done["returncode"], done["output"]) == (-1, "")
    assert done["exception_info"].startswith("An error occurred while executing the command: the command")


def test_variables_are_forwarded_by_name_only(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "1")
    monkeypatch.setenv("SECRET", "2")
    with mini.FerruleEnvironment(forward_env=["GIVEN", "MISSING"]) as made:
        assert made.execute({"command": "echo $GIVEN$SECRET"})["output"] == "1\n"


def test_on_the_machine_itself(mini: Any) -> None:
    with mini.FerruleEnvironment(level="workspace-write") as made:
        done = made.execute({"command": "touch here; touch /etc/there; pwd"})
        folder = made.get_template_vars()["cwd"]
        assert (f"{folder}\n" in done["output"], "/etc/there" in done["output"]) == (True, True)
        assert Path(folder, "here").exists()
    assert not Path(folder).exists()
    for limit in ("memory", "cpus"):
        with pytest.raises(UsageError, match=r"takes a container.*its level is workspace-write"):
            mini.FerruleEnvironment(level="workspace-write", **{limit: 1 << 30})


def test_an_environment_that_nobody_has_any_more_goes(mini: Any) -> None:
    made = mini.FerruleEnvironment()
    folder = made._sandbox.files
    del made
    gc.collect()
    assert eventually(lambda: not Path(folder).exists())


def test_many_threads_and_a_second_cleanup(mini: Any) -> None:
    said: list[str] = []

    def work(number: int) -> None:
        made = mini.FerruleEnvironment()
        made.execute({"command": f"echo {number} > mine"})
        said.append(made.execute({"command": "cat mine; ls | wc -l"})["output"])
        made.cleanup()
        made.cleanup()
        assert made.execute({"command": "true"})["exception_info"].endswith("the environment was cleaned up")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(said) == [f"{number}\n1\n" for number in range(8)]


def test_a_program_that_forgets_it_or_is_killed_leaves_no_process(mini: Any) -> None:
    source = "import sys\nfrom ferrule.integrations.mini_swe_agent import FerruleEnvironment as E\ne = E()\n"
    forgets = source + "e.execute({'command': 'sleep 98766 > /dev/null 2>&1 &'})"
    subprocess.run([sys.executable, "-c", forgets], check=True, timeout=60)
    assert not place_of(PLACE).exists(), [*place_of(PLACE).iterdir()]
    hangs = forgets + "; print(e.execute({'command': 'echo up'})['output'], flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hangs], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        killed.send_signal(signal.SIGKILL)
    assert eventually(lambda: not running("98766"))
    with mini.FerruleEnvironment():
        assert len([*place_of(PLACE).glob("cntr_*")]) == 1


@pytest.mark.usefixtures("mini")
def test_the_program_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    exec(program("mini-swe-agent"), {"__name__": "program"})
    assert capsys.readouterr().out == "fizz\n\n"
