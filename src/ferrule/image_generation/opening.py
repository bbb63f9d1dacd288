"""From the table `[image_generation]` to what makes images."""

import os
from collections.abc import Mapping

from ferrule.image_generation.backend import ImageBackend
from ferrule.image_generation.command import CommandBackend, Confine
from ferrule.image_generation.maker import ImageMaker
from ferrule.image_generation.server import ServerBackend
from ferrule.lookup import NOWHERE, Places
from ferrule.protocol.image_settings import ImageGenerationSettings


def open_maker(
    settings: ImageGenerationSettings,
    confine: Confine,
    *,
    ca_file: str | None = None,
    env: Mapping[str, str] = os.environ,
    places: Places = NOWHERE,
) -> ImageMaker:
    """Return what makes images; nothing is connected or started yet. `settings` miss nothing; a program runs where
    `confine` lets it. Raises `UsageError`."""
    backend: ImageBackend
    if settings.command:
        backend = CommandBackend(settings.command, confine, timeout=settings.timeout_sec, env=env, places=places)
    else:
        key = settings.env_key or ""
        backend = ServerBackend(
            settings.base_url or "", key=env.get(key, ""), env_key=key, timeout=settings.timeout_sec, ca_file=ca_file
        )
    return ImageMaker(backend, models=settings.models, model=settings.model)
