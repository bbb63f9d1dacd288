"""`ferrule mcp`: the real command."""

import json
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.cli.main import main
from ferrule.config.edit import put_server, remove_server
from ferrule.mcp.logins import Login, LoginStore
from tests.cli.command import Place
from tests.mcp.stub import server
from tests.mcp.web import mcp_result, stub

CONFIG = """# my settings
model = "m"  # the good one

[mcp_servers.docs]  # keep me
command = "docs"
[mcp_servers.docs.env]
KEY = "secret"

# about projects
[projects."/x"]
trust_level = "trusted"
"""


@pytest.fixture(autouse=True)
def home(place: Place) -> None:
    place.home.mkdir(parents=True)


def test_a_login_without_the_extra_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ferrule.mcp.login", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.client.auth", None)
    assert main(["mcp", "login", "a", "-c", 'mcp_servers.a.url="http://127.0.0.1:9/"']) == 2
    assert capsys.readouterr().err == "ferrule: MCP servers need the extra `mcp`: pip install 'ferrule[mcp]'\n"


def test_a_server_is_added_shown_and_removed_and_comments_stay(place: Place) -> None:
    config = place.home / "config.toml"
    config.write_text(CONFIG)
    added = place.run("mcp", "add", "fs", "--env", "A=b=c", "--cwd", "/tmp", "--", "npx", "-y", "server", "--env", "x")
    assert added.code == 0, added.err
    text = config.read_text()
    for line in CONFIG.splitlines():
        assert line in text
    listed = place.run("mcp", "list", "--configured")
    assert listed.out.splitlines() == ["docs  docs", "fs    npx -y server --env x"]
    shown = json.loads(place.run("mcp", "get", "fs", "--json", "--configured").out)
    assert shown == {
        "name": "fs", "command": "npx", "args": ["-y", "server", "--env", "x"], "env": {"A": "*****"}, "cwd": "/tmp",
    }  # fmt: skip
    assert "secret" not in place.run("mcp", "list", "--json", "--configured").out
    assert place.run("mcp", "remove", "fs").code == 0
    assert config.read_text().rstrip() == CONFIG.rstrip()
    assert place.run("mcp", "remove", "docs").code == 0
    assert "# about projects" in config.read_text()
    assert "docs" not in config.read_text()


