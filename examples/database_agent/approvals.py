"""A web page where somebody allows or declines what an agent asks.

It is served on 127.0.0.1, which other users of the machine and every page in the browser can reach, too. So questions
and answers need the token of the printed address (behind `#`, which browsers send to no server), `Host` and `Origin`
must be this server's own, and no other page can show this one in a frame.
"""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from ferrule import Decision, ReviewDecision
from ferrule.protocol.events import ExecApproval

HOST = "127.0.0.1"
PAGE = Path(__file__).with_name("approvals.html")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Approvals:
    """The questions of an agent, and the page that shows them. `ask` is its `on_approval`."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._token = secrets.token_urlsafe(32)
        self._origin = ""
        self._waiting: dict[str, tuple[ExecApproval, asyncio.Future[Decision]]] = {}
        self._decided: list[dict[str, str]] = []

    async def ask(self, question: ExecApproval) -> Decision:
        """Wait until somebody has decided on the page."""
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiting[question.request_id] = (question, answer)
        try:
            return await answer
        finally:
            self._waiting.pop(question.request_id, None)

    @asynccontextmanager
    async def served(self, port: int = 0) -> AsyncIterator[str]:
        """Serve the page; give its address, which is the right to decide."""
        with socket.create_server((HOST, port)) as listening:
            self._origin = f"http://{HOST}:{listening.getsockname()[1]}"
            server = uvicorn.Server(uvicorn.Config(self._app(), log_level="warning"))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield f"{self._origin}/#{self._token}"
            finally:
                server.should_exit = True
                await serving

    def _app(self) -> Starlette:
        routes = [
            Route("/", self._show),
            Route("/state", self._tell),
            Route("/answers/{request_id}", self._answer, methods=["POST"]),
        ]
        return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST])])

    def _check(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if not secrets.compare_digest(given, f"Bearer {self._token}".encode()):
            raise HTTPException(401, "Open the address that the program printed.")
        if request.headers.get("origin", self._origin) != self._origin:
            raise HTTPException(403, "Other pages may not ask here.")

    async def _show(self, request: Request) -> HTMLResponse:
        return HTMLResponse(PAGE.read_text(), headers=HEADERS)

    async def _tell(self, request: Request) -> JSONResponse:
        self._check(request)
        waiting = [{"id": one, "text": question.text} for one, (question, _) in self._waiting.items()]
        return JSONResponse({"task": self._task, "waiting": waiting, "decided": self._decided}, headers=HEADERS)

    async def _answer(self, request: Request) -> JSONResponse:
        self._check(request)
        given = await request.json()
        question, answer = self._waiting.pop(request.path_params["request_id"], (None, None))
        if question is None or answer is None or answer.done():  # done: the question was withdrawn just now
            raise HTTPException(409, "This question does not wait any more.")
        verdict = ReviewDecision.APPROVED if given.get("allow") is True else ReviewDecision.DENIED
        self._decided.append({"text": question.text, "decision": verdict.value})
        answer.set_result(Decision(verdict, str(given.get("reason") or "") or None))
        return JSONResponse({})
