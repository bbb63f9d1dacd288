"""`python -m ferrule.testing SCRIPT.json`: a scripted model server to try an agent against by hand."""

import argparse
import json
import sys
import threading
from pathlib import Path

from ferrule.testing.model import ScriptedModel
from ferrule.testing.request import Request
from ferrule.testing.script import Script
from ferrule.testing.steps import ScriptError


def main(arguments: list[str] | None = None) -> int:
    """Serve until interrupted. Return the exit code: 0, 1 if a request did not fit the script, 2 for a bad script."""
    parser = argparse.ArgumentParser(prog="python -m ferrule.testing", description=__doc__)
    parser.add_argument("script", type=Path, help="a script file; the format is in docs/testing.md")
    parser.add_argument("--port", type=int, default=0, help="default: a free one, printed at the start")
    parser.add_argument("--log", type=Path, help="append each answered request to this file, one JSON object a line")
    parser.add_argument("--lenient", action="store_true", help="accept histories that real servers refuse")
    options = parser.parse_args(arguments)
    try:
        script = Script.from_json(options.script)
    except ScriptError as error:
        print(error, file=sys.stderr)
        return 2
    model = ScriptedModel(
        script,
        strict=not options.lenient,
        port=options.port,
        on_finished=lambda request: _report(request, options.log),
    )
    try:
        model.start()
        print(f"scripted model at {model.base_url}", flush=True)
        threading.Event().wait()
    except OSError as error:
        print(f"port {options.port}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        model.close()
    for failure in model.failures:
        print(failure, file=sys.stderr)
    return 1 if model.failures else 0


def _report(request: Request, log: Path | None) -> None:
    answered = "no step" if request.step is None else f"step {request.step + 1}"
    print(f"{request.method} {request.path} {request.status} {answered}", flush=True)
    if log is None:
        return
    line = {
        "path": request.path,
        "status": request.status,
        "step": request.step,
        "aborted": request.aborted,
        "arrived_ns": request.arrived_ns,
        "finished_ns": request.finished_ns,
        "body": request.body,
    }
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
