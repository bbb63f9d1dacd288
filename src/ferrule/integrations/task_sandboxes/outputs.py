"""Run a task's command: the last bytes of its output are kept, as their readers want the end of a long one."""

import msgspec

from ferrule.integrations.task_sandboxes.wanted import Command
from ferrule.process.capture import Captured, HeadTail
from ferrule.process.launcher import Launcher, Limits, Pipes
from ferrule.process.run import Completed, run

LIMITS = Limits()


async def run_command(launcher: Launcher, command: Command, env: dict[str, str], cwd: str) -> Completed:
    """Run it by a launcher. `output` of the result is that of stdout where the streams are merged, else empty."""
    done = await run(
        launcher,
        command.argv,
        env=env,
        cwd=cwd,
        stdin=command.stdin,
        timeout_ms=None if command.timeout is None else int(command.timeout * 1000),
        stdio=Pipes(merge=command.merge),
        limits=LIMITS,
        capture_bytes=2 * command.output_bytes,  # half of it from the end
        captured=HeadTail(2 * command.output_bytes if command.merge else 0),
    )
    stdout, stderr = (_end(output, command.output_bytes) for output in (done.stdout, done.stderr))
    return msgspec.structs.replace(
        done, stdout=stdout, stderr=stderr, output=stdout if command.merge else Captured(b"")
    )


def _end(output: Captured, most: int) -> Captured:
    """Return the last bytes of what was captured."""
    kept = output.tail if output.omitted else output.head + output.tail
    return Captured(kept[-most:] if most else b"")
