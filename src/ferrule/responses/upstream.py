"""The model server that answers, as a response needs it."""

import os
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from ferrule.model.profiles import Profiles
from ferrule.model.provider import list_models, open_model
from ferrule.model.stream import Model
from ferrule.protocol.items import Origin
from ferrule.protocol.settings import ProviderSettings

KEPT_CONVERSATIONS = 1_024
"""Conversations whose requests are remembered as last sent: those of many clients at once."""


class Upstream(msgspec.Struct, frozen=True):
    """A model behind a wire. `default_model` is used where a request names none; `knows` tells which tool types the
    server takes as they are; `list_models` asks it for the names of its models; `maker` tells the origin of what a
    model says."""

    model: Model
    list_models: Callable[[], Awaitable[tuple[str, ...]]]
    default_model: str | None = None
    knows: Callable[[str], bool] = lambda kind: False
    maker: Callable[[str], Origin | None] = lambda model: None


def open_upstream(
    provider: ProviderSettings | None,
    profiles: Profiles,
    *,
    default_model: str | None = None,
    env: Mapping[str, str] = os.environ,
    api_key: str | None = None,
) -> Upstream:
    """Return the upstream that the settings describe; nothing is connected yet. Raises `UsageError`.

    Images go to every model: the client that sends them knows it better than its profile. A server that refuses them is
    asked again without.
    """
    seeing = tuple((name, msgspec.structs.replace(model, image_input=True)) for name, model in profiles.models)
    profiles = msgspec.structs.replace(profiles, models=seeing)
    model = open_model(provider, profiles=profiles, env=env, api_key=api_key, kept_sessions=KEPT_CONVERSATIONS)
    return Upstream(model, lambda: list_models(model), default_model, model.knows_tool, model.maker)
