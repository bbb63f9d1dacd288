"""Which embedder there is: the server of the settings, the vectors of an installed package, or none."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ferrule.protocol.embedding_settings import EmbeddingsSettings
from ferrule.protocol.errors import UsageError
from ferrule.retrieval.embedder import Embedder

NEEDED = ("numpy", "tokenizers", "safetensors")
"""What reads the vectors of the package, which brings all of them."""


def open_embedder(
    settings: EmbeddingsSettings, env: Mapping[str, str], *, ca_file: str | None = None
) -> Embedder | None:
    """Return the embedder of the settings, which the caller closes; None if there is none. Nothing is loaded, and
    nobody asked, before it is used. `ca_file` holds further roots. Raises `UsageError`."""
    if settings.base_url is not None:
        if not settings.base_url.startswith(("http://", "https://")):
            raise UsageError(f"embeddings.base_url: {settings.base_url!r} has to begin with http:// or https://")
        if not settings.model:
            raise UsageError(
                "embeddings.model is missing: the model that the server of embeddings.base_url is asked for"
            )
        if find_spec("numpy") is None:
            raise UsageError("embeddings needs numpy: install 'ferrule[search]'")
        from ferrule.retrieval.server_embedder import ServerEmbedder

        return ServerEmbedder(settings.base_url, settings.model, env_key=settings.env_key, env=env, ca_file=ca_file)
    if settings.model or settings.env_key:
        raise UsageError("embeddings.base_url is missing: the address of a server with /embeddings")
    package = find_spec("wordllama")
    if package is None or not package.submodule_search_locations or None in map(find_spec, NEEDED):
        return None
    from ferrule.retrieval.static_embedder import StaticEmbedder

    return StaticEmbedder(Path(package.submodule_search_locations[0]))
