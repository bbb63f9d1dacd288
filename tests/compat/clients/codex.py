"""The real Codex, whose model is a gateway: over HTTP and over WebSocket."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.compat.clients.points import show

TURN_SECONDS = 180
"""Time limit of one turn, on a busy machine."""

Lines = list[dict[str, Any]]


class Codex:
    """A binary, the gateway it asks, and a fresh home and workspace."""

    def __init__(self, binary: str, url: str, folder: Path, *, sockets: bool) -> None:
        self.home, self.workspace = folder / "home", folder / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        self._binary = binary
        provider = f'name="gateway",base_url="{url}",wire_api="responses",supports_websockets={str(sockets).lower()}'
        retries = "request_max_retries=0,stream_max_retries=0"
        self._settings = ('model_provider="gateway"', f"model_providers.gateway={{{provider},{retries}}}")
        self._env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "CODEX_HOME": str(self.home)}
        self._env |= {"SHELL": "/bin/bash", "RUST_LOG": "off"}

    def turn(self, prompt: str, *before: str) -> Lines:
        """Run one turn, and return the lines that it printed."""
        options = [word for setting in self._settings for word in ("-c", setting)]
        command = [self._binary, "exec", "--json", "--skip-git-repo-check", *options, "-m", "gpt-5.5"]
        command += ["-s", "danger-full-access", "-C", str(self.workspace), *before, prompt]
        done = subprocess.run(
            command, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=TURN_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-800:]} {done.stderr[-800:]}"
        return [json.loads(line) for line in done.stdout.splitlines()]


def says(lines: Lines) -> list[str]:
    """Return what the agent said."""
    items = [line["item"] for line in lines if line["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"]


def work(codex: Codex) -> None:
    """A turn that runs a command and applies a patch, then a resumed one that does it with other words."""
    (codex.workspace / "a.txt").write_text("one\n")
    lines = codex.turn("use exec_command, apply_patch")
    assert (codex.workspace / "ran.txt").read_text() == "ran\n", lines
    assert (codex.workspace / "a.txt").read_text() == "two\n", lines
    assert (codex.workspace / "new.txt").read_text() == "new\n", lines
    assert "Success" in says(lines)[-1], lines
    assert lines[-1]["type"] == "turn.completed" and lines[-1]["usage"]["input_tokens"] > 0, lines
    assert not [line for line in lines if line["type"] == "error"], lines
    again = codex.turn("say once more", "resume", "--last")
    assert says(again)[-1] == "You said: once more", again


class Wiretap:
    """Stands between a client and a gateway, and keeps how each connection begins."""

    def __init__(self, url: str) -> None:
        self.heads: list[bytes] = []
        self._to = ("127.0.0.1", urlsplit(url).port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._to)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink, source is client), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        with suppress(OSError):
            first = True
            while data := source.recv(65_536):
                if first and from_client:
                    self.heads.append(data.lower())
                first = False
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


class Server:
    """`codex app-server`, which can be told to compact."""

    def __init__(self, codex: Codex) -> None:
        options = [word for setting in codex._settings for word in ("-c", setting)]
        self._process = subprocess.Popen(
            [codex._binary, "app-server", *options], env=codex._env, cwd=codex.workspace, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._number = 0
        self.ask("initialize", clientInfo={"name": "t", "title": "t", "version": "1"})
        self._send({"method": "initialized"})

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request, and return its result."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        return self._read(lambda line: line.get("id") == self._number and "method" not in line)["result"]

    def turn(self, method: str, **params: Any) -> Lines:
        """Start a turn, and return the items that it completed."""
        items: Lines = []

        def ends(line: dict[str, Any]) -> bool:
            assert line.get("method") != "error", line
            if line.get("method") == "item/completed":
                items.append(line["params"]["item"])
            return line.get("method") == "turn/completed"

        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        ended = self._read(ends)
        assert ended["params"]["turn"]["status"] == "completed", ended
        return items

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _read(self, wanted: Any) -> Any:
        assert self._process.stdout is not None
        until = time.monotonic() + TURN_SECONDS
        while time.monotonic() < until:
            line = self._process.stdout.readline()
            assert line, "the server ended"
            message = json.loads(line)
            assert "error" not in message, message
            if wanted(message):
                return message
        raise AssertionError("it took too long")


def compaction(codex: Codex) -> None:
    """A turn, a compaction and one more turn."""
    server = Server(codex)
    try:
        thread = server.ask(
            "thread/start", cwd=str(codex.workspace), model="gpt-5.5", approvalPolicy="never",
            sandbox="danger-full-access",
        )["thread"]["id"]  # fmt: skip
        words = server.turn("turn/start", threadId=thread, input=[{"type": "text", "text": "say before"}])
        assert words[-1]["text"] == "You said: before", words
        compacted = server.turn("thread/compact/start", threadId=thread)
        assert any("ompact" in item["type"] for item in compacted), compacted
        words = server.turn("turn/start", threadId=thread, input=[{"type": "text", "text": "say after"}])
        assert words[-1]["text"] == "You said: after", words
    finally:
        server.close()


def main(binary: str, url: str) -> None:
    """Show it over both."""

    def over(point: Any, *, sockets: bool) -> Any:
        def shown() -> None:
            tap = Wiretap(url)
            with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferrule-codex-") as folder:
                point(Codex(binary, tap.url, Path(folder), sockets=sockets))
            upgrades = [b"upgrade: websocket" in head for head in tap.heads]
            posts = [head.startswith(b"post /v1/responses ") for head in tap.heads]
            assert any(upgrades if sockets else posts) and not any(posts if sockets else upgrades), tap.heads

        shown.__name__ = f"{point.__name__}, {'WebSocket' if sockets else 'HTTP'}"
        return shown

    points = [over(point, sockets=sockets) for sockets in (False, True) for point in (work, compaction)]
    asyncio.run(show(points))


if __name__ == "__main__":
    main(*sys.argv[1:])
