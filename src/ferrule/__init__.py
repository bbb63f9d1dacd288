"""A coding agent's tools as a Python library and command."""
