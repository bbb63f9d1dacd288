"""A client of an app-server, ours or the reference's, at the other end of two streams of lines."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Message = dict[str, Any]
Send = Callable[[bytes], Awaitable[None]]
Receive = Callable[[], Awaitable[bytes]]
Answer = Callable[[Message], Any]

DEADLINE = 30.0
"""Seconds that a message may take on a busy machine."""

HELLO = {
    "clientInfo": {"name": "ferrule-tests", "title": "Tests", "version": "1"},
    "capabilities": {"experimentalApi": True},
}


class RpcError(Exception):
    """An error that answers a request."""

    def __init__(self, error: Message) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]


class Client:
    """Sends requests, answers those of the server by `answers` (by method), and keeps all that was said in `said`."""

    def __init__(self, send: Send, receive: Receive) -> None:
        self._send = send
        self._receive = receive
        self._id = 0
        self.answers: dict[str, Answer] = {}
        self.said: list[Message] = []
        self.asked: list[Message] = []
        """The requests of the server."""
        self.sent: dict[int, str] = {}
        """The methods of the requests, by their ids."""
        self._seen = 0

    async def send(self, line: bytes) -> None:
        """Send bytes as they are."""
        await self._send(line)

    async def say(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        await self._send(json.dumps(message).encode() + b"\n")

    async def ask(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        self._id += 1
        self.sent[self._id] = method
        await self.say({"id": self._id, "method": method, "params": params})
        return self._id

    async def call(self, method: str, **params: Any) -> Any:
        """Send a request and return its result. Raises `RpcError`."""
        return await self.result(await self.ask(method, **params))

    async def result(self, request_id: int | str) -> Any:
        """Wait for the answer to a request."""
        answer = await self.hear(lambda message: "method" not in message and message.get("id") == request_id)
        if "error" in answer:
            raise RpcError(answer["error"])
        return answer["result"]

    async def greet(self) -> Any:
        """Shake hands."""
        result = await self.call("initialize", **HELLO)
        await self.say({"method": "initialized"})
        return result

    async def next(self) -> Message:
        """Return the next message; answer it, where it is a request with an answer in `answers`."""
        async with asyncio.timeout(DEADLINE):
            line = await self._receive()
        if not line:
            raise EOFError("the server has closed its output")
        message: Message = json.loads(line)
        self.said.append(message)
        if "method" in message and "id" in message:
            self.asked.append(message)
            answer = self.answers.get(message["method"])
            if answer is not None:
                await self.reply(message, answer(message["params"]))
        return message

    async def reply(self, request: Message, result: Any) -> None:
        """Answer a request of the server."""
        await self.say({"id": request["id"], "result": result})

    async def hear(self, wanted: Callable[[Message], bool]) -> Message:
        """Wait for a message; one that came before and nobody has waited for counts."""
        for message in self.said[self._seen :]:
            if wanted(message):
                return message
        while not wanted(message := await self.next()):
            pass
        return message

    async def notified(self, method: str, **fields: Any) -> Message:
        """Wait for a notification, or a request, with these params."""

        def wanted(message: Message) -> bool:
            return message.get("method") == method and all(message["params"].get(k) == v for k, v in fields.items())

        return (await self.hear(wanted))["params"]  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Wait only for what comes from now on."""
        self._seen = len(self.said)

    async def start(self, **params: Any) -> str:
        """Start a thread and return its id."""
        return str((await self.call("thread/start", **params))["thread"]["id"])

    async def turn(self, thread: str, text: str = "go", **params: Any) -> Message:
        """Run a turn to its end, and return what the end says."""
        self.forget()
        await self.call("turn/start", threadId=thread, input=[{"type": "text", "text": text}], **params)
        return (await self.notified("turn/completed", threadId=thread))["turn"]  # type: ignore[no-any-return]

    def methods(self) -> list[str]:
        """Return what was said since the last turn began, by method."""
        return [message["method"] for message in self.said[self._seen :] if "method" in message]

    def items(self, kind: str, of: str = "item/completed") -> list[Message]:
        """Return the items of a type, as notified since the last turn began."""
        return [
            message["params"]["item"]
            for message in self.said[self._seen :]
            if message.get("method") == of and message["params"]["item"]["type"] == kind
        ]
