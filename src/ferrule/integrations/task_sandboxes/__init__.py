"""Sandboxes for the tasks of an evaluation, whatever its framework: commands, as this or that user, and files.

Each is a container where the machine has them, else a folder in which commands are confined on the machine itself.
"""

from ferrule.integrations.task_sandboxes.owner import Sandboxes, clean_up
from ferrule.integrations.task_sandboxes.wanted import (
    Command,
    Level,
    Memory,
    Processors,
    TaskSandbox,
    TooLarge,
    Wanted,
)

__all__ = ["Command", "Level", "Memory", "Processors", "Sandboxes", "TaskSandbox", "TooLarge", "Wanted", "clean_up"]
