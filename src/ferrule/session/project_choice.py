"""Tools that a project has chosen: what does not exist here is passed over, so that no project ends each start."""

import msgspec

from ferrule.builtin import BUILTINS
from ferrule.model.profiles import Profiles
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.tools.catalogue import matching_names, registered_tools


def without_unknown(settings: Settings, profiles: Profiles) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings without what the project chose and nobody has, and a sentence for each of that."""
    warnings: list[str] = []
    profile, tools = settings.profile, settings.tools
    if "profile" in settings.project_chose and profile is not None and profile not in profiles.tools:
        warnings.append(f"{settings.project} chooses the tool profile {profile!r}, which does not exist; passed over")
        profile = None
    if "tools" in settings.project_chose and tools is not None:
        unknown = [name for name in tools if not _exists(name)]
        which = "which does not exist; passed over"
        warnings += [f"{settings.project} chooses the tool {name!r}, {which}" for name in unknown]
        tools = tuple(name for name in tools if name not in unknown) or None
    return msgspec.structs.replace(settings, profile=profile, tools=tools), tuple(warnings)


def _exists(name: str) -> bool:
    try:
        return bool(matching_names(name, BUILTINS) or matching_names(name, registered_tools()))
    except UsageError:  # no regular expression
        return False
