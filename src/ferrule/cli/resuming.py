"""Go on with a stored session under the flags of a command."""

import argparse
import os
from collections.abc import Callable

from ferrule.cli.options import is_given, working_directory
from ferrule.config import ferrule_home
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.session.resuming import Given, resume_settings, settings_to_go_on
from ferrule.session.rollout import StoredSession


def given_by(options: argparse.Namespace) -> Given:
    """Return what the user gave anew for a stored session."""
    return Given(
        cwd=options.directory is not None,
        sandbox=is_given(options, "sandbox", "sandbox_mode") or options.container_image is not None,
        approval=is_given(options, "approval", "approval_policy"),
        provider=any(given is not None for given in (options.base_url, options.wire, options.api_key_env))
        or is_given(options, "", "model_provider"),
        tools=is_given(options, "", "tools"),
    )


def resumed(
    options: argparse.Namespace, session_id: str | None, settings_in: Callable[[str], Settings]
) -> tuple[Settings, StoredSession]:
    """Return the settings of the session's own directory, then its directory and rights, unless the user gave
    others. `settings_in` loads those of a directory."""
    given = given_by(options)
    if not given.sandbox and (options.add_dir or is_given(options, "", "sandbox_workspace_write")):
        raise UsageError("`resume` restores the session's sandbox: to change its roots, give its mode too, with -s")
    here = working_directory(options.directory) if given.cwd or os.path.exists(os.curdir) else "/"
    begun_in = here if options.last and not options.all else None
    there, stored = resume_settings(Settings(cwd=here, home=ferrule_home()), session_id, given, begun_in=begun_in)
    return settings_to_go_on(settings_in(there.cwd), stored, given), stored
