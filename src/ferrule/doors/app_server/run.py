"""Run the server: from the configuration to clients that are served, and back."""

from ferrule.doors.app_server.connection import Connection
from ferrule.doors.app_server.methods import METHODS
from ferrule.doors.app_server.openings import Configure
from ferrule.doors.app_server.pipes import serve_lines
from ferrule.stdio import Outbox, standard_streams


async def serve_pipes(configure: Configure) -> None:
    """Serve one client over standard input and output, until it closes them; then end what runs for it."""
    with standard_streams() as (source, sink):
        await serve_lines(Connection(METHODS, configure, Outbox()), source, sink)
