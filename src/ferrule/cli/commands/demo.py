"""`ferrule demo`: a scripted model solves a real task on the real path, without a key or a network."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ferrule.cli.demo_task import FILES, PROMPT, script
from ferrule.cli.exit_codes import DONE, FAILED
from ferrule.cli.options import Parser, working_directory
from ferrule.cli.running import run_interruptibly
from ferrule.config import ferrule_home
from ferrule.doors.headless.human import Human
from ferrule.doors.headless.running import run_turn
from ferrule.doors.headless.terminal import BOLD, DIM, Terminal
from ferrule.lookup import Places, locate
from ferrule.protocol.permissions import AskForApproval, SandboxMode, as_policy
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.sandbox.policy import command_places
from ferrule.testing import ScriptedModel

SANDBOX = SandboxMode.WORKSPACE_WRITE
"""The sandbox of commands. If the machine offers none, they still run in the scratch repository."""

MODEL = "scripted-model"

_NO_USER_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_AUTHOR = ("-c", "user.name=Ferrule demo", "-c", "user.email=demo@example.invalid")


def main(arguments: list[str]) -> int:
    """Run the demo. Return 0 if the task was solved."""
    parser = Parser("demo", "Watch a scripted model fix a bug in a scratch repository. Needs no key and no network.")
    parser.add_argument("--keep", action="store_true", help="leave the scratch repository behind")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="ferrule-demo-")).resolve()
    with ExitStack() as cleanup:
        if not options.keep:
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        return _play(folder, keep=options.keep)


def _play(folder: Path, *, keep: bool) -> int:
    out = Terminal.on(sys.stdout)
    repository = folder / "slugs"
    has_git = make_repository(repository)
    for line in _introduction(repository, has_git=has_git):
        out.line(line)
    out.line()
    out.line(f"{out.style('task', BOLD)}  {PROMPT}")
    out.line()
    with ScriptedModel(script(_python(), has_git=has_git), models=[MODEL]) as model:
        settings = Settings(
            cwd=str(repository),
            home=str(folder / "home"),
            model=ModelSettings(model=MODEL),
            provider=ProviderSettings(name="scripted", base_url=model.base_url, wire_api="responses"),
            approval_policy=AskForApproval.NEVER,
            sandbox_policy=as_policy(SANDBOX),
            ephemeral=True,
            accept_no_sandbox=True,
        )
        view = Human(out, settings)
        run_interruptibly(run_turn(settings, view, PROMPT))
        view.finish()
        try:
            model.check()
        except AssertionError as error:
            print(f"ferrule: the demo did not go as it should:\n{error}", file=sys.stderr)
            return FAILED
    out.line()
    out.line(f"The repository is kept in {repository}" if keep else out.style("(ferrule demo --keep keeps it)", DIM))
    return DONE


def _introduction(repository: Path, *, has_git: bool) -> list[str]:
    confined = "" if SANDBOX is not SandboxMode.DANGER_FULL_ACCESS else ", without a sandbox"
    return [
        "The model in this demo is scripted: a server on this machine plays prepared answers.",
        "The rest is real: HTTP, the shell, the patch, the test run. Nothing leaves this machine.",
        f"Commands run with -s {SANDBOX}{confined}, in this scratch {'repository' if has_git else 'folder'}:",
        f"  {repository}",
    ]


def make_repository(folder: Path) -> bool:
    """Write the task's files, and commit them if git is installed. Return whether it is."""
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    git = locate("git", os.environ.get("PATH"), _places()).path
    if git is None:
        return False
    for words in (["init", "-q"], ["add", "."], [*_AUTHOR, "commit", "-q", "-m", "Slugs for titles"]):
        subprocess.run([git, *words], cwd=folder, env=os.environ | _NO_USER_CONFIG, check=True, capture_output=True)
    return True


def _places() -> Places:
    """Return the places where commands of a session in the current folder could have written."""
    return command_places(as_policy(SANDBOX), working_directory(None), ferrule_home())


def _python() -> str:
    return "python3" if shutil.which("python3") else sys.executable
