"""The tables `[embeddings]` and `[file_search]`: who turns text into vectors, and which folders are searched."""

from typing import Annotated

import msgspec


class EmbeddingsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who turns text into vectors, for vector stores and `file_search`.

    `base_url` is any server with `/embeddings` (OpenAI, Ollama, llama.cpp, vLLM, TEI), up to and with its `/v1`;
    `model` is its model, `env_key` the variable with its key. Without `base_url` the vectors of the package wordllama
    are taken, if it is installed. `memory_bytes`: how much the vectors of all stores may take in memory.
    """

    base_url: str | None = None
    model: str | None = None
    env_key: str | None = None
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] = 512 * 1024 * 1024


class FileSearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the tool `file_search` of a local session searches: `folders`, absolute or relative to the working
    directory."""

    folders: tuple[str, ...] = ()
