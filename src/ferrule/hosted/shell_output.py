"""The output of a shell call, whoever ran it, as the model reads it."""

from ferrule.protocol.json_text import JsonObject


def told(entry: JsonObject) -> str:
    """Return what one command said, and how it ended. `entry` has `stdout`, `stderr` and `outcome`."""
    outcome = entry.get("outcome")
    ended = outcome if isinstance(outcome, dict) else {}
    end = "timed out" if ended.get("type") == "timeout" else f"exit code {ended.get('exit_code', 0)}"
    said = "".join(str(entry.get(stream) or "") for stream in ("stdout", "stderr"))
    return f"{said.rstrip()}\n[{end}]".lstrip("\n")
