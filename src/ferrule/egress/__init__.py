"""The way out: who may be reached from a container, by a tool, or by a command, and how."""
