"""The network of containers: who is reached from inside, with which secrets, and what is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.containers import ContainerExpired, LocalHost
from ferrule.egress.names import DomainNames
from ferrule.hosted.containers import ClientContainers
from ferrule.hosted.network import Network
from ferrule.hosted.tool import Scope
from ferrule.hosted.wanted import wanted_of
from ferrule.store import Store
from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.egress.scene import VALUE, Beyond, servers
from tests.gateway.served import Json, Served, new_place, serving
from tests.programs import need

DOMAINS = ["ok.example", "api.example", "*.wild.example"]
SECRET = {"domain": "api.example", "name": "API_KEY", "value": VALUE}
OPEN = {"type": "allowlist", "allowed_domains": DOMAINS, "domain_secrets": [SECRET]}
CONFIG = """
[gateway.network]
allowed_domains = ["*.example", "outside.org"]
ca_file = "{beyond.ca_file}"
[gateway.network.hosts]
"""


def does(request: Request) -> Simple:
    """Run what the user said, line by line, in a shell or in Python; then tell what came out."""
    if list(request.body["messages"])[-1]["role"] == "tool":  # type: ignore[call-overload]
        return request.outputs[-1].text
    text = request.user_text
    if text.startswith("$"):
        return function_call("shell", {"commands": text[1:].rpartition("\n$")[2].split("\n")})
    return function_call("python", {"code": text})


@pytest.fixture(scope="module")
def beyond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beyond]:
    with servers(tmp_path_factory.mktemp("beyond")) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("network")


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(does) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(beyond: Beyond, folder: Path, model: ScriptedModel) -> Iterator[Served]:
    place = new_place(folder)
    names = ("ok.example", "api.example", "a.wild.example", "no.example", "outside.org")
    hosts = [f'"{name}:{port}" = "{at}"\n' for name in names for port, at in ((80, beyond.plain), (443, beyond.secure))]
    place.home.mkdir(parents=True, exist_ok=True)
    (place.home / "config.toml").write_text(CONFIG.format(beyond=beyond) + "".join(hosts))
    with serving(place, model.base_url) as running:
        yield running


def shell(policy: Json | None) -> Json:
    environment = {"type": "container_auto"} | ({} if policy is None else {"network_policy": policy})
    return {"type": "shell", "environment": environment}


def run(gateway: Served, policy: Json | None, *commands: str, **body: Any) -> list[str]:
    """Return what each command wrote."""
    made = gateway.create(input="$" + "\n".join(commands), tools=[shell(policy)], **body)
    (outputs,) = [item["output"] for item in made["output"] if item["type"] == "shell_call_output"]
    return [entry["stdout"] + entry["stderr"] for entry in outputs]


REACHED = "HTTP/1.1\r\n|200 OK"
PROXY_SAYS = "CONNECT {} HTTP/1.1\\r\\nHost: {}\\r\\n\\r\\n"
RAW = "timeout 30 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; printf \"{said}\" >&3; cat <&3'"
PY = "python3 -c \"import urllib.request as u; print(u.urlopen('{}', timeout=30).status, 'OK')\""
NODE = "node -e \"fetch('{}').then(r => console.log(r.status, 'OK'), e => console.log(e.cause ? e.cause.code : e))\""
SOCKET = (
    'python3 -c "import socket as s; c = s.socket(s.AF_INET, s.{kind}); c.settimeout(30); '
    "c.connect(('{host}', {port}));"
    " c.send(b'x'); print(c.recv(9), 'came')\""
)
SMUGGLED = "POST / HTTP/1.1\\r\\nHost: ok.example\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
UNNAMED = (
    "python3 -c \"import ssl, socket; c = socket.create_connection(('ok.example', 443)); "
    'ssl._create_unverified_context().wrap_socket(c)"'
)
TRIES = [
    ("curl -sSm30 https://ok.example/", REACHED),
    ("curl -sSm30 http://ok.example/", REACHED),
    ("curl -sSm30 --noproxy '*' https://ok.example/", REACHED),
    ("curl -sSm30 --noproxy '*' http://ok.example/", REACHED),
    ("curl -sSm30 https://OK.EXAMPLE./", REACHED),
    ("curl -sSm30 https://a.wild.example/", REACHED),
    ("curl -sSm30 https://api.example/", REACHED),
    ("curl -sSm30 --http2 https://ok.example/", REACHED),
    (PY.format("https://ok.example/"), REACHED),
    (PY.format("http://ok.example/"), REACHED),
    (f"no_proxy='*' {PY.format('https://ok.example/')}", REACHED),
    (NODE.format("https://ok.example/"), REACHED),
    ("git ls-remote https://ok.example/x", "not valid: is this a git repository"),
    ("curl -sSm30 --noproxy '*' https://a.wild.example/", "Could not resolve host"),
    ("curl -sSm30 https://wild.example/", "wild.example is not an allowed domain"),
    ("curl -sSm30 https://no.example/", "no.example is not an allowed domain"),
    ("curl -sSm30 http://no.example/", "no.example is not an allowed domain"),
    ("curl -sSm30 https://outside.org/", "outside.org is not an allowed domain"),
    ("curl -sSm30 --noproxy '*' https://no.example/", "Could not resolve host"),
    ("curl -sSkm30 --noproxy '*' --resolve no.example:443:127.64.0.1 https://no.example/", "unrecognized|alert"),
    ("curl -sSm30 --noproxy '*' --resolve no.example:80:127.64.0.1 http://no.example/", "for no.example, but"),
    ("curl -sSkm30 --connect-to no.example:443:ok.example:443 https://no.example/", "its TLS is for no.example"),
    ("curl -sSm30 -H 'Host: no.example' http://ok.example/", "for no.example, but"),
    ("curl -sSm30 -H 'Host: no.example' https://api.example/", "for no.example, but"),
    ("curl -sSm30 --path-as-is http://no.example@ok.example:80/..", REACHED),
    ("curl -sSm30 http://ok.example@no.example/", "no.example is not an allowed domain"),
    ("curl -sSm30 --noproxy none http://127.0.0.1/", "is an address"),
    ("curl -sSm30 http://169.254.169.254/latest/meta-data/", "is an address"),
    ("curl -sSm30 http://2130706433/", "is an address|No allowed domain"),
    ("curl -sSm30 http://0x7f000001/", "is an address|No allowed domain"),
    ("curl -sSm30 -g 'http://[::ffff:127.0.0.1]/'", "is an address"),
    ("curl -sSm30 https://ok.example:22/", "Port 22 of ok.example"),
    ("curl -sSm30 --noproxy '*' http://127.64.0.9/", "No allowed domain has the address 127.64.0.9"),
    ("curl -sSm30 telnet://8.8.8.8:443", "Could not connect|unreachable|Failed to connect"),
    (PY.format("https://no.example/"), "403"),
    (f"no_proxy='*' {PY.format('https://no.example/')}", "Name or service|resolution"),
    (NODE.format("https://no.example/"), "ENOTFOUND|EAI_AGAIN|UND_ERR|403"),
    ("git ls-remote https://no.example/x", "no.example is not an allowed domain"),
    ("git ls-remote git://ok.example/x", "unable to connect|Connection refused"),
    ("git ls-remote ssh://ok.example/x", "Connection refused|Could not read from remote"),
    (SOCKET.format(kind="SOCK_STREAM", host="8.8.8.8", port=443), "unreachable"),
    (SOCKET.format(kind="SOCK_DGRAM", host="8.8.8.8", port=53), "unreachable"),
    (SOCKET.format(kind="SOCK_STREAM", host="127.0.0.1", port="{port}"), "refused"),
    (SOCKET.format(kind="SOCK_DGRAM", host="127.0.0.1", port=53), "refused"),
    (RAW.format(port=3128, said=PROXY_SAYS.format("no.example:443", "no.example:443")), "403 Forbidden"),
    (RAW.format(port=3128, said=PROXY_SAYS.format("ok.example:443", "no.example:443")), "400 Bad Request"),
    (RAW.format(port=3128, said=PROXY_SAYS.format("ok.example:443", "ok.example") + "SSH-2.0-x\\r\\n"), "is not TLS"),
    (RAW.format(port=3128, said="GET http://ok.example/ HTTP/1.1\\nHost: ok.example\\n\\n"), "CR LF"),
    (RAW.format(port="80", said=SMUGGLED).replace("/127.0.0.1/", "/ok.example/"), "twice"),
    (UNNAMED, "unrecognized|alert"),
]  # fmt: skip


def test_only_allowed_names_are_reached_from_inside(gateway: Served, beyond: Beyond, model: ScriptedModel) -> None:
    need("curl", "node", "git")
    before = len(beyond.echo.heads)
    port = beyond.plain.rpartition(":")[2]
    told = run(gateway, OPEN, *(command.replace("{port}", port) for command, _ in TRIES))
    wrong = [
        f"{command}\n{text}" for (command, wanted), text in zip(TRIES, told, strict=True) if not re.search(wanted, text)
    ]
    assert not wrong, "\n".join(wrong)
    hosts = {re.search(rb"(?i)\r\nhost: ([^\r]*)", head)[1] for head in beyond.echo.heads[before:]}  # type: ignore[index]
    assert hosts <= {b"ok.example", b"OK.EXAMPLE.", b"api.example", b"a.wild.example"}
    said = json.dumps(model.requests[-1].body["tools"])
    assert "only these domains: ok.example, api.example, *.wild.example" in said
    assert "The variable API_KEY stands for a secret of api.example" in said


CELL = """
import os, subprocess
open('kept.txt', 'w').write(os.environ['API_KEY'])
def run(command): print(subprocess.run(command, shell=True, capture_output=True, text=True).stdout)
for url in ('https://api.example/', 'https://api.example/gzip', 'https://ok.example/'):
    run(f'curl -sS --compressed -H "X-Key: $API_KEY" {url}')
