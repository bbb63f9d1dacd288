"""The built-in tools, one module each. The table is all that a session reads before the model's first answer."""

from ferrule.builtin.table import BUILTINS, Builtin

__all__ = ["BUILTINS", "Builtin"]
