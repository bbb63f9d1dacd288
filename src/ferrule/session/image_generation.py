"""The images of a session: who makes them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ferrule.image_generation.access import ImageAccess
from ferrule.lookup import Places
from ferrule.protocol.permissions import ReadOnly, WorkspaceWrite
from ferrule.protocol.settings import Settings

if TYPE_CHECKING:
    from ferrule.image_generation.maker import ImageMaker


def image_access(settings: Settings, env: Mapping[str, str], places: Places) -> ImageAccess | None:
    """Return a session's way to images; None where the user has configured none."""
    table, policy = settings.image_generation, settings.sandbox_policy
    if table is None:
        return None

    def open_it() -> "ImageMaker":
        from ferrule.image_generation.opening import open_maker
        from ferrule.sandbox.alone import confined_to_a_folder

        return open_maker(
            table,
            confined_to_a_folder(settings.home, unconfined_accepted=settings.accept_no_sandbox),
            ca_file=policy.ca_file if isinstance(policy, ReadOnly | WorkspaceWrite) else None,
            env=env,
            places=places,
        )

    return ImageAccess(open_it, lambda: table.missing(env))