run('cat kept.txt /etc/ssl/certs/ca-certificates.crt; env; grep -a . /proc/*/environ')
"""


def test_a_secret_is_in_headers_to_its_domain_and_nowhere_else(
    gateway: Served, beyond: Beyond, model: ScriptedModel, folder: Path
) -> None:
    before = len(beyond.echo.heads)
    answer = gateway.ask(
        "POST",
        "/responses",
        {
            "model": "m",
            "stream": True,
            "input": CELL,
            "include": ["code_interpreter_call.outputs"],
            "tools": [{"type": "code_interpreter", "container": {"type": "auto", "network_policy": OPEN}}],
        },
    )
    sent = [head for head in beyond.echo.heads[before:] if VALUE.encode() in head]
    assert [re.search(rb"Host: (\S+)", head)[1] for head in sent] == [b"api.example"] * 2  # type: ignore[index]
    final = [line for line in answer.body.decode().splitlines() if line.startswith("data: {")][-1]
    done = json.loads(final.removeprefix("data: "))["response"]
    logs = done["output"][0]["outputs"][0]["logs"]
    (placeholder,) = set(re.findall(r"X-Key: (\S+)", logs))
    assert len(placeholder) == len(VALUE) and f"API_KEY={placeholder}" in logs
    policy = done["tools"][0]["container"]["network_policy"]
    assert policy == {**OPEN, "domain_secrets": [{"domain": "api.example", "name": "API_KEY"}]}
    shown = gateway.ask("GET", f"/containers/{done['output'][0]['container_id']}").json
    assert shown["network_policy"] == {"type": "allowlist", "allowed_domains": DOMAINS}
    stored = gateway.ask("GET", f"/responses/{done['id']}")
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    seen = [json.dumps(request.body).encode() for request in model.requests]
    for text in (answer.body, stored.body, *kept, *seen):
        assert VALUE.encode() not in text


def test_a_secret_is_not_kept_where_nobody_reads_it_either(gateway: Served, folder: Path) -> None:
    function = {"type": "function", "name": "f", "parameters": {}, "environment": {"network_policy": OPEN}}
    server = {"type": "mcp", "server_label": "x", "authorization": VALUE}
    odd = {**OPEN, "domain_secrets": [{**SECRET, "more": {"value": VALUE}}, VALUE]}
    listed = [{"type": "function", "name": "f"}, shell(OPEN), server, {"nested": [{"network_policy": odd}]}]
    body = {
        "model": "m", "input": "1", "tools": [function], "sandbox": {"network_policy": OPEN},
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": listed},
    }  # fmt: skip
    made = gateway.ask("POST", "/responses", body)
    assert made.status == 200, made.body
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    for text in (made.body, gateway.ask("GET", f"/responses/{made.json['id']}").body, *kept):
        assert VALUE.encode() not in text
    assert made.json["tool_choice"]["tools"][1] == shell(
        {**OPEN, "domain_secrets": [{"domain": "api.example", "name": "API_KEY"}]}
    )


def test_a_secret_of_a_domain_that_is_not_listed_goes_nowhere(gateway: Served, beyond: Beyond) -> None:
    before = len(beyond.echo.heads)
    policy = {"type": "allowlist", "allowed_domains": ["ok.example"], "domain_secrets": [SECRET]}
    ask = 'curl -sSm30 -H "X-Key: $API_KEY" https://{}.example/'
    (refused, reached) = run(gateway, policy, ask.format("api"), ask.format("ok"))
    assert "api.example is not an allowed domain" in refused and "HTTP/1.1" in reached
    assert re.search(rf"X-Key: \S{{{len(VALUE)}}}\r\n", reached)
    assert VALUE.encode() not in b"".join(beyond.echo.heads[before:]) and VALUE not in reached


def test_refusals_are_told_beside_the_output(gateway: Served) -> None:
    made = run(gateway, {"type": "allowlist", "allowed_domains": ["ok.example"]}, "curl -s https://no.example/")
    text = "no.example is not an allowed domain. Allowed: ok.example."
    assert made == [f"[{text}]\n"]
    assert gateway.process.stderr is not None
    logged = iter(gateway.process.stderr.readline, b"")
    assert next(line for line in logged if line.endswith(f" INFO ferrule.egress: refused: {text}\n".encode()))


def test_a_policy_holds_for_the_conversation_until_another_is_declared(gateway: Served) -> None:
    get = "curl -sSm30 https://ok.example/"
    first = gateway.create(input=f"${get}\necho kept > f", tools=[shell(OPEN)])
    for policy, reached, told in (
        (None, True, ""),
        ({"type": "disabled"}, False, "started again"),
        (OPEN, True, "again"),
    ):
        body = {"input": f"${get}; cat f", "tools": [shell(policy)], "previous_response_id": first["id"]}
        (output,) = [item for item in gateway.create(**body)["output"] if item["type"] == "shell_call_output"]
        stdout, stderr = (output["output"][0][name] for name in ("stdout", "stderr"))
        assert ("HTTP/1.1" in stdout) is reached, stderr
        assert stdout.endswith("kept\n") and told in stderr, (policy, first["output"], output)


NAMES = [
    ("*", "would allow every domain"), ("127.0.0.1", "is an address"), ("2130706433", "is an address"),
    ("[::1]", "is an address"), ("https://ok.example", "is a URL"), ("ok.example/x", "is a URL"),
    ("ok.example:443", "has a port"), ("u@ok.example", "has a user name"), ("", "is empty"),
    ("a..example", "not a domain"), ("*.*.example", "stands only for the first label"),
    ("ok.org", "this server does not allow ok.org"), ("*.outside.org", "this server does not allow *.outside.org"),
    ("*.org", "this server does not allow *.org"),
]  # fmt: skip
ODD_SECRETS: list[tuple[Json, str]] = [
    ({"domain": "*"}, "would allow every domain"),
    ({"name": "API-KEY"}, "environment variable"), ({"name": ""}, "environment variable"),
    ({"name": "1A"}, "environment variable"), ({"name": "PATH"}, "has already"),
    ({"name": "HTTPS_PROXY"}, "has already"),
    ({"value": ""}, "cannot stand in a header"), ({"value": "a\r\nHost: x"}, "cannot stand in a header"),
    ({"value": 7}, "domain_secrets"), ({"name": None}, "domain_secrets"),
]  # fmt: skip
BAD: list[tuple[Json, str, str]] = [
    *(({"allowed_domains": [name]}, "allowed_domains", text) for name, text in NAMES),
    *(
        ({"allowed_domains": ["*.example"], "domain_secrets": [SECRET | wrong]}, "domain_secrets", text)
        for wrong, text in ODD_SECRETS
    ),
    ({"allowed_domains": []}, "allowed_domains", "an allowlist needs a domain"),
    ({"allowed_domains": "ok.example"}, "allowed_domains", "expected `array`"),
    ({"allowed_domains": None}, "allowed_domains", "expected `array`"),
    ({}, "allowed_domains", ""),
    ({"type": "open"}, "type", ""),
]


def test_a_policy_that_cannot_be_is_a_400_that_names_the_field(gateway: Served) -> None:
    for given, field, text in BAD:
        policy = {"type": "allowlist", **given}
        for path, body, param in (
            ("/containers", {"name": "x", "network_policy": policy}, ""),
            ("/responses", {"model": "m", "input": "$true", "tools": [shell(policy)]}, "tools[0].environment."),
            (
                "/responses",
                {
                    "model": "m",
                    "input": "1",
                    "tools": [{"type": "code_interpreter", "container": {"type": "auto", "network_policy": policy}}],
                },
                "tools[0].container.",
            ),
        ):
            answer = gateway.ask("POST", path, body)
            assert answer.status == 400, (given, answer.body)
            assert answer.error["param"].startswith(f"{param}network_policy.{field}"), (given, answer.error)
            assert text in answer.error["message"] and VALUE not in answer.error["message"]
    brought = {"type": "additional_tools", "role": "developer", "tools": [shell(OPEN)]}
    answer = gateway.ask("POST", "/responses", {"model": "m", "input": [brought]})
    assert answer.status == 400 and answer.error["param"] == "input[0].tools[0]"


def test_a_container_of_its_own_has_the_policy_that_it_was_made_with(gateway: Served) -> None:
    made = gateway.ask("POST", "/containers", {"name": "mine", "network_policy": OPEN}).json
    assert made["network_policy"] == {"type": "allowlist", "allowed_domains": DOMAINS}
    named = {"type": "shell", "environment": {"type": "container_reference", "container_id": made["id"]}}
    done = gateway.create(input="$curl -sS https://a.wild.example/", tools=[named])
    assert "HTTP/1.1" in json.dumps(done["output"])
    none = gateway.ask("POST", "/containers", {"name": "none", "network_policy": {"type": "disabled"}}).json
    assert none["network_policy"] == {"type": "disabled"}


async def test_secrets_end_with_the_server_and_a_network_without_them_goes_on(tmp_path: Path) -> None:
    declared = {"network_policy": OPEN}, {"network_policy": {"type": "allowlist", "allowed_domains": ["ok.example"]}}
    scope = Scope(owner="me", lane="lane")
    async with await Store.open(tmp_path / "gateway.db") as store:
        async with LocalHost.open(tmp_path / "containers") as host:
            containers = ClientContainers(host, store, idle_seconds=1200, network=Network())
            first, second = [await containers.create("me", wanted_of(one)) for one in declared]
            lane = await containers.place(scope, None, declared[0])
            await containers.aclose()
        async with LocalHost.open(tmp_path / "containers") as host:
            containers = ClientContainers(host, store, idle_seconds=1200, network=Network())
            states = await containers.states([first.record, second.record])
            assert [state.status for state in states] == ["expired", "running"]
            with pytest.raises(ContainerExpired, match="keeps the secrets of a container in memory alone"):
                await containers.get("me", first.id)
            again = await containers.get("me", second.id)
            assert again.way is not None and "HTTPS_PROXY" in again.box.environment
            new = await containers.place(scope, None, declared[0])
            assert new.id != lane.id and len(new.box.environment["API_KEY"]) == len(VALUE)
            narrowed = ClientContainers(host, store, idle_seconds=1200, network=Network(DomainNames(())))
            assert (await narrowed.get("me", second.id)).way is None
            await containers.aclose()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
