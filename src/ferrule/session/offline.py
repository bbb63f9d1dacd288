"""A session that never talks to its model, for its tools alone."""

from collections.abc import Sequence

import msgspec

from ferrule.dispatch.front_end import FrontEnd
from ferrule.model.provider import open_model
from ferrule.model.wire import WireModel
from ferrule.protocol.settings import DEFAULT_MODEL, ProviderSettings, Settings
from ferrule.session.hooks import Hook
from ferrule.session.opening import open_session
from ferrule.session.session import Session
from ferrule.session.sources import ToolLike


async def open_offline(
    settings: Settings,
    front_end: FrontEnd | None = None,
    *,
    tools: Sequence[ToolLike] | None = None,
    hooks: Sequence[Hook] = (),
) -> tuple[Session, WireModel]:
    """Return the session, and the model that it would ask. Without a configured model it is the documented default."""
    model = open_model(settings.provider or ProviderSettings(name="openai"))
    name = settings.model.model or model.accepts.default_model or DEFAULT_MODEL
    settings = msgspec.structs.replace(
        settings, ephemeral=True, model=msgspec.structs.replace(settings.model, model=name)
    )
    return await open_session(settings, front_end, tools=tools, model=model, hooks=hooks), model
