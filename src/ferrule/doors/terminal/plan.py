"""The plan, which stays in sight."""

from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from ferrule.doors.terminal.strips import BOLD, DIM, GREEN, PLAIN, YELLOW, row
from ferrule.rendering.safe import plain
from ferrule.rendering.width import cut

if TYPE_CHECKING:
    from ferrule.protocol.events import PlanStep

MOST_STEPS = 8
"""Steps in sight; of a longer plan those around the one that is worked on."""
MARKS = {"completed": ("✓ ", GREEN), "in_progress": ("▸ ", YELLOW)}


class PlanView(Widget):
    """A checklist; nothing while there is no plan, or all of it is done."""

    DEFAULT_CSS = """
    PlanView { height: auto; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._plan: tuple[PlanStep, ...] = ()
        self._rows: list[Strip] = []

    def show(self, plan: "tuple[PlanStep, ...]") -> None:
        """Show this plan."""
        self._plan = plan
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Take a row a step, a third of the screen at most."""
        self._rows = plan_rows(self._plan, width, min(MOST_STEPS, viewport.height // 3))
        return len(self._rows)

    def render_line(self, y: int) -> Strip:
        """Return a row."""
        strip = self._rows[y] if y < len(self._rows) else Strip([])
        return strip.adjust_cell_length(self.size.width).apply_style(self.rich_style)


def plan_rows(plan: "tuple[PlanStep, ...]", width: int, most: int) -> list[Strip]:
    """Return the rows of a plan: its heading with what is done, and at most `most` steps around the current one."""
    done = sum(step.status == "completed" for step in plan)
    if done == len(plan) or most < 2:
        return []
    current = next((place for place, step in enumerate(plan) if step.status != "completed"), 0)
    first = max(0, min(current - 1, len(plan) - (most - 1)))
    head = row(("Plan ", BOLD), (f"{done} of {len(plan)}", DIM))
    return [head, *(_step_row(step, width) for step in plan[first : first + most - 1])]


def _step_row(step: "PlanStep", width: int) -> Strip:
    mark = MARKS.get(step.status, ("· ", DIM))
    style = DIM if step.status == "completed" else PLAIN
    return row(mark, (cut(plain(step.step), width - 2), style))
