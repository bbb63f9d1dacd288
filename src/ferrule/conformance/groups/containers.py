"""Containers, their files, and the two tools that run in them."""

import msgspec

from ferrule.conformance.checks import check
from ferrule.conformance.failures import Skipped, expect, expect_equal
from ferrule.conformance.server import Answer, Json, Server, Stream

NONE = (404, 405, 501)
"""What a server answers that does not know a route."""
UNAVAILABLE = 503
OUTPUTS = ["code_interpreter_call.outputs"]
PYTHON: Json = {"type": "code_interpreter", "container": {"type": "auto"}}
SHELL: Json = {"type": "shell", "environment": {"type": "container_auto"}}
WORDS = b"a,b\n1,2\n"


def require(answer: Answer, what: str) -> None:
    """Skip the check if a server has nothing of this kind."""
    if answer.status in NONE:
        raise Skipped(f"the server has no {what}: a {answer.status}")
    if answer.status == UNAVAILABLE:
        raise Skipped(f"the server can make no {what} now: {answer.error.get('message')}")


def container(server: Server, **fields: object) -> Json:
    """Make a container."""
    answer = server.send("POST", "/containers", {"name": "check", **fields})
    require(answer, "containers")
    expect_equal(answer.status, 200, f"the status of a new container ({answer.body[:200]!r})")
    return answer.json


def run(server: Server, tool: Json, arguments: Json, **fields: object) -> Json:
    """Let the model call a tool with these arguments. Returns the response."""
    container(server)
    return server.create(**call_of(tool, arguments), **fields)


def call_of(tool: Json, arguments: Json) -> Json:
    """Return the fields of a request in which the model calls a tool with these arguments."""
    wanted = msgspec.json.encode(arguments).decode()
    return {
        "input": f"Call the tool with exactly: {wanted}",
        "tools": [tool],
        "tool_choice": {"type": tool["type"]},
    }


def item_of(response: Json, kind: str) -> Json:
    """Return the only item of a type."""
    found: list[Json] = [item for item in response["output"] if item.get("type") == kind]
    expect_equal(len(found), 1, f"the number of items of the type {kind}")
    return found[0]


def said_in(response: Json) -> tuple[str, str, Json]:
    """Return what the only command of a shell call wrote, and how it ended."""
    (entry,) = item_of(response, "shell_call_output")["output"]
    return entry["stdout"], entry["stderr"], entry["outcome"]


@check
def keep(server: Server) -> None:
    """A container is made, read, listed and deleted."""
    made = container(server, memory_limit="4g", expires_after={"anchor": "last_active_at", "minutes": 5})
    told = {key: made[key] for key in ("object", "name", "status", "memory_limit")}
    wanted = {"object": "container", "name": "check", "status": "running", "memory_limit": "4g"}
    expect_equal(told, wanted, "the container")
    expect_equal(made["expires_after"], {"anchor": "last_active_at", "minutes": 5}, "expires_after")
    path = f"/containers/{made['id']}"
    expect_equal(server.get(path)["id"], made["id"], "the container, read again")
    page = server.get("/containers", limit=100)
    expect(made["id"] in [one["id"] for one in page["data"]], "it is not in the list")
    expect_equal(server.send("DELETE", path).json.get("deleted"), True, "deleted")
    expect_equal(server.send("GET", path).status, 404, "the status then")


@check
def refused(server: Server) -> None:
    """Unknown ids, and a memory_limit that there is not, are errors that name their field."""
    container(server)
    answer = server.send("POST", "/containers", {"name": "check", "memory_limit": "2g"})
    expect_equal((answer.status, answer.error.get("param")), (400, "memory_limit"), "the answer to memory_limit 2g")
    for path in ("/containers/cntr_none", "/containers/cntr_none/files"):
        expect_equal(server.send("GET", path).status, 404, f"the status of {path}")
    tool = {"type": "code_interpreter", "container": "cntr_none"}
    answer = server.ask(tools=[tool])
    expect_equal((answer.status, answer.error.get("param")), (404, "tools[0].container"), "the answer to such a tool")


@check
def files(server: Server) -> None:
    """Files come in by a form and by their id, are listed and read, and go."""
    stored = server.post_file("/files", WORDS, name="given.csv", purpose="user_data")
    path = f"/containers/{container(server, file_ids=[stored['id']])['id']}/files"
    sent = server.post_file(path, WORDS, name="sent.csv")
    told = {key: sent[key] for key in ("object", "path", "bytes", "source")}
    wanted = {"object": "container.file", "path": "/mnt/data/sent.csv", "bytes": len(WORDS), "source": "user"}
    expect_equal(told, wanted, "a file")
    listed = sorted(file["path"] for file in server.get(path)["data"])
    expect_equal(listed, ["/mnt/data/given.csv", "/mnt/data/sent.csv"], "the files")
    expect_equal(server.send("GET", f"{path}/{sent['id']}/content").body, WORDS, "the content")
    expect_equal(server.send("DELETE", f"{path}/{sent['id']}").json.get("deleted"), True, "deleted")
    expect_equal(server.send("GET", f"{path}/{sent['id']}").status, 404, "the status then")
    server.send("DELETE", f"/files/{stored['id']}")


