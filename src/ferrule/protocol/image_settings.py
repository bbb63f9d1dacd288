"""The table `[image_generation]`: who makes images for models."""

from collections.abc import Mapping
from typing import Annotated

import msgspec


class ImageGenerationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to make images.

    `base_url` is any server with `/images/generations` and `/images/edits`, up to and with its `/v1`; `env_key` is the
    variable with its key. Or `command` is a program and its arguments. `models` maps names that are asked for to the
    backend's own; others are passed on. `model` is asked for where nobody names one; None: the backend chooses.
    `timeout_sec` limits one image: on a processor it can take minutes.
    """

    base_url: str | None = None
    env_key: str | None = None
    command: tuple[str, ...] = ()
    model: str | None = None
    models: dict[str, str] = {}
    timeout_sec: Annotated[float, msgspec.Meta(gt=0)] = 300.0

    def missing(self, env: Mapping[str, str]) -> str | None:
        """Return what is missing for an image, as the rest of a sentence."""
        if not self.base_url and not self.command:
            return NO_IMAGES
        if self.base_url and self.command:
            return "the settings image_generation.base_url and image_generation.command exclude each other: one must go"
        if self.env_key and not env.get(self.env_key):
            return f"the variable {self.env_key}, in which image_generation.env_key expects the key, has no value"
        return None


NO_IMAGES = (
    "the setting image_generation.base_url is missing: the address of a server with /images/generations, up to and "
    "with its /v1; or image_generation.command, a program"
)
