"""What a command leaves running goes on until the container ends."""

import asyncio

from ferrule.containers import Container, LocalHost
from tests.processes import running, until
from tests.sandbox.test_death import SECONDS

SERVE = r"""
echo page > page; python3 -m http.server 8000 > /dev/null 2>&1 &
until (echo > /dev/tcp/127.0.0.1/8000) 2> /dev/null; do sleep 0.01; done
"""
FETCH = "exec 3<>/dev/tcp/127.0.0.1/8000; printf 'GET /page HTTP/1.0\\r\\n\\r\\n' >&3; tail -1 <&3"


async def test_a_server_answers_the_next_command(container: Container) -> None:
    left = await container.run(SERVE, timeout=30)
    assert (left.exit_code, left.notice) == (0, "Left running: python3.")
    assert (await container.run(FETCH, timeout=30)).stdout.text() == "page\n"


async def test_what_was_left_ends_with_the_container(host: LocalHost) -> None:
    container = await host.create()
    await container.run(f"setsid sleep {SECONDS[7]} > /dev/null 2>&1 & sleep {SECONDS[8]} > /dev/null 2>&1 &")
    assert running(SECONDS[7]) and running(SECONDS[8])
    await container.aclose()
    assert not running(SECONDS[7]) and not running(SECONDS[8])


async def test_a_command_that_is_killed_takes_all_along(container: Container) -> None:
    done = await container.run(f"setsid sleep {SECONDS[9]} & echo started; wait", timeout=1.0)
    assert done.timed_out and done.stdout.text() == "started\n"
    await until(lambda: not running(SECONDS[9]))


async def test_a_crowd_does_not_go_on(container: Container) -> None:
    done = await container.run("for i in $(seq 150); do sleep 100 > /dev/null 2>&1 & done", timeout=30)
    assert done.notice == "Ended with the command: sleep, sleep, sleep, sleep, sleep."


async def test_commands_side_by_side(container: Container) -> None:
    done = await asyncio.gather(*(container.run(f"echo {number}; sleep 0.05") for number in range(8)))
    assert sorted(one.stdout.text() for one in done) == sorted(f"{number}\n" for number in range(8))
