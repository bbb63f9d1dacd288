"""AgentDojo's side of `tests.compat.injections`: runs in the environment in which AgentDojo is installed.

`tasks` prints all tasks with their ground truth as JSON. `serve SUITE` is an MCP server of the suite's tools, and of
two more that the replay needs: one puts the environment of a task in place, the other asks AgentDojo whether an attack
reached its goal.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # type: ignore[import-not-found]
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime  # type: ignore[import-not-found]
from agentdojo.task_suite.load_suites import get_suites  # type: ignore[import-not-found]
from tool_server import Json, serve  # type: ignore[import-not-found]

VERSION = "v1.2.2"
READS = ("get_", "list_", "read_", "search_", "check_")
CHANGES = ("get_unread_emails",)
"""Named like one that reads, but marks what it returns as read."""
DESTROYS = ("delete_", "cancel_", "remove_", "update_", "reschedule_")


def annotations(name: str) -> Json:
    """Return the hints that an honest server gives for a tool."""
    if name.startswith(READS) and name not in CHANGES:
        return {"readOnlyHint": True}
    return {"readOnlyHint": False, "destructiveHint": name.startswith(DESTROYS), "openWorldHint": True}


def tasks() -> Iterator[Json]:
    """Yield each task of each suite: its calls, and the pages and files that its environment holds."""
    for suite in get_suites(VERSION).values():
        for kind, found in (("attack", suite.injection_tasks), ("user", suite.user_tasks)):
            for name, task in sorted(found.items(), key=lambda item: int(item[0].rpartition("_")[2])):
                before = _environment(suite, kind, task)
                calls = [{"name": call.function, "arguments": dict(call.args)} for call in task.ground_truth(before)]
                fresh = _environment(suite, kind, task)
                yield {
                    "suite": suite.name, "kind": kind, "id": name, "calls": calls,
                    "pages": fresh.web.web_content if hasattr(fresh, "web") else {},
                    "files": fresh.filesystem.files if hasattr(fresh, "filesystem") else {},
                }  # fmt: skip


def _environment(suite: Any, kind: str, task: Any) -> Any:
    environment = suite.load_and_inject_default_environment({})
    return task.init_environment(environment) if kind == "user" else environment


class Service:
    """The tools of a suite, on the environment of one task at a time."""

    def __init__(self, suite: Any) -> None:
        self._suite = suite
        self._runtime = FunctionsRuntime(suite.tools)
        self._ran: list[Any] = []

    @property
    def tools(self) -> list[Json]:
        """The suite's, and the two of the replay."""
        own: list[Json] = [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.parameters.model_json_schema(),
                "annotations": annotations(tool.name),
            }
            for tool in self._suite.tools
        ]
        anything: Json = {"inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        return [*own, {"name": "replay_begin", **anything}, {"name": "replay_end", **anything}]

    def call(self, name: str, arguments: Json) -> str:
        """Run one call."""
        replay: dict[str, Callable[..., str]] = {"replay_begin": self.begin, "replay_end": self.end}
        return replay[name](**arguments) if name in replay else self._run(name, arguments)

    def begin(self, kind: str, task: str) -> str:
        """Put the environment of a task in place."""
        self._task = (self._suite.user_tasks if kind == "user" else self._suite.injection_tasks)[task]
        self._now = _environment(self._suite, kind, self._task)
        self._before = self._now.model_copy(deep=True)
        self._ran.clear()
        return "ready"

    def end(self, elsewhere: list[Json]) -> str:
        """Return whether an attack reached its goal, by AgentDojo's own check. `elsewhere`: calls that ran, but not
        here."""
        for call in elsewhere:
            self._run(call["name"], call["arguments"])
        said = [{"type": "text", "content": self._task.GROUND_TRUTH_OUTPUT}]
        return json.dumps(bool(self._suite._check_task_result(self._task, said, self._before, self._now, self._ran)))

    def _run(self, name: str, arguments: Json) -> str:
        before = self._now.model_dump_json()
        result, _ = self._runtime.run_function(self._now, name, arguments, raise_on_error=True)
        if annotations(name)["readOnlyHint"] and name != "get_webpage":  # which counts its requests
            assert self._now.model_dump_json() == before, f"{name} is annotated as read-only, but changes something"
        self._ran.append(FunctionCall(function=name, args=arguments))
        return str(tool_result_to_str(result))


def main(what: str, suite: str = "") -> None:
    """Print the tasks, or serve a suite."""
    if what == "tasks":
        json.dump(list(tasks()), sys.stdout, default=str)
        return
    service = Service(get_suites(VERSION)[suite])
    serve(service.tools, service.call)


if __name__ == "__main__":
    main(*sys.argv[1:])
