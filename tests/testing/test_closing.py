"""A server that is closed leaves nothing open, whatever arrives at that moment."""

import gc
import socket
import threading
import warnings

from ferrule.testing import ScriptedModel
from ferrule.testing.request import Request


def test_a_connection_that_arrives_as_the_server_stops_is_closed() -> None:
    reached, go = threading.Event(), threading.Event()

    def hold(request: Request) -> None:
        reached.set()
        go.wait(30)

    server = ScriptedModel(on_finished=hold).start()
    assert server._stop is not None
    with socket.create_connection(("127.0.0.1", server.port)) as asking:
        asking.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        assert reached.wait(30)
        with socket.create_connection(("127.0.0.1", server.port)), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ResourceWarning)
            server._stop()
            go.set()
            server.close()
            gc.collect()
    assert not [str(warning.message) for warning in told if "unclosed" in str(warning.message)]
