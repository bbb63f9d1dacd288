"""Other servers of the Responses API, each installed into an environment of its own and run over a given upstream."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgspec

from ferrule.testing.request import Wire

KEY = "sk-compat"
"""The key of every server and of the upstream: some demand one."""
MODELS = ("m", "short", "slow", "long")
"""The names that clients ask for: some servers must know them."""
READY_S = 120.0
"""Seconds that a server may take to start, on a busy machine."""
TRIES_S = 0.2
ERROR_STATUS = 500


class NotStarted(Exception):
    """A server that cannot be installed or started here, and why."""


class Place(msgspec.Struct, frozen=True):
    """Where one run of a server finds its programs, keeps its files, listens, and asks. `upstream` has no `/v1`."""

    bin: Path
    home: Path
    port: int
    upstream: str
    wire: Wire


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server: its package on PyPI, the upstream wires that it speaks, how it is started."""

    name: str
    package: str
    wires: tuple[Wire, ...]
    command: Callable[[Place], list[str]]
    env: Callable[[Place], Mapping[str, str]] = lambda place: {}
    path: str = "/v1"


def _litellm(place: Place) -> list[str]:
    there: dict[str, object] = {"api_base": f"{place.upstream}/v1", "api_key": KEY}
    there |= {"use_chat_completions_api": True} if place.wire == "chat" else {}
    models = [{"model_name": name, "litellm_params": there | {"model": f"openai/{name}"}} for name in MODELS]
    config = {"model_list": models}
    (place.home / "config.yaml").write_text(json.dumps(config))  # JSON is YAML.
    return ["litellm", "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(place.port)]


def _smg(place: Place) -> list[str]:
    ports = ["--port", str(place.port), "--prometheus-port", str(free_port())]
    return ["smg", "launch", "--backend", "openai", "--worker-urls", place.upstream, "--host", "127.0.0.1", *ports]


def _rosetta(place: Place) -> list[str]:
    provider = "openai_chat" if place.wire == "chat" else "openai_responses"
    config = {
        "providers": {provider: {"api_key": KEY, "base_url": f"{place.upstream}/v1"}},
        "models": {"m": provider},
        "server": {"host": "127.0.0.1", "port": place.port, "open_on_no_keys": True},
    }
    (place.home / "config.jsonc").write_text(json.dumps(config))
    return ["llm-rosetta-gateway", "--config", "config.jsonc", "--data-dir", str(place.home), "--no-banner"]


SERVERS = (
    Server(
        name="agentic-api",
        package="agentic-api",
        wires=("responses",),
        command=lambda place: ["agentic-server"],
        env=lambda place: {
            "LLM_API_BASE": place.upstream,
            "OPENAI_API_KEY": KEY,
            "SKIP_LLM_READY_CHECK": "true",
            "GATEWAY_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(place.port),
            "DATABASE_URL": f"sqlite://{place.home}/state.db?mode=rwc",
        },
    ),
    Server(
        name="LiteLLM",
        package="litellm[proxy]",
        wires=("chat", "responses"),
        command=_litellm,
        env=lambda place: {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
    Server(
        name="open-responses-server",
        package="open-responses-server",
        wires=("chat",),
        command=lambda place: ["otc", "start"],
        env=lambda place: {
            "OPENAI_BASE_URL_INTERNAL": place.upstream,
            "OPENAI_API_KEY": KEY,
            "API_ADAPTER_HOST": "127.0.0.1",
            "API_ADAPTER_PORT": str(place.port),
        },
        path="",
    ),
    Server(
        name="SMG",
        package="smg",
        wires=("responses",),
        command=_smg,
        env=lambda place: {"OPENAI_API_KEY": KEY},
    ),
    Server(name="llm-rosetta", package="llm-rosetta", wires=("chat",), command=_rosetta),
    Server(
        name="OGX",
        package="ogx",
        wires=("chat",),
        command=lambda place: ["ogx", "stack", "run", "starter", "--port", str(place.port)],
        env=lambda place: {"OPENAI_BASE_URL": f"{place.upstream}/v1", "OPENAI_API_KEY": KEY},
    ),
)


def installed(server: Server, folder: Path) -> Path:
    """Install a server into its own environment below a folder, unless it is there; return the `bin` folder."""
    bin_folder = folder / server.package.partition("[")[0] / "bin"
    stamp = bin_folder / "ready"
    if not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", str(bin_folder.parent)], check=True)
        pip = [str(bin_folder / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        done = subprocess.run([*pip, server.package], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotStarted(_reason(done.stderr))
        stamp.touch()
    return bin_folder


def _reason(said: str) -> str:
    """Return in one line why pip gave up."""
    wanted = re.findall(r"Requires-Python (>=[\d.]+)", said)
    if wanted:
        return f"needs Python {wanted[-1]}, this is {sys.version_info.major}.{sys.version_info.minor}"
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")]
    return f"cannot be installed: {errors[-1] if errors else said[-200:]}"


def version(server: Server, bin_folder: Path) -> str:
    """Return the version that is installed."""
    ask = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    package = server.package.partition("[")[0]
    return subprocess.check_output([str(bin_folder / "python"), "-c", ask, package], text=True).strip()


def free_port() -> int:
    """Return a port that was free just now: most servers cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Running(msgspec.Struct, frozen=True):
    """A server that runs."""

    url: str
    pid: int


@contextmanager
def running(server: Server, bin_folder: Path, upstream: str, wire: Wire, home: Path) -> Iterator[Running]:
    """Run a server over an upstream (a URL without `/v1`), with a home of its own."""
    home.mkdir(parents=True, exist_ok=True)
    place = Place(bin_folder, home, free_port(), upstream, wire)
    words = server.command(place)
    env = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(home), **server.env(place)}
    log = home / "server.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [str(bin_folder / words[0]), *words[1:]],
            cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{place.port}{server.path}"
        _wait(process, url, log)
        yield Running(url, process.pid)
    finally:
        _end(process)


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Wait until a server answers a request; one that goes on to fail has started nevertheless."""
    deadline = time.monotonic() + READY_S
    answered = False
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip()[-300:]
            raise NotStarted(f"ended with exit code {process.returncode}: {' '.join(said.split())}")
        try:
            head = {"authorization": f"Bearer {KEY}"}
            answer = httpx2.post(f"{url}/responses", json={"model": "m", "input": "hi"}, headers=head, trust_env=False)
            if answer.status_code < ERROR_STATUS:
                return
            answered = True
        except httpx2.HTTPError:
            pass
        time.sleep(TRIES_S)
    if not answered:
        raise NotStarted(f"did not answer within {READY_S:g} s")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a server and what it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
