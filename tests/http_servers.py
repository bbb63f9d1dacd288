"""HTTP servers of the standard library for tests. They say nothing, and end with their block."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from sys import exception
from typing import Any

POLL_S = 0.01
"""Seconds that a server takes to end: the library's own half a second is much for a test."""


class Silent(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def log_message(self, *said: object) -> None:
        """Log nothing."""


class HttpServer(ThreadingHTTPServer):
    """A server on loopback, with TLS by a `context`. A client may break its connection off."""

    daemon_threads = True

    def __init__(self, handler: Callable[..., Any], context: ssl.SSLContext | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
        if context is not None:
            # The handshake belongs to the thread of its connection: a client that stays silent blocks nobody else.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of a fault of the handler."""
        if not isinstance(exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def listening(server: HttpServer) -> Iterator[HttpServer]:
    """Run a server until the block ends."""
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
