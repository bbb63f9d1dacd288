"""Skills by the SDK: kept, and read by commands in containers; over a model server of the Responses API."""

import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from ferrule.testing import ScriptedModel, step
from ferrule.testing.plain import as_objects
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.gateway.served import Served, new_place, serving
from tests.gateway.test_containers import does
from tests.hosted.zips import files, manifest, names_in, skill, zipped

FORM = "multipart/form-data"
ADDER = [("adder/SKILL.md", manifest()), ("adder/add.py", b"#!/usr/bin/env python3\nprint(1 + 1)\n")]


ELSEWHERE: dict[str, Any] = {"type": "container_reference", "container_id": "cntr_elsewhere"}
CALL: dict[str, Any] = {
    "type": "shell_call", "id": "sh_1", "call_id": "c1", "action": {"commands": ["ls"]}, "environment": ELSEWHERE
}  # fmt: skip
OUTPUT: dict[str, Any] = {
    "type": "shell_call_output", "id": "sho_1", "call_id": "c1",
    "output": [{"stdout": "there", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
}  # fmt: skip
PYTHON = {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "cntr_elsewhere", "outputs": None}
NATIVE: dict[str, list[Any]] = {
    "both": [CALL, OUTPUT, "Done."],
    "python": [PYTHON, "Done."],
    "call": [CALL],
    "without an action": [CALL | {"action": None}, "Done."],
    "of letters": [CALL | {"action": {"commands": "ls"}}, "Done."],
}
"""Answers of a server that runs tools itself, or says so."""


def speaks(request: Request) -> Simple:
    """Answer natively to what begins with `!`, at first; after that, and to all else, as `does`."""
    text = request.user_text.rpartition("\n")[2]
    if text.startswith("!") and not any(item.get("call_id") == "c1" for item in request.items):
        return step(*NATIVE[text[1:]])
    return does(request)


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(speaks) as model:
        yield model


@pytest.fixture(scope="module")
def gateway(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(new_place(tmp_path_factory.mktemp("skills")), model.base_url, wire="responses") as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def inline(data: bytes, name: str = "sent") -> dict[str, Any]:
    """A skill that is in the request."""
    source = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(data).decode()}
    return {"type": "inline", "name": name, "description": "Comes along.", "source": source}


def shell(*skills: object, **more: object) -> Any:
    """A shell in a container with these skills."""
    return {"type": "shell", "environment": {"type": "container_auto", "skills": list(skills), **more}}


def said_by(client: OpenAI, command: str, tool: Any, **more: Any) -> str:
    """What a command of the model wrote."""
    reply = client.responses.create(model="m", input=f"${command}", tools=[tool], **more)
    output = reply.output[1]
    assert output.type == "shell_call_output"
    return str(output.output[0].stdout + output.output[0].stderr)


def told(model: ScriptedModel) -> str:
    """What the model was told of its only tool."""
    (tool,) = as_objects(model.last_request.body["tools"])
    return str(tool["description"])


def test_a_skill_is_kept_with_its_versions(client: OpenAI) -> None:
    made = client.skills.create(files=ADDER)
    assert (made.object, made.name, made.description) == ("skill", "adder", "Adds numbers.")
    assert (made.default_version, made.latest_version) == ("1", "1")
    packed = zipped(("top/SKILL.md", manifest("adder", "Adds better.")))
    second = client.skills.versions.create(made.id, files=("adder.zip", packed))
    assert (second.object, second.version, second.skill_id) == ("skill.version", "2", made.id)
    third = client.skills.versions.create(made.id, files=io.BytesIO(packed), default=True)
    now = client.skills.retrieve(made.id)
    assert (now.default_version, now.latest_version, now.description) == ("3", "3", "Adds better.")
    assert client.skills.update(made.id, default_version="1").default_version == "1"
    assert [version.version for version in client.skills.versions.list(made.id, limit=2)] == ["3", "2", "1"]
    assert [one.id for one in client.skills.versions.list(made.id, order="asc", after=second.id)] == [third.id]
    assert client.skills.versions.retrieve("latest", skill_id=made.id) == third
    assert names_in(client.skills.content.retrieve(made.id).read()) == ["adder/SKILL.md", "adder/add.py"]
    assert client.skills.versions.content.retrieve("2", skill_id=made.id).read() == packed
    assert made.id in [one.id for one in client.skills.list(limit=1)]
    gone = client.skills.versions.delete("2", skill_id=made.id)
    assert (gone.object, gone.deleted, gone.version, gone.id) == ("skill.version.deleted", True, "2", second.id)
    assert client.skills.delete(made.id).object == "skill.deleted"
    for path in ("", "/content", "/versions", "/versions/1", "/versions/1/content"):
        with pytest.raises(openai.NotFoundError):
            client.get(f"/skills/{made.id}{path}", cast_to=object)


def test_skills_are_there_for_commands_and_the_model_knows_of_them(client: OpenAI, model: ScriptedModel) -> None:
    kept = client.skills.create(files=ADDER)
    client.skills.versions.create(kept.id, files=zipped(("SKILL.md", manifest("adder", "Adds better."))))
    reference = {"type": "skill_reference", "skill_id": kept.id}
    tool = shell(reference, inline(skill(("in/x", b"7"))))
    said = said_by(client, "/mnt/skills/adder/add.py; cat /mnt/skills/sent/in/x; touch /mnt/skills/x", tool)
    assert said.startswith("2\n7touch:") and "Read-only file system" in said
    assert "- adder: Adds numbers. (/mnt/skills/adder/SKILL.md)" in told(model)
    assert "- sent: Comes along. (/mnt/skills/sent/SKILL.md)" in told(model)
    for version, description in (("latest", "Adds better."), ("2", "Adds better."), ("1", "Adds numbers.")):
        said = said_by(client, "cat /mnt/skills/adder/SKILL.md", shell(reference | {"version": version}))
        assert f"description: {description}" in said and f"- adder: {description}" in told(model)


def test_a_conversation_gets_another_version_in_its_container(client: OpenAI) -> None:
    kept = client.skills.create(files=ADDER)
    client.skills.versions.create(kept.id, files=zipped(("SKILL.md", manifest("adder", "Adds better."))))
    tool = shell({"type": "skill_reference", "skill_id": kept.id})
    first = client.responses.create(model="m", input="$touch here; ls /mnt/skills/adder", tools=[tool])
    client.skills.update(kept.id, default_version="2")
    said = said_by(client, "ls; ls /mnt/skills/adder", tool, previous_response_id=first.id)
    assert said == "here\nSKILL.md\n"


def test_a_container_is_made_with_skills_and_both_tools_are_told(client: OpenAI, model: ScriptedModel) -> None:
    kept = client.skills.create(files=ADDER)
    made = client.containers.create(name="c", skills=[{"type": "skill_reference", "skill_id": kept.id}])
    client.skills.delete(kept.id)
    reference: Any = {"type": "shell", "environment": {"type": "container_reference", "container_id": made.id}}
    assert said_by(client, "/mnt/skills/adder/add.py", reference) == "2\n"
    assert "- adder: Adds numbers." in told(model)
    reply = client.responses.create(
        model="m",
        input="import os; print(os.listdir('/mnt/skills'))",
        tools=[{"type": "code_interpreter", "container": made.id}],
        include=["code_interpreter_call.outputs"],
    )
    assert "- adder: Adds numbers." in told(model)
    call = reply.output[0]
    assert call.type == "code_interpreter_call" and "['adder']" in str(call.outputs)


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ("both", ["shell_call", "shell_call_output", "message"]),
        ("python", ["code_interpreter_call", "message"]),
        ("without an action", None),
        ("of letters", None),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_what_a_server_says_that_it_ran_is_told_and_not_run_again(
    client: OpenAI, said: str, kinds: list[str] | None, declared: bool
) -> None:
    tools = [shell(), {"type": "code_interpreter", "container": {"type": "auto"}}] if declared else []
    if kinds is None and declared:  # nothing was told yet
        with pytest.raises(openai.InternalServerError, match="sent a shell_call that lacks"):
            client.responses.create(model="m", input=f"!{said}", tools=tools)
        return
    found = client.responses.create(model="m", input=f"!{said}", tools=tools)
    if kinds is None:
        assert found.error is not None and "sent a shell_call that lacks" in found.error.message
    else:
        assert (found.status, [item.type for item in found.output]) == ("completed", kinds)
    after = client.responses.create(model="m", input="$echo on", tools=[shell()], previous_response_id=found.id)
    assert after.status == "completed"


def test_a_native_call_that_nobody_answers_is_given_back_to_the_model(client: OpenAI) -> None:
    reply = client.responses.create(model="m", input="!call", tools=[shell()])
    assert [item.type for item in reply.output] == ["message"]
    assert "not run: commands run by the function 'shell'" in reply.output_text


REFUSED: dict[str, tuple[Callable[[OpenAI], object], int, str]] = {
    "no files": (
        lambda client: client.post(
            "/skills", cast_to=object, files=[("x", b"1")], options={"headers": {"content-type": FORM}}
        ),
        400,
        "files",
    ),
    "no skill": (lambda client: client.skills.create(files=[("a.txt", b"")]), 400, "files"),
    "slip": (lambda client: client.skills.create(files=[*ADDER, ("adder/../../x", b"")]), 400, "files"),
    "slip in a zip": (lambda client: client.skills.create(files=skill(("../x", b""))), 400, "files"),
    "51 files": (lambda client: client.skills.create(files=[*ADDER, *files(49)]), 400, "files"),  # type: ignore[list-item]
    "too large": (lambda client: client.skills.create(files=[*ADDER, ("adder/x", bytes(26 << 20))]), 400, "files"),
    "default": (
        lambda client: client.skills.versions.create(
            client.skills.create(files=ADDER).id, files=ADDER, extra_body={"default": "maybe"}
        ),
        400,
        "default",
    ),
    "the default version": (
        lambda client: client.skills.versions.delete("1", skill_id=client.skills.create(files=ADDER).id),
        400,
        "version",
    ),
    "unknown version": (
        lambda client: client.skills.update(client.skills.create(files=ADDER).id, default_version="2"),
        404,
        "default_version",
    ),
    "odd version": (
        lambda client: client.skills.update(client.skills.create(files=ADDER).id, default_version="-1"),
        400,
        "default_version",
    ),
    "unknown skill for a container": (
        lambda client: client.containers.create(name="c", skills=[{"type": "skill_reference", "skill_id": "none"}]),
        404,
        "skills[0].skill_id",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_skill_is_refused_with_its_field(client: OpenAI, case: str) -> None:
    call, status, param = REFUSED[case]
    with pytest.raises(openai.APIStatusError) as raised:
        call(client)
    assert (raised.value.status_code, raised.value.param) == (status, param)


def test_a_request_with_a_skill_that_cannot_be_is_refused_before_it_begins(
    client: OpenAI, model: ScriptedModel
) -> None:
    kept = {"type": "skill_reference", "skill_id": client.skills.create(files=ADDER).id}
    before = len(model.requests)
    for skills, status, param in (
        ([{"type": "skill_reference", "skill_id": "skill_none"}], 404, "[0].skill_id"),
        ([kept | {"version": "7"}], 404, "[0].version"),
        ([kept | {"version": "first"}], 400, "[0].version"),
        ([kept, kept], 400, "[1]"),
        ([inline(b"no zip")], 400, "[0].source.data"),
        ([inline(skill(("../x", b"")))], 400, "[0].source.data"),
        ([inline(skill(), "../x")], 400, "[0].name"),
        ([inline(skill()) | {"source": {"type": "base64", "media_type": "application/zip", "data": "?"}}], 400,
         "[0].source.data"),
        ([inline(skill()) | {"type": "local"}], 400, "[0].type"),
        ([inline(skill(), f"s{number}") for number in range(33)], 400, ""),
    ):  # fmt: skip
        with pytest.raises(openai.APIStatusError) as raised:
            client.responses.create(model="m", input="$ls", tools=[shell(*skills)])
        found = raised.value
        assert (found.status_code, found.param) == (status, f"tools[0].environment.skills{param}"), found.body
    assert len(model.requests) == before


def test_fields_that_nobody_runs_are_named(client: OpenAI) -> None:
    secrets = {"domain_secrets": [{"domain": "a.example", "name": "K", "value": "secret!"}]}
    made = client.containers.with_raw_response.create(name="c", extra_body={"color": "red", **secrets})
    assert made.headers["x-ferrule-not-run"] == "color, domain_secrets"
    assert "secret!" not in made.text and '"color":"red"' in made.text
    again = client.containers.with_raw_response.retrieve(made.parse().id)
    assert "secret!" not in again.text and '"color":"red"' in again.text
    reply = client.responses.with_raw_response.create(model="m", input="$true", tools=[shell(mood="good")])
    assert reply.headers["x-ferrule-not-run"] == "mood"
    assert '"mood":"good"' in reply.text


def test_skills_belong_to_a_key(tmp_path: Path) -> None:
    place = new_place(tmp_path)
    with ScriptedModel(does) as upstream:
        keys = [place.run("serve", "keys", "add", name).out.split()[-1] for name in ("ann", "bob")]
        with (
            serving(place, upstream.base_url) as here,
            OpenAI(base_url=here.url, api_key=keys[0]) as ann,
            OpenAI(base_url=here.url, api_key=keys[1]) as bob,
        ):
            kept = ann.skills.create(files=ADDER)
            tool = shell({"type": "skill_reference", "skill_id": kept.id})
            assert said_by(ann, "/mnt/skills/adder/add.py", tool) == "2\n"
            assert bob.skills.list().data == []
            for path in ("", "/content", "/versions", "/versions/1", "/versions/1/content"):
                with pytest.raises(openai.NotFoundError):
                    bob.get(f"/skills/{kept.id}{path}", cast_to=object)
            for ask in (
                lambda: bob.skills.delete(kept.id),
                lambda: bob.skills.update(kept.id, default_version="1"),
                lambda: bob.skills.versions.create(kept.id, files=ADDER),
                lambda: bob.skills.versions.delete("1", skill_id=kept.id),
                lambda: bob.responses.create(model="m", input="$ls", tools=[tool]),
            ):
                with pytest.raises(openai.NotFoundError):
                    ask()
