"""Files of containers: brought by clients, found again by their ids, and cited in a model's words."""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterable
from contextlib import suppress
from pathlib import Path

from ferrule.containers.data import DataFile, FolderClosed, NoFile, find_file, list_files, make_file, remove_file
from ferrule.protocol.json_text import JsonObject
from ferrule.stdio import write_all

LINK = re.compile(r"sandbox:/mnt/data/([^\s()\[\]<>\"'`]+)")
"""A file in the model's words."""


class ContainerFiles:
    """The files of the container `container_id`, which lie in `folder`."""

    def __init__(self, container_id: str, folder: Path) -> None:
        self._container_id = container_id
        self._folder = folder
        self._paths: dict[str, str] = {}
        """Of the files that were listed last, by their ids: who asks for one has mostly seen the list."""

    def id_of(self, path: str) -> str:
        """Return the id of a file, which comes of its path alone."""
        text = f"{self._container_id}\0{path}".encode(errors="surrogateescape")
        return "cfile_" + hashlib.sha256(text).hexdigest()[:40]

    async def all(self) -> list[DataFile]:
        """Return all files, by path. Raises `FolderClosed`."""
        found = await asyncio.to_thread(list_files, self._folder)
        self._paths = {self.id_of(one.path): one.path for one in found}
        return found

    async def at(self, path: str) -> DataFile:
        """Return the file of a path. Raises `NoFile` and `FolderClosed`."""
        return await asyncio.to_thread(find_file, self._folder, path)

    async def of_id(self, file_id: str) -> DataFile:
        """Return the file of an id. Raises `NoFile` and `FolderClosed`."""
        if file_id not in self._paths:
            await self.all()
        if file_id not in self._paths:
            raise NoFile(file_id)
        return await self.at(self._paths[file_id])

    async def write(self, name: str, blocks: AsyncIterable[bytes]) -> str:
        """Write a new file, or none: half of one would look like a whole one. Returns its name. Raises `NoFile` for an
        odd name, `FolderClosed`, and `OSError`."""
        name, fd = await asyncio.to_thread(make_file, self._folder, name)
        try:
            async for block in blocks:
                await asyncio.to_thread(write_all, fd, block)
        except BaseException:
            with suppress(NoFile, FolderClosed):
                remove_file(self._folder, name)
            raise
        finally:
            os.close(fd)
        return name

    async def citations(self, text: str) -> list[JsonObject]:
        """Return the annotations for the files that a text names and that are there. Raises `FolderClosed`."""
        found = []
        for link in LINK.finditer(text):
            with suppress(NoFile):
                await self.at(link[1])
                found.append(self._citation(link))
        return found

    def _citation(self, link: re.Match[str]) -> JsonObject:
        return {
            "type": "container_file_citation",
            "container_id": self._container_id,
            "file_id": self.id_of(link[1]),
            "filename": link[1].rpartition("/")[2],
            "start_index": link.start(),
            "end_index": link.end(),
        }
