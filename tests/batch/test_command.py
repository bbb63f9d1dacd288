"""`ferrule batch`: the command and its workers, as processes, with a model server on loopback."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule import batch
from ferrule.batch.places import folder_apart
from ferrule.protocol.errors import UsageError
from ferrule.testing import ScriptedModel, function_call, http_error, step
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from ferrule.workspaces import Workspaces
from tests.cli.command import Place, wait_until
from tests.cli.places import cold_place, forker, place
from tests.processes import children_of

__all__ = ["cold_place", "forker", "place"]

Task = dict[str, Any]


def words(request: Request) -> str:
    """The prompt of a request."""
    return request.raw.decode()


def write_tasks(path: Path, tasks: Sequence[Task | str]) -> None:
    path.write_text("\n".join(task if isinstance(task, str) else json.dumps(task) for task in tasks) + "\n")


def read_results(path: Path) -> dict[Any, dict[str, Any]]:
    results = [json.loads(line) for line in path.read_text().splitlines()]
    by_id = {result["id"]: result for result in results}
    assert len(by_id) == len(results)
    return by_id


def arguments(place: Place, model: ScriptedModel, *more: str) -> list[str]:
    server = ("--base-url", model.base_url, "--wire", "chat", "-m", "scripted-model")
    return ["batch", str(place.cwd / "tasks.jsonl"), "--out", str(place.cwd / "out.jsonl"), *server, *more]


def git(folder: Path, *command: str) -> str:
    done = subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def make_repository(folder: Path) -> None:
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "greeting").write_text("hello\n")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "one")
    (folder / "greeting").write_text("not committed\n")


def one_command(request: Request) -> Simple:
    """Let the model run the command that the prompt names after `run:`, once, and say what it printed."""
    if request.outputs:
        return request.outputs[0].text.rsplit("Output:\n")[-1].strip() or "nothing"
    _, _, rest = words(request).rpartition("run: ")
    return function_call("shell_command", {"command": rest.partition(" ;;")[0]})


def test_every_task_has_a_result_and_a_second_run_asks_nothing(place: Place) -> None:
    make_repository(place.cwd / "repo")
    (place.cwd / "folder").mkdir()
    (place.cwd / "folder" / "script").write_text("echo hi\n")
    run = "run: {} ;;"
    tasks: list[Task | str] = [
        {"id": 1, "prompt": run.format("echo made > new; cat greeting; git log --format=%s"), "repository": "repo",
         "check": f"grep -q made new && touch $TMPDIR/x $(mktemp) && ! (echo x >> {place.cwd}/out.jsonl)"},
        {"id": "a/ü", "prompt": run.format("rm script"), "folder": "folder", "check": "exit 3"},
        {"id": "1", "prompt": run.format("pwd")},
        {"id": "turns", "prompt": run.format("echo x > x"), "max_turns": 1},
        {"id": "tokens", "prompt": run.format("echo x > x"), "max_tokens": 5},
        {"id": "seconds", "prompt": run.format("echo x > x; sleep 30"), "max_seconds": 4, "check": "test -e x"},
        {"id": "none", "prompt": "x", "folder": "not there"},
        "",
        "[]",
        {"id": 1, "prompt": "again"},
    ]  # fmt: skip
    write_tasks(place.cwd / "tasks.jsonl", tasks)
    with ScriptedModel(one_command) as model:
        done = place.run(*arguments(place, model, "--workers", "9"))
        asked = len(model.requests)
        before = (place.cwd / "out.jsonl").read_bytes()
        again = place.run(*arguments(place, model))
        assert len(model.requests) == asked
    assert (done.code, again.code) == (1, 1)
    assert "line 9: no object" in done.err
    assert "line 10: the id 1 again" in done.err
    assert "7 of 7 tasks: 3 done, 1 error, 1 timeout, 1 token limit, 1 turn limit, 2 passed, 1 failed" in done.err
    assert "0 of 7 tasks, 7 before" in again.err
    assert (place.cwd / "out.jsonl").read_bytes() == before
    results = read_results(place.cwd / "out.jsonl")
    _check_the_repository_task(place, results[1])
    assert {key: (result["status"], result["verdict"]) for key, result in results.items()} == {
        1: ("done", "pass"), "a/ü": ("done", "fail"), "1": ("done", None), "turns": ("turn_limit", None),
        "tokens": ("token_limit", None), "seconds": ("timeout", "pass"), "none": ("error", None),
    }  # fmt: skip
    assert results["a/ü"]["check_exit_code"] == 3
    assert "deleted file mode" in results["a/ü"]["patch"]
    assert "there is no folder" in results["none"]["error"]
    assert all("+++ b/x" in results[key]["patch"] for key in ("turns", "tokens", "seconds"))
    assert sorted(path.name for path in place.cwd.iterdir()) == [
        "folder", "out.jsonl", "out.jsonl.rollouts", "repo", "tasks.jsonl",
    ]  # fmt: skip
    assert (place.cwd / "folder" / "script").exists()
    assert git(place.cwd / "repo", "worktree", "list").count("\n") == 1
    assert not list(place.home.glob("sessions/**/*.jsonl"))


def _check_the_repository_task(place: Place, result: dict[str, Any]) -> None:
    assert result["last_message"] == "hello\none"
    assert result["usage"]["input_tokens"] > 0 and 0 < result["seconds"] < 60
    assert (result["attempts"], result["error"], result["check_exit_code"]) == (1, None, 0)
    git(place.cwd / "repo", "checkout", "-q", ".")
    subprocess.run(
        ["git", "apply", "--check", "-"], cwd=place.cwd / "repo", input=result["patch"], text=True, check=True
    )
    first, call, answer, last = result["messages"]
    assert (first["role"], first["content"][:4]) == ("user", "run:")
    assert call["tool_calls"][0]["function"]["name"] == "shell_command"
    assert answer["role"] == "tool" and answer["tool_call_id"] == call["tool_calls"][0]["id"]
    assert last == {"role": "assistant", "content": "hello\none"}
    kinds = [json.loads(line)["type"] for line in Path(result["rollout"]).read_text().splitlines()]
    assert kinds[0] == "session_meta" and "response_item" in kinds


@contextmanager
def halting(count: int) -> Iterator[tuple[ScriptedModel, threading.Event]]:
    """A model that answers at once, but for the prompts that say `wait`, until the event is set."""
    go = threading.Event()

    def answer(request: Request) -> Simple:
        return step("done", delay=0 if go.is_set() or "wait" not in words(request) else 60.0)

    with ScriptedModel(answer) as model:
        yield model, go


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_batch_that_was_ended_goes_on(place: Place, sent: signal.Signals) -> None:
    out = place.cwd / "out.jsonl"
    write_tasks(place.cwd / "tasks.jsonl", [{"id": n, "prompt": "wait" if n > 3 else "be quick"} for n in range(6)])
    with halting(8) as (model, go):
        running = place.start(*arguments(place, model, "--workers", "1"))
        wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") == 4)
        model.wait_for_requests(5)
        os.kill(running.pid, sent)
        _, said = running.communicate(timeout=30)
        if sent != signal.SIGKILL:
            assert running.returncode == 130
            assert "the same command goes on" in said.decode()
        before = out.read_bytes()
        assert before.count(b"\n") == 4
        go.set()
        done = place.run(*arguments(place, model, "--workers", "1"))
    assert done.code == 0, done.err
    assert out.read_bytes().startswith(before)
    tries = {key: result["attempts"] for key, result in read_results(out).items()}
    assert tries == {**dict.fromkeys(range(4), 1), 4: 2, 5: 1}
    assert {result["status"] for result in read_results(out).values()} == {"done"}
    assert sorted(path.name for path in place.cwd.iterdir()) == ["out.jsonl", "out.jsonl.rollouts", "tasks.jsonl"]


def test_a_worker_that_dies_is_replaced(place: Place) -> None:
    out = place.cwd / "out.jsonl"
    write_tasks(place.cwd / "tasks.jsonl", [{"id": n, "prompt": "wait" if n else "be quick"} for n in range(3)])
    with halting(3) as (model, go):
        running = place.start(*arguments(place, model, "--workers", "1"))
        wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") == 1)
        model.wait_for_requests(2)
        go.set()
        for worker in children_of(running.pid):
            os.kill(worker, signal.SIGKILL)
        _, said = running.communicate(timeout=30)
    assert running.returncode == 0, said
    assert {key: result["attempts"] for key, result in read_results(out).items()} == {0: 1, 1: 2, 2: 1}


async def test_a_program_gets_dicts_and_a_limited_server_holds_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    limited: list[Request] = []

    def answer(request: Request) -> Simple:
        if not limited:
            limited.append(request)
            return http_error(429, "slow down", headers={"retry-after": "1"})
        return "done"

    with ScriptedModel(answer) as model:
        results = [
            result
            async for result in batch.run(
                [{"id": n, "prompt": "hello"} for n in range(6)],
                workers=2, base_url=model.base_url, wire="responses", model="scripted-model", tools=["update_plan"],
                instructions="Be brief.", reasoning_effort="low", temperature=0.5, max_output_tokens=77,
                sandbox="read-only", api_key="sk-own",
            )
        ]  # fmt: skip
        body = model.last_request.body
        assert model.last_request.tool_names == ["update_plan"] and body["instructions"] == "Be brief."
        assert (body["reasoning"], body["temperature"], body["max_output_tokens"]) == ({"effort": "low"}, 0.5, 77)
        assert "<sandbox_mode>read-only</sandbox_mode>" in words(model.last_request)
        assert model.last_request.headers["authorization"] == "Bearer sk-own"
        refused = limited[0].finished_ns
        assert refused is not None
        later = [request.arrived_ns for request in model.requests if request.arrived_ns > refused + 5e7]
        assert min(later) > refused + 0.95e9
    assert {result["id"]: result["status"] for result in results} == dict.fromkeys(range(6), "done")
    assert all(result["rollout"] is None for result in results)


async def test_a_program_is_told_of_bad_tasks_before_anything_starts(tmp_path: Path) -> None:
    runs = batch.run([{"id": 1}, {"id": 2, "prompt": "x"}, {"id": 2, "prompt": "x"}], base_url="http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match="line 1: no prompt: a text; line 3: the id 2 again"):
        await anext(aiter(runs))


async def test_a_task_that_is_nested_too_deep_is_no_json() -> None:
    prompt: list[Any] = []
    for _ in range(100_000):
        prompt = [prompt]
    with pytest.raises(UsageError, match="line 1: no JSON"):
        await anext(aiter(batch.run([{"id": 1, "prompt": prompt}], base_url="http://127.0.0.1:9/v1")))


async def test_nothing_is_left_beside_a_file_that_is_no_batchs(tmp_path: Path) -> None:
    out = tmp_path / "notes.jsonl"
    out.write_text('{"note": 1}\n')
    with pytest.raises(UsageError, match="is no result of a batch"):
        await anext(aiter(batch.run([{"id": 1, "prompt": "x"}], out=out, base_url="http://127.0.0.1:9/v1")))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("notes.jsonl", '{"note": 1}\n')]


async def test_what_a_killed_cluster_left_on_this_machine_goes_with_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    node = folder_apart(tmp_path / "out.jsonl.work")
    for name in ("work/owners/dead/1/place", "rollouts-dead"):
        (node / name).mkdir(parents=True)
    (node / "work/door").touch()
    (node / "rollouts-dead/1.jsonl").touch()

    async def run() -> None:
        server = "http://127.0.0.1:9/v1"
        assert [one async for one in batch.run([], out=tmp_path / "out.jsonl", base_url=server)] == []

    async with Workspaces.open(node / "work"):
        await run()
        assert os.listdir(node / "rollouts-dead") == ["1.jsonl"]  # of one that lives, for all we know
    await run()
    assert not node.exists()


async def test_a_folder_of_others_in_the_place_of_the_workspaces_stays(tmp_path: Path) -> None:
    mine = tmp_path / "out.jsonl.work/owners/me"
    mine.mkdir(parents=True)
    runs = batch.run([{"id": 1, "prompt": "x"}], out=tmp_path / "out.jsonl", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match=r"workspaces cannot be kept in .*out.jsonl.work: other files are there"):
        await anext(aiter(runs))
    assert mine.exists()


def test_what_cannot_be_is_said_in_a_line(place: Place) -> None:
    server = ("--base-url", "http://127.0.0.1:9/v1")
    tasks = place.cwd / "tasks.jsonl"
    write_tasks(tasks, [{"id": 1, "prompt": "x"}])
    said = {
        ("none.jsonl", "--out", "out.jsonl", *server): "the tasks none.jsonl cannot be read: No such file",
        ("tasks.jsonl", "--out", "none/out.jsonl", *server): "the folder of",
        ("tasks.jsonl", "--out", "tasks.jsonl", *server): "tasks.jsonl is the file of the tasks",
        ("tasks.jsonl", "--out", "out.jsonl", *server, "--workers", "0"): "at least 1 worker, not 0",
        ("tasks.jsonl", *server): "--out",
        ("tasks.jsonl", "--out", "out.jsonl"): "No model is configured",
        ("tasks.jsonl", "--out", "out.jsonl", *server, "-c", 'tools=["nope"]'): "unknown tool 'nope'",
        ("tasks.jsonl", "--out", "out.jsonl", *server, "--api-key-env", "NOPE"): "Set NOPE to your key",
    }
    for given, text in said.items():
        done = place.run("batch", *given)
        assert (done.code, done.out) == (2, ""), given
        assert text in done.err
        assert done.err.count("\n") == 1
    done = place.run("batch", "tasks.jsonl", "--out", "out.jsonl", *server, env={"FERRULE_HOME": "/proc/none"})
    assert (done.code, "set FERRULE_HOME to a folder that can" in done.err) == (2, True)
    tasks.write_text("\n\n")
    assert place.run("batch", "tasks.jsonl", "--out", "out.jsonl", *server).code == 0
