"""Make the pictures of docs/terminal.md: the demo's task, played by a scripted model on the real screen."""

import asyncio
import re
import shutil
import tempfile
from pathlib import Path

from ferrule.cli.commands.demo import make_repository
from ferrule.cli.demo_task import PROMPT, script
from ferrule.doors.terminal.app import TerminalApp
from ferrule.protocol.permissions import AskForApproval, WorkspaceWrite
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.session.talk import Opening
from ferrule.testing import ScriptedModel, function_call

PICTURES = Path(__file__).parents[2] / "docs" / "terminal"
SIZE = (92, 34)
SECONDS = 60
PUSH = function_call(
    "shell_command",
    {
        "command": "git push --set-upstream origin fix-slugs",
        "sandbox_permissions": "require_escalated",
        "justification": "The fix is tested; pushing it needs the network and your key.",
        "prefix_rule": ["git", "push"],
    },
)


async def take(folder: Path) -> None:
    """Play the task and take the pictures."""
    repository = folder / "slugs"
    has_git = make_repository(repository)
    with ScriptedModel([*script("python3", has_git=has_git), PUSH, "Well then."], models=["scripted-model"]) as model:
        settings = Settings(
            cwd=str(repository),
            home=str(folder / "home"),
            model=ModelSettings(model="scripted-model"),
            provider=ProviderSettings(name="scripted", base_url=model.base_url, wire_api="responses"),
            approval_policy=AskForApproval.ON_REQUEST,
            sandbox_policy=WorkspaceWrite(),
            ephemeral=True,
        )
        app = TerminalApp(lambda: Opening(settings=settings))
        try:
            async with asyncio.timeout(SECONDS), app.run_test(size=SIZE) as pilot:
                app.composer.insert(PROMPT)
                await pilot.press("enter")
                while app.desk is None or not app.desk.last_answer or app.desk.talk.is_working:
                    await pilot.pause(0.1)
                await pilot.pause(1)
                save(app, "conversation")
                app.composer.insert("Push it on a branch of its own.")
                await pilot.press("enter")
                while app.panel is None:
                    await pilot.pause(0.1)
                await pilot.pause(1)
                save(app, "approval")
        finally:
            await app.close()


def save(app: TerminalApp, name: str) -> None:
    """Save the screen, without the fonts that the picture would load from elsewhere."""
    picture = app.export_screenshot(title="ferrule")
    (PICTURES / f"{name}.svg").write_text(re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL))


def main() -> None:
    """Make the pictures."""
    PICTURES.mkdir(exist_ok=True)
    folder = Path(tempfile.gettempdir()) / "ferrule-pictures"
    folder.mkdir()
    try:
        asyncio.run(take(folder.resolve()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
