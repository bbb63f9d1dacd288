"""What pages let the browser download: into the container, bounded, and told."""

from ferrule.containers.screen.devtools import DevTools
from ferrule.containers.screen.notes import Notes, quoted
from ferrule.containers.screen.program import DOWNLOADS
from ferrule.protocol.json_text import JsonObject

MAX_BYTES = 1 << 30
"""Bytes of all downloads of one browser together: more is seldom wanted, and disks are small."""
GIBIBYTE = 1 << 30


class Downloads:
    """The downloads of one browser."""

    def __init__(self, devtools: DevTools, notes: Notes) -> None:
        self._devtools = devtools
        self._notes = notes
        self._names: dict[str, str] = {}
        self._bytes: dict[str, int] = {}
        self._cancelled: set[str] = set()

    async def start(self) -> None:
        """Let the browser download."""
        allowed: JsonObject = {"behavior": "allow", "downloadPath": DOWNLOADS, "eventsEnabled": True}
        await self._devtools.call("Browser.setDownloadBehavior", allowed)

    def hear(self, name: str, said: JsonObject) -> None:
        """Hear of an event."""
        guid = str(said["guid"])
        if name == "Browser.downloadWillBegin":
            self._names[guid] = str(said.get("suggestedFilename", ""))
            self._notes.add(f"A download began: {quoted(self._names[guid])}.")
        elif guid in self._names:
            self._progressed(guid, said)

    def _progressed(self, guid: str, said: JsonObject) -> None:
        state, shown = said["state"], quoted(self._names[guid])
        received, total = int(float(str(said["receivedBytes"]))), int(float(str(said["totalBytes"])))
        self._bytes[guid] = received
        if state == "inProgress":
            others = sum(self._bytes.values()) - received
            if others + max(received, total) > MAX_BYTES and guid not in self._cancelled:
                self._cancelled.add(guid)
                self._devtools.send("Browser.cancelDownload", {"guid": guid})
        elif state == "completed":
            path = str(said.get("filePath") or f"{DOWNLOADS}/{self._names[guid]}")
            self._notes.add(f"The download {shown} is complete: {path}, {received} bytes.")
            self._end(guid, received)
        else:
            bound = f"downloads of a screen take at most {MAX_BYTES / GIBIBYTE:g} GiB together"
            why = f"was cancelled: {bound}" if guid in self._cancelled else "ended before it was complete"
            self._notes.add(f"The download {shown} {why}.")
            self._end(guid, 0)

    def _end(self, guid: str, kept: int) -> None:
        del self._names[guid]
        self._cancelled.discard(guid)
        self._bytes[guid] = kept
