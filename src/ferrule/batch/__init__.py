"""Thousands of tasks, each with a workspace and a session of its own, and one result. See docs/batch.md."""

from ferrule.batch.api import run

__all__ = ["run"]