def test_a_remote_server_is_added_to_an_empty_home(place: Place) -> None:
    added = place.run("mcp", "add", "web", "--url", "https://x.example/mcp", "--bearer-token-env-var", "TOKEN")
    assert added.code == 0, added.err
    config = place.home / "config.toml"
    assert config.read_text() == ('[mcp_servers.web]\nurl = "https://x.example/mcp"\nbearer_token_env_var = "TOKEN"\n')
    assert config.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "a"), "needs either a command"),
        (("add", "a", "--url", "https://x", "--", "c"), "needs either a command"),
        (("add", "a", "--env", "X", "--", "c"), "is not NAME=VALUE"),
        (("get", "nothing"), "there is no MCP server named"),
        (("remove", "nothing"), "has no server named"),
        (("fetch",), "knows add, list, get, remove, login, logout"),
        ((), "knows add, list, get, remove, login, logout"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(place: Place, arguments: tuple[str, ...], why: str) -> None:
    done = place.run("mcp", *arguments)
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert done.err.count("\n") == 1


def test_a_name_that_is_there_is_refused(place: Place) -> None:
    assert place.run("mcp", "add", "a", "--", "c").code == 0
    again = place.run("mcp", "add", "a", "--", "d")
    assert again.code == 2
    assert "already" in again.err


def test_help_is_help(place: Place) -> None:
    assert "ferrule mcp login" in place.run("mcp", "--help").out


def test_logging_in_where_no_login_is_wanted(place: Place) -> None:
    with stub(mcp_result) as url:
        place.run("mcp", "add", "web", "--url", url)
        done = place.run("mcp", "login", "web", "--no-browser")
    assert (done.code, done.err) == (1, "web wants no login\n")
    place.run("mcp", "add", "local", "--", "c")
    assert place.run("mcp", "login", "local").code == 2
    assert place.run("mcp", "logout", "web").err == "there is no login at web\n"


def test_m051_what_a_login_needs_is_configured_and_forgotten_by_the_command(place: Place) -> None:
    flags = [
        "--client-id",
        "us",
        "--client-secret-env-var",
        "S",
        "--callback-port",
        "8765",
        "--scope",
        "a",
        "--scope",
        "b",
    ]
    url = "https://x.example/mcp"
    added = place.run("mcp", "add", "web", "--url", url, *flags)
    assert added.code == 0, added.err
    shown = json.loads(place.run("mcp", "get", "web", "--json", "--configured").out)
    assert shown["oauth"] == {
        "client_id": "us", "client_secret_env_var": "S", "callback_port": 8765, "scopes": ["a", "b"],
    }  # fmt: skip
    assert place.run("mcp", "add", "b", "--url", url, "--callback-port", "70000").code == 2
    LoginStore(str(place.home), url).write(Login("token", "https://x.example/token", "us"))
    assert place.run("mcp", "logout", "web").out == "forgot the login at web\n"
    assert LoginStore(str(place.home), url).read() is None


def test_the_state_of_each_server_is_one_line(place: Place) -> None:
    mute = {"command": "sh", "args": ["-c", "echo still loading; cat > /dev/null"], "startup_timeout": 0.2}
    made = {"good": server(), "dead": server("crash-at-start"), "off": {**server(), "enabled": False}, "mute": mute}
    with stub(lambda asked: (401, {}, b"")) as url:
        made["web"] = {"url": url}
        tables = (
            f"[mcp_servers.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
            for name, table in made.items()
        )
        (place.home / "config.toml").write_text("\n".join(tables))
        listed = place.run("mcp", "list")
        found = json.loads(place.run("mcp", "list", "--json").out)
    states = dict(line.split(maxsplit=1) for line in listed.out.splitlines())
    assert list(states) == ["good", "dead", "off", "mute", "web"]
    assert ": ready, 15 tools and 1 that cannot be used (stub 1)" in states["good"]
    assert states["dead"].endswith(": exited with code 3; its stderr ends with: no license found")
    assert states["off"].endswith(": disabled")
    assert "did not answer within 0.2 seconds (startup_timeout)" in states["mute"]
    assert states["web"] == f"{url}: needs a login (HTTP 401): run `ferrule mcp login web`"
    assert [server.get("status") for server in found] == ["ready", "failed", None, "failed", "login"]
    shown = place.run("mcp", "get", "good").out
    assert "status: ready\nstate: ready, 15 tools" in shown
    assert '"echo"' in shown
    assert "left_out: " in shown


def test_the_mcp_json_of_a_trusted_project_counts(place: Place) -> None:
    (place.cwd / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"p": {"type": "stdio", "command": "${TOOL:-fallback}", "env": {"K": "${SECRET}"}}}})
    )
    assert "no MCP servers" in place.run("mcp", "list").out
    (place.home / "config.toml").write_text(f'[projects."{place.cwd}"]\ntrust_level = "trusted"\n')
    assert place.run("mcp", "list", "--configured").out == "p  fallback\n"
    assert place.run("mcp", "list", "--configured", env={"TOOL": "mine"}).out == "p  mine\n"
    (place.cwd / ".mcp.json").write_text('{"mcpServers": {"p": {"cmd": "x"}}}')
    assert ".mcp.json (changed)" in place.run("mcp", "list").err
    assert ".mcp.json: unknown key mcp_servers.p.cmd" in place.run("trust", "--yes").out
    wrong = place.run("mcp", "list", "--configured")
    assert wrong.code == 0 and "no MCP servers" in wrong.out
    assert ".mcp.json: unknown key mcp_servers.p.cmd" in wrong.err


def test_what_cannot_be_changed_safely_is_left_alone(place: Place) -> None:
    config = place.home / "config.toml"
    for text in (
        'mcp_servers = { a = { command = "x" } }\n',
        'instructions = """\n[mcp_servers.a]\n"""\n[mcp_servers]\na.command = "x"\n',
    ):
        config.write_text(text)
        done = place.run("mcp", "remove", "a")
        assert (done.code, config.read_text()) == (2, text)
        assert "edit it by hand" in done.err
    config.write_text('mcp_servers = { a = { command = "x" } }\n')
    assert place.run("mcp", "add", "b", "--", "y").code == 2


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from([CONFIG, "", "x = 1", "[a]\nb = 1\n\n# end"]),
)
@settings(max_examples=40, deadline=None)
def test_any_name_and_value_go_in_and_out(name: str, value: str, before: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.toml")
        path.write_text(before)
        table = {"command": value, "args": [value], "env": {name: value}}
        put_server(path, name, table)
        assert tomllib.loads(path.read_bytes().decode())["mcp_servers"][name] == table
        assert remove_server(path, name)
        assert tomllib.loads(path.read_text()) == tomllib.loads(before)
        assert [line for line in path.read_text().splitlines() if line] == [
            line for line in before.splitlines() if line
        ]
