"""From a stored session to the settings to go on with."""

from pathlib import Path

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.session.lines import TurnContext
from ferrule.session.rollout import StoredSession, is_own, read_rollout


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """Marks the settings that the user gave anew for a resumed session; the rest stays as it was."""

    cwd: bool = False
    sandbox: bool = False
    approval: bool = False
    provider: bool = False
    tools: bool = False


def resume_settings(
    settings: Settings, session_id: str | None, given: Given, *, begun_in: str | None = None
) -> tuple[Settings, StoredSession]:
    """Return the stored session and the settings to go on with: its directory, policies, server, model and tools,
    unless given. `session_id` may be the beginning of one, a name, or the path of a session file, of which a copy goes
    on; None: the newest, in the directory `begun_in` if one is given.

    A file that lies elsewhere decides none of this: it could send a key to another server. Raises `UsageError` when the
    directory is gone: nothing is opened then.
    """
    from ferrule.session.index import locate

    stored = read_rollout(locate(settings.home, session_id, begun_in))
    return settings_to_go_on(settings, stored, given), stored


def settings_to_go_on(settings: Settings, stored: StoredSession, given: Given) -> Settings:
    """Return the settings to go on with a stored session that was found; see `resume_settings`."""
    context = stored.context if is_own(stored.path, settings.home) else None
    cwd = settings.cwd if given.cwd else (context.cwd if context else "") or settings.cwd
    if not Path(cwd).is_dir():
        raise UsageError(f"the session's directory {cwd} no longer exists; choose another one with -C")
    settings = msgspec.structs.replace(settings, cwd=cwd)
    return settings if context is None else _as_before(settings, context, given)


def _as_before(settings: Settings, context: TurnContext, given: Given) -> Settings:
    model, provider = settings.model, settings.provider
    if model.model is None:
        model = msgspec.structs.replace(model, model=context.model or None)
    if not given.provider and context.provider is not None and not context.provider.is_that_of(provider):
        provider = context.provider.settings()
    return msgspec.structs.replace(
        settings,
        sandbox_policy=settings.sandbox_policy if given.sandbox else context.sandbox_policy,
        approval_policy=settings.approval_policy if given.approval else context.approval_policy,
        model=model,
        provider=provider,
        tools=settings.tools if given.tools else context.tools,
    )
