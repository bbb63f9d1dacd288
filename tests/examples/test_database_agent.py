"""examples/database_agent: reads unasked, changes what is allowed on the page, and lets nobody else decide."""

import http.client
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule import RespondToModel
from ferrule.testing import ScriptedModel, function_call, step
from tests.examples.running import EXAMPLES, environment, run
from tests.processes import eventually

READ = "SELECT id FROM orders WHERE customer = 1 AND state = 'open'"
CHANGE = "UPDATE orders SET state = 'cancelled' WHERE customer = 1 AND state = 'open'"
AGENT = "database_agent/agent.py"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "shop.db"
    assert run(AGENT, "--sample", path).returncode == 0
    return path


@pytest.fixture
def shop(sample: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(sample, tmp_path))


def cancelled(shop: Path) -> int:
    with closing(sqlite3.connect(shop)) as connection:
        return int(connection.execute("SELECT count(*) FROM orders WHERE state = 'cancelled'").fetchone()[0])


class Page:
    """The page's requests, with the headers that a browser would send."""

    def __init__(self, address: str) -> None:
        found = re.search(r"http://(127\.0\.0\.1:\d+)/#(\S+)", address)
        assert found is not None, address
        self.host, self.token = found.groups()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        sent = {"Host": self.host, "Authorization": f"Bearer {self.token}"} | headers
        with closing(http.client.HTTPConnection(self.host, timeout=30)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        return answer.status, json.loads(text) if answer.getheader("content-type") == "application/json" else text

    def question(self) -> dict[str, str]:
        """Wait for the one question."""
        assert eventually(lambda: self.ask("GET", "/state")[1]["waiting"] != [])
        [one] = self.ask("GET", "/state")[1]["waiting"]
        return dict(one)

    def decide(self, question: dict[str, str], **answer: object) -> int:
        return self.ask("POST", f"/answers/{question['id']}", answer, Origin=f"http://{self.host}")[0]


@contextmanager
def at_work(shop: Path, base_url: str) -> Iterator[tuple[Page, "subprocess.Popen[str]"]]:
    command = [sys.executable, str(EXAMPLES / AGENT), str(shop), "Cancel Ada's open orders"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(base_url)) as process:
        assert process.stdout is not None
        try:
            yield Page(process.stdout.readline()), process
        finally:
            process.kill()


def change() -> Any:
    return function_call("change", {"sql": CHANGE, "reason": "Ada asked for it."})


def test_each_change_waits_for_its_answer_on_the_page(shop: Path) -> None:
    script: list[Any] = [
        [function_call("query", {"sql": READ}), function_call("query", {"sql": CHANGE})],
        step(change(), expect={"call_1": "[2],[3]", "call_2": "`query` takes SELECT alone"}),
        step(change(), expect="rejected by user: Not yet"),
        step(change(), expect="1 rows now, not 2"),
        step("One order is cancelled.", expect='{"rows":1}'),
    ]
    with ScriptedModel(script) as model, at_work(shop, model.base_url) as (page, process):
        question = page.question()
        assert question["text"] == f"change 2 rows:\n\n{CHANGE}\n\nThe agent says: Ada asked for it."
        assert page.decide(question, allow=False, reason="Not yet") == 200

        question = page.question()
        with closing(sqlite3.connect(shop)) as connection, connection:
            connection.execute("UPDATE orders SET state = 'sent' WHERE id = 3")
        assert page.decide(question, allow=True) == 200

        question = page.question()
        assert question["text"].startswith("change 1 row:") and cancelled(shop) == 0, "it was only tried"
        assert page.decide(question, allow=True) == 200
        assert process.communicate(timeout=30)[0].splitlines()[-1] == "One order is cancelled."
        assert process.returncode == 0
        model.check()
    assert cancelled(shop) == 1


def test_nobody_else_reads_or_decides(shop: Path) -> None:
    with ScriptedModel([change(), "Done."]) as model, at_work(shop, model.base_url) as (page, _):
        question, port = page.question(), page.host.rpartition(":")[2]
        answer = f"/answers/{question['id']}"
        for headers, status in [
            ({"Authorization": ""}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": f"http://localhost:{port}"}, 403),
            ({"Origin": "null"}, 403),
            ({"Host": f"evil.example:{port}"}, 400),
        ]:
            assert page.ask("POST", answer, {"allow": True}, **headers)[0] == status, headers
            assert page.ask("GET", "/state", **headers)[0] == status, headers
        assert page.ask("GET", "/", Host="evil.example")[0] == 400
        assert page.ask("GET", "/", Authorization="")[0] == 200, "the page itself holds nothing"
        assert page.ask("POST", "/answers/other", {"allow": True})[0] == 409
        assert page.ask("POST", answer, {"allow": "yes"})[0] == 200, "only true allows"
        assert page.ask("POST", answer, {"allow": True})[0] == 409, "it is decided once"
    assert cancelled(shop) == 0


def test_what_is_missing_is_told(shop: Path) -> None:
    for args, why in [
        ((shop, "Do it."), "No model is configured"),
        ((shop.with_name("gone.db"), "Do it."), "there is no"),
    ]:
        done = run(AGENT, *args)
        assert done.returncode == 2 and why in done.stderr and "Traceback" not in done.stderr


def test_a_query_cannot_fill_the_memory_or_go_on_for_ever(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "database_agent")
    import database

    monkeypatch.setattr(database, "MAX_SECONDS", 0.1)
    numbers = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT {} FROM c"
    found = database.Database(shop).query(numbers.format("printf('%.*c', 600000, 'x')"))
    assert (len(found.rows), found.there_are_more) == (2, True)
    for sql in (
        "SELECT zeroblob(1000000000)",
        numbers.format("count(*)"),
        "ATTACH 'x' AS x",
        "PRAGMA writable_schema=1",
    ):
        with pytest.raises(RespondToModel):
            database.Database(shop).query(sql)
