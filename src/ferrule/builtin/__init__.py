"""The built-in tools, one folder each. This table is all that a session reads before the model's first answer."""

from ferrule.builtin.table import BUILTINS, Builtin

__all__ = ["BUILTINS", "Builtin"]
