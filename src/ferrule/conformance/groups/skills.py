"""Skills: kept with their versions, and read by commands in containers."""

import base64
import io
import zipfile

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.groups.containers import call_of, container, require, said_in
from ferrule.conformance.server import Json, Server

MANIFEST = b"---\nname: check-words\ndescription: Tells words.\n---\nRead words.txt.\n"
FILES = {"check-words/SKILL.md": MANIFEST, "check-words/words.txt": b"plum\n"}
READ = {"commands": ["cat /mnt/skills/check-words/words.txt"]}


def packed(**more: bytes) -> bytes:
    """Return the zip of a skill."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as source:
        for name, content in ({"top/SKILL.md": MANIFEST} | more).items():
            source.writestr(name, content)
    return target.getvalue()


def skill(server: Server) -> Json:
    """Keep a skill."""
    require(server.send("GET", "/skills"), "skills")
    return server.post_files("/skills", FILES)


def shell_with(*skills: Json) -> Json:
    """Return a shell in a new container with skills."""
    return {"type": "shell", "environment": {"type": "container_auto", "skills": list(skills)}}


@check
def keep(server: Server) -> None:
    """A skill is kept, read, listed, downloaded as a zip, and deleted."""
    made = skill(server)
    told = {key: value for key, value in made.items() if key not in ("id", "created_at")}
    wanted = {
        "object": "skill",
        "name": "check-words",
        "description": "Tells words.",
        "default_version": "1",
        "latest_version": "1",
    }
    expect_equal(told, wanted, "the skill")
    path = f"/skills/{made['id']}"
    expect_equal(server.get(path), made, "the skill, read again")
    expect(made["id"] in [one["id"] for one in server.get("/skills", limit=100)["data"]], "it is not in the list")
    with zipfile.ZipFile(io.BytesIO(server.send("GET", f"{path}/content").body)) as content:
        names = sorted(name.rpartition("/")[2] for name in content.namelist())
    expect_equal(names, ["SKILL.md", "words.txt"], "the files of its zip")
    gone = server.send("DELETE", path).json
    expect_equal((gone["object"], gone["deleted"]), ("skill.deleted", True), "the answer to its deletion")
    expect_equal(server.send("GET", path).status, 404, "the status then")


@check
def versions(server: Server) -> None:
    """A zip becomes the next version; one of them is the default."""
    path = f"/skills/{skill(server)['id']}"
    second = server.post_file(f"{path}/versions", packed(), field="files", name="check.zip")
    expect_equal((second["object"], second["version"]), ("skill.version", "2"), "the second version")
    third = server.post_file(f"{path}/versions", packed(), field="files", name="check.zip", default="true")
    found = server.get(path)
    expect_equal((found["default_version"], found["latest_version"]), ("3", "3"), "the pointers")
    expect_equal(server.post(path, {"default_version": "2"})["default_version"], "2", "the default, as it was set")
    page = server.get(f"{path}/versions", order="asc", after=second["id"])
    expect_equal([one["id"] for one in page["data"]], [third["id"]], "what follows the second version")
    expect_equal(server.get(f"{path}/versions/3"), third, "the third version, read again")
    gone = server.send("DELETE", f"{path}/versions/3").json
    expect_equal((gone["object"], gone["version"]), ("skill.version.deleted", "3"), "the answer to its deletion")
    expect_equal(server.send("GET", f"{path}/versions/3").status, 404, "the status then")
    server.send("DELETE", path)


@check
def refused(server: Server) -> None:
    """What is no skill is refused, and so is one whose files would lie outside of it."""
    require(server.send("GET", "/skills"), "skills")
    for files in ({"top/README.md": b"x"}, {"top/SKILL.md": b"No head."}, FILES | {"check-words/../../x": b"x"}):
        expect_equal(server.send_files("/skills", files).status, 400, f"the status of {sorted(files)}")
    for zip_file in (packed(**{"../x": b""}), packed(**{"/x": b""}), b"PK\3\4 and no more"):
        answer = server.send_file("/skills", zip_file, field="files", name="check.zip")
        expect_equal(answer.status, 400, f"the status of the zip {zip_file[:40]!r}")
    expect_equal(server.send("GET", "/skills/skill_none").status, 404, "the status of an unknown skill")


@check
def used(server: Server) -> None:
    """Commands read a stored skill and one that comes along; an unknown one is an error that names its field."""
    made = skill(server)
    container(server)
    stored = {"type": "skill_reference", "skill_id": made["id"], "version": "latest"}
    response = server.create(**call_of(shell_with(stored), READ))
    expect_equal(said_in(response)[0], "plum\n", "the output")
    source = {"type": "base64", "media_type": "application/zip"}
    source["data"] = base64.b64encode(packed(**{"top/words.txt": b"pear\n"})).decode()
    sent = {"type": "inline", "name": "check-words", "description": "Tells words.", "source": source}
    response = server.create(**call_of(shell_with(sent), READ))
    expect_equal(said_in(response)[0], "pear\n", "the output with a skill that comes along")
    answer = server.ask(tools=[shell_with(stored | {"skill_id": "skill_none"})])
    wanted = (404, "tools[0].environment.skills[0].skill_id")
    expect_equal((answer.status, answer.error.get("param")), wanted, "the answer to an unknown skill")
    server.send("DELETE", f"/skills/{made['id']}")


@check
def in_a_container(server: Server) -> None:
    """A container is made with a skill, which commands cannot change."""
    made = skill(server)
    place = container(server, skills=[{"type": "skill_reference", "skill_id": made["id"]}])
    tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": place["id"]}}
    change = {"commands": ["rm /mnt/skills/check-words/words.txt; cat /mnt/skills/check-words/words.txt"]}
    expect_equal(said_in(server.create(**call_of(tool, change)))[0], "plum\n", "the file after it was removed")
    server.send("DELETE", f"/skills/{made['id']}")