@check
def code_interpreter(server: Server) -> None:
    """Python runs, shows its outputs if they are asked for, and keeps its state."""
    first = run(server, PYTHON, {"code": "x = 6\nprint('set')"}, include=OUTPUTS)
    call = item_of(first, "code_interpreter_call")
    expect_equal((call["status"], call["code"]), ("completed", "x = 6\nprint('set')"), "the call")
    expect("set" in "".join(entry.get("logs", "") for entry in call["outputs"]), "the outputs lack what was printed")
    again = server.create(**call_of(PYTHON, {"code": "x * 7"}), previous_response_id=first["id"], include=OUTPUTS)
    second = item_of(again, "code_interpreter_call")
    expect_equal(second["container_id"], call["container_id"], "the container of the response that continues")
    expect("42" in "".join(entry.get("logs", "") for entry in second["outputs"]), "the state is lost")
    hidden = server.create(**call_of(PYTHON, {"code": "1"}), previous_response_id=first["id"])
    expect_equal(item_of(hidden, "code_interpreter_call")["outputs"], None, "outputs that nobody asked for")


@check
def code_interpreter_events(server: Server) -> None:
    """The events of Python come in their order."""
    container(server)
    stream = server.stream(**call_of(PYTHON, {"code": "1"}))
    kinds = [event.type for event in stream.events if event.type.startswith("response.code_interpreter_call")]
    wanted = ["in_progress", "_code.delta", "_code.done", "interpreting", "completed"]
    named = [f"response.code_interpreter_call{'' if name[0] == '_' else '.'}{name}" for name in wanted]
    expect_equal([kind for at, kind in enumerate(kinds) if kinds[at - 1 : at] != [kind]], named, "the events")
    _same_item(stream, "code_interpreter_call")


@check
def shell(server: Server) -> None:
    """A command runs; what it wrote and how it ended come back."""
    response = run(server, SHELL, {"commands": ["echo out; echo err >&2; exit 3"]})
    call = item_of(response, "shell_call")
    expect_equal(call["action"]["commands"], ["echo out; echo err >&2; exit 3"], "the commands")
    expect_equal(call["environment"]["type"], "container_reference", "the environment of the call")
    expect_equal(said_in(response), ("out\n", "err\n", {"type": "exit", "exit_code": 3}), "the output")
    output = item_of(response, "shell_call_output")
    expect_equal(output["call_id"], call["call_id"], "the call that the output names")


@check
def shell_events(server: Server) -> None:
    """The events of a shell call tell its commands and its output."""
    container(server)
    stream = server.stream(**call_of(SHELL, {"commands": ["echo out"]}))
    (command,) = stream.of("response.shell_call_command.done")
    expect_equal(command["command"], "echo out", "the command")
    pieces = [event["delta"].get("stdout") or "" for event in stream.of("response.shell_call_output_content.delta")]
    expect_equal("".join(pieces), "out\n", "the pieces of the output")
    (done,) = stream.of("response.shell_call_output_content.done")
    expect_equal(done["output"][0]["stdout"], "out\n", "the whole output")
    _same_item(stream, "shell_call")
    _same_item(stream, "shell_call_output")


@check
def reference(server: Server) -> None:
    """Both tools run in a container that they name, and a file that the answer names is cited."""
    made = container(server)
    environment = {"type": "container_reference", "container_id": made["id"]}
    tool = {"type": "shell", "environment": environment}
    server.create(**call_of(tool, {"commands": ["echo 7 > made.txt"]}))
    python = {"type": "code_interpreter", "container": made["id"]}
    response = server.create(**call_of(python, {"code": "open('made.txt').read()"}), include=OUTPUTS)
    expect("7" in str(item_of(response, "code_interpreter_call")["outputs"]), "the tools do not share the files")
    (file,) = server.get(f"/containers/{made['id']}/files")["data"]
    expect_equal((file["path"], file["source"]), ("/mnt/data/made.txt", "assistant"), "the file")
    answer = server.create(
        input="Answer with exactly: See sandbox:/mnt/data/made.txt",
        tools=[python],
        previous_response_id=response["id"],
    )
    (part,) = item_of(answer, "message")["content"]
    cited = [note for note in part["annotations"] if note.get("type") == "container_file_citation"]
    expect_equal(
        [(note["container_id"], note["file_id"]) for note in cited], [(made["id"], file["id"])], "the citation"
    )


def _same_item(stream: Stream, kind: str) -> None:
    """Fail unless an item that was streamed is that of the last response."""
    done = [event["item"] for event in stream.of("response.output_item.done") if event["item"].get("type") == kind]
    expect_equal(done, [item_of(stream.final, kind)], f"the streamed {kind}")
