"""Tools that cells of the Python kernel call: from any thread, answered each, and none after the cell."""

import asyncio
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.process.kernel import INTERRUPTED, MAX_TOOLS, CellResult, Kernel, KernelDied
from ferrule.protocol.errors import Fatal, RespondToModel
from ferrule.protocol.json_text import JsonValue
from tests.process.cells import LIMIT, URL, started, told
from tests.processes import until

pytestmark = pytest.mark.usefixtures("patience")


class Lent:
    """The tools of a host: `echo` says what it got, `wait` ends when it is let, and others fail."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, bool]] = []
        self.waiting = 0
        self.most = 0
        self.go = asyncio.Event()
        self.give: JsonValue = None

    async def call(self, name: str, arguments: str, raw: bool) -> JsonValue:
        self.calls.append((name, arguments, raw))
        match name:
            case "echo":
                return arguments
            case "look":
                return [{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": URL}]
            case "wait":
                self.waiting += 1
                self.most = max(self.most, self.waiting)
                try:
                    await self.go.wait()
                finally:
                    self.waiting -= 1
                return "waited"
            case "give":
                return self.give
            case "fail":
                raise ValueError("of our own")
            case "break":
                raise Fatal("broken")
        raise RespondToModel(f"unsupported call: {name}")


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    kernel = await started(tmp_path)
    yield kernel
    await kernel.kill()


@pytest.fixture
def lent() -> Lent:
    return Lent()


async def run(kernel: Kernel, lent: Lent, cell: str, limit: int = LIMIT) -> CellResult:
    return await kernel.run(textwrap.dedent(cell), limit, lent.call)


async def said(kernel: Kernel, lent: Lent, cell: str) -> str:
    return told(await run(kernel, lent, cell))


async def test_what_a_call_gives(kernel: Kernel, lent: Lent) -> None:
    assert await said(kernel, lent, "call_tool('echo', {'a': ['é', 1]})") == repr('{"a": ["\\u00e9", 1]}')
    assert await said(kernel, lent, "call_tool('echo', 'raw \\ud800')") == "'raw ?'"
    assert await said(kernel, lent, "call_tool('echo')") == "'{}'"
    assert lent.calls == [("echo", '{"a": ["\\u00e9", 1]}', False), ("echo", "raw ?", True), ("echo", "{}", False)]
    failed = await said(kernel, lent, "x = 1\ncall_tool('nope')")
    place = "  File \"<cell 4>\", line 2, in <module>\n    call_tool('nope')\n"
    assert failed == f"Traceback (most recent call last):\n{place}ToolError: unsupported call: nope"
    caught = "try: call_tool('no')\nexcept ToolError as error: print(error)"
    assert await said(kernel, lent, caught) == "unsupported call: no"
    assert "TypeError" in await said(kernel, lent, "call_tool('echo', {'a': object()})")
    assert "ValueError: a call of a tool takes up to" in await said(kernel, lent, "call_tool('echo', 'x' * 9_000_000)")
    assert len(lent.calls) == 5
    big = "len(call_tool('echo', 'é' * 300_000))"
    assert await said(kernel, lent, big) == "300000"


async def test_every_call_is_answered(kernel: Kernel, lent: Lent, caplog: pytest.LogCaptureFixture) -> None:
    lent.give = "half of a pair: \ud800"
    assert await said(kernel, lent, "call_tool('give')") == "'half of a pair: \\ud800'"
    assert (await said(kernel, lent, "call_tool('fail')")).endswith("\nToolError: fail failed: ValueError")
    assert "of our own" in caplog.text


async def test_images_are_shown(kernel: Kernel, lent: Lent) -> None:
    result = await run(kernel, lent, "seen = call_tool('look'); display(*seen); seen[1].data[:4]")
    assert told(result) == "'seen'\n<image/png, 70 bytes>\nb'\\x89PNG'" and result.images == (URL,)


async def test_a_cell_without_tools_has_none(kernel: Kernel) -> None:
    assert "NameError: name 'call_tool' is not defined" in told(await kernel.run("call_tool('echo')", LIMIT))


async def test_several_at_a_time_in_threads(kernel: Kernel, lent: Lent) -> None:
    cell = """
        import asyncio, concurrent.futures
        def one(number): return call_tool("wait", {"n": number})
        with concurrent.futures.ThreadPoolExecutor(8) as pool: first = list(pool.map(one, range(8)))
        second = await asyncio.gather(*(asyncio.to_thread(call_tool, "echo", str(n)) for n in range(20)))
        first == ["waited"] * 8, second == [str(n) for n in range(20)]
    """
    running = asyncio.create_task(run(kernel, lent, cell))
    await until(lambda: lent.waiting == 8)
    lent.go.set()
    assert told(await running) == "(True, True)"
    assert await said(kernel, lent, "import threading; threading.active_count() <= 21, call_tool('echo', 'x')") == (
        "(True, 'x')"
    )


async def test_the_cell_waits_for_its_threads_and_later_calls_are_refused(kernel: Kernel, lent: Lent) -> None:
    cell = """
        import threading, time
        results = []
        def work():
            results.append(call_tool("wait"))
            over.wait()
            try: call_tool("echo")
            except RuntimeError as error: results.append(str(error))
            done.set()
        over, done = threading.Event(), threading.Event()
        threading.Thread(target=work).start()
        "said"
    """
    running = asyncio.create_task(run(kernel, lent, cell))
    await until(lambda: lent.waiting == 1)
    assert not running.done()
    lent.go.set()
    assert told(await running) == "'said'"
    # Between two cells, from a thread; and with the words of an earlier cell.
    await kernel.run("over.set()\ndone.wait()\nresults", LIMIT)
    assert await said(kernel, lent, "results") == "['waited', 'call_tool works only while a cell runs']"
    assert lent.calls == [("wait", "{}", False)]


async def test_a_call_after_the_result_is_not_run(kernel: Kernel, lent: Lent) -> None:
    forged = """
        import json, os
        cell = call_tool.__closure__[0].cell_contents._cell
        result = {"type": "exec_result", "id": cell, "ok": True, "output": "", "images": []}
        call = {"type": "run_tool", "id": "x", "exec_id": cell, "tool_name": "echo", "arguments": "{}"}
        os.write(4, f"{json.dumps(result)}\\n{json.dumps(call)}\\n".encode())
    """
    assert (await run(kernel, lent, forged)).ok
    stale = forged.replace("call_tool.__closure__[0].cell_contents._cell", repr("0" * 32))
    assert (await run(kernel, lent, stale)).ok
    assert await said(kernel, lent, "call_tool('echo', 'still here')") == "'still here'"
    assert lent.calls == [("echo", "still here", True)]


async def test_an_interrupt_ends_the_tools_and_keeps_the_kernel(kernel: Kernel, lent: Lent) -> None:
    cell = """
        import threading
        ends = []
        def work():
            for _ in range(3):
                try: call_tool("wait")
                except ToolError as error: ends.append(str(error))
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads: thread.start()
        try:
            call_tool("wait")
        finally:
            for thread in threads: thread.join()
            try: call_tool("echo")
            except ToolError as error: ends.append(str(error))
    """
    running = asyncio.create_task(run(kernel, lent, cell))
    await until(lambda: lent.waiting == 4)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert lent.waiting == 0 and not kernel.lost
    assert await said(kernel, lent, "ends") == repr([INTERRUPTED] * 10)
    assert [name for name, *_ in lent.calls] == ["wait"] * 4


async def test_time_stands_still_only_while_a_tool_runs(kernel: Kernel, lent: Lent) -> None:
    running = asyncio.create_task(run(kernel, lent, "call_tool('wait')", 150))
    await until(lambda: lent.waiting == 1)
    await asyncio.sleep(0.3)
    lent.go.set()
    assert told(await running) == "'waited'"
    result = await run(kernel, lent, "call_tool('echo')\nwhile True: pass", 200)
    assert result.interrupted and "KeyboardInterrupt" in (result.error or "")
    caught = "import time\ntry: time.sleep(60)\nfinally: call_tool('echo', 'too late')"
    assert INTERRUPTED in ((await run(kernel, lent, caught, 200)).error or "")


async def test_a_kernel_that_dies_ends_its_tools(kernel: Kernel, lent: Lent) -> None:
    cell = "import os, threading\nthreading.Timer(0.05, os._exit, [3]).start()\ncall_tool('wait')"
    with pytest.raises(KernelDied, match="exited with code 3"):
        await run(kernel, lent, cell)
    assert lent.waiting == 0 and len(lent.calls) == 1


async def test_a_broken_host_ends_the_kernel(kernel: Kernel, lent: Lent) -> None:
    with pytest.raises(Fatal, match="broken"):
        await run(kernel, lent, "call_tool('break')")
    assert kernel.lost


async def test_a_forked_child_calls_nothing(kernel: Kernel, lent: Lent) -> None:
    cell = """
        import os
        call_tool("echo")
        if not os.fork():
            try: call_tool("echo")
            except RuntimeError as error: print(error, flush=True)
            os._exit(0)
        os.wait()[1]
    """
    refused = "call_tool works in the kernel's own process only, not in a fork of it"
    assert await said(kernel, lent, cell) == f"{refused}\n0"
    pool = (
        "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(1) as p: p.apply(call_tool, ('echo',))"
    )
    assert (await said(kernel, lent, pool)).endswith(f"\nRuntimeError: {refused}")
    assert len(lent.calls) == 1


async def test_a_flood_is_bounded(kernel: Kernel, lent: Lent) -> None:
    flood = f"""
        import json, os
        cell = call_tool.__closure__[0].cell_contents._cell
        call = {{"type": "run_tool", "id": "x", "exec_id": cell, "tool_name": "wait", "arguments": "{{}}"}}
        for _ in range({MAX_TOOLS + 50}): os.write(4, f"{{json.dumps(call)}}\\n".encode())
        call_tool("echo")
    """
    result = await run(kernel, lent, flood)
    assert "ToolError: not run: a cell waits for at most 256 tools at a time" in (result.error or "")
    assert lent.most == MAX_TOOLS and lent.waiting == 0
