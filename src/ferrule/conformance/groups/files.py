"""Files, and uploads that become files."""

import hashlib

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect_equal
from ferrule.conformance.server import Json, Server

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
HOUR_S, MONTH_S = 3600, 30 * 86_400
WORDS = b"Plums and pears.\n"


def name_of(number: int) -> str:
    """Return the name of a file that these checks make."""
    return f"check-{number}.jsonl"


def upload_of(**more: object) -> Json:
    """Return the body of a request for an upload."""
    return {"bytes": len(WORDS), "filename": name_of(0), "mime_type": "text/plain", "purpose": "user_data"} | more


@check
def keep(server: Server) -> None:
    """A file is kept, read and deleted."""
    made = server.post_file("/files", WORDS, name=name_of(0), purpose="user_data")
    told = {key: made[key] for key in ("object", "bytes", "filename", "purpose")}
    expect_equal(told, {"object": "file", "bytes": len(WORDS), "filename": name_of(0), "purpose": "user_data"}, "it")
    path = f"/files/{made['id']}"
    expect_equal(server.get(path), made, "the file, read again")
    expect_equal(server.send("GET", f"{path}/content").body, WORDS, "its content")
    expect_equal(server.send("DELETE", path).json.get("deleted"), True, "deleted")
    for gone in (path, f"{path}/content"):
        expect_equal(server.send("GET", gone).status, 404, f"the status of {gone} then")


@check
def purposes(server: Server) -> None:
    """Every purpose is taken, and any other is an error."""
    for purpose in PURPOSES:
        made = server.post_file("/files", b"{}\n", name=name_of(0), purpose=purpose)
        expect_equal(made["purpose"], purpose, "the purpose")
        server.send("DELETE", f"/files/{made['id']}")
    answer = server.send_file("/files", WORDS, name=name_of(0), purpose="fun")
    expect_equal((answer.status, answer.error.get("param")), (400, "purpose"), "the answer to an unknown purpose")


@check
def pages(server: Server) -> None:
    """Files are listed by purpose, in pages, the newest first unless asked otherwise."""
    made = [server.post_file("/files", WORDS, name=name_of(at), purpose="assistants")["id"] for at in range(3)]
    of_us = {"purpose": "assistants"}
    page = server.get("/files", **of_us, limit=2)
    expect_equal(([file["id"] for file in page["data"]], page["has_more"]), (made[:0:-1], True), "the first page")
    expect_equal((page["object"], page["first_id"], page["last_id"]), ("list", made[2], made[1]), "its ends")
    rest = server.get("/files", **of_us, limit=1, after=page["last_id"])
    expect_equal([file["id"] for file in rest["data"]], made[:1], "what follows")
    rising = server.get("/files", **of_us, order="asc", after=made[0])
    expect_equal([file["id"] for file in rising["data"]], made[1:], "what follows with order=asc")
    others = server.get("/files", purpose="vision")["data"]
    expect_equal([file for file in others if file["purpose"] != "vision"], [], "files of other purposes in the list")
    expect_equal(server.send("GET", "/files", limit=0).status, 400, "the status for limit=0")
    expect_equal(server.send("GET", "/files", limit=10_001).status, 400, "the status for limit=10001")
    for file_id in made:
        server.send("DELETE", f"/files/{file_id}")


@check
def expiry(server: Server) -> None:
    """expires_after counts from created_at, up to 30 days; files for batches are kept for 30 days."""
    for seconds in (HOUR_S, MONTH_S):
        made = server.post_file("/files", WORDS, name=name_of(0), purpose="user_data", **_after(seconds))
        expect_equal(made["expires_at"] - made["created_at"], seconds, "the seconds that it is kept")
        server.send("DELETE", f"/files/{made['id']}")
    made = server.post_file("/files", WORDS, name=name_of(0), purpose="batch")
    expect_equal(made["expires_at"] - made["created_at"], MONTH_S, "the seconds that a file for batches is kept")
    server.send("DELETE", f"/files/{made['id']}")
    for fields in (_after(0), _after(MONTH_S + 1), _after(HOUR_S, "last_active_at")):
        answer = server.send_file("/files", WORDS, name=name_of(0), purpose="user_data", **fields)
        expect_equal((answer.status, _top(answer.error)), (400, "expires_after"), f"the answer to {fields}")


@check
def uploads(server: Server) -> None:
    """Parts, in the order that is asked for, become one file."""
    upload = server.post("/uploads", upload_of(expires_after={"anchor": "created_at", "seconds": HOUR_S}))
    expect_equal((upload["object"], upload["status"]), ("upload", "pending"), "the upload")
    path = f"/uploads/{upload['id']}"
    last, first = (server.post_file(f"{path}/parts", piece, field="data") for piece in (WORDS[9:], WORDS[:9]))
    expect_equal((first["object"], first["upload_id"]), ("upload.part", upload["id"]), "a part")
    wrong = server.send("POST", f"{path}/complete", {"part_ids": [last["id"], first["id"]], "md5": _md5(WORDS)})
    expect_equal(wrong.status, 400, "the status for parts with another sum")
    done = server.post(f"{path}/complete", {"part_ids": [first["id"], last["id"]], "md5": _md5(WORDS)})
    file = done["file"]
    expect_equal((done["status"], file["bytes"], file["purpose"]), ("completed", len(WORDS), "user_data"), "the end")
    expect_equal(file["expires_at"] - file["created_at"], HOUR_S, "the seconds that the file is kept")
    expect_equal(server.send("GET", f"/files/{file['id']}/content").body, WORDS, "the content")
    server.send("DELETE", f"/files/{file['id']}")


@check
def uploads_refused(server: Server) -> None:
    """An upload that ended takes no part, and one with a wrong expires_after does not begin."""
    path = f"/uploads/{server.post('/uploads', upload_of())['id']}"
    expect_equal(server.post(f"{path}/cancel")["status"], "cancelled", "the status")
    expect_equal(server.send_file(f"{path}/parts", WORDS, field="data").status, 400, "the status of a part then")
    expect_equal(server.send("POST", f"{path}/complete", {"part_ids": []}).status, 400, "the status of its end then")
    for seconds in (0, MONTH_S + 1):
        body = upload_of(expires_after={"anchor": "created_at", "seconds": seconds})
        answer = server.send("POST", "/uploads", body)
        expect_equal((answer.status, _top(answer.error)), (400, "expires_after"), f"the answer to {seconds} seconds")


def _after(seconds: int, anchor: str = "created_at") -> dict[str, str]:
    return {"expires_after[anchor]": anchor, "expires_after[seconds]": str(seconds)}


def _top(error: Json) -> str:
    """Return the field that an error names, without what is within it."""
    return str(error.get("param")).partition(".")[0].partition("[")[0]


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
