"""The kernel through the tool, as a model uses it."""

import asyncio
import base64
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ferrule.builtin.js_repl.node import needed_node
from ferrule.builtin.js_repl.repl import Repl
from ferrule.lookup import NOWHERE
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import CustomToolCall, CustomToolCallOutput
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.effects import CommandEffect
from tests.builtin.conftest import Benches
from tests.builtin.js import JS, needs_node
from tests.builtin.workbench import Bench, unaffected
from tests.processes import alive, children_of, gained, held, until

pytestmark = needs_node

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def js(benches: Benches) -> Bench:
    return benches(*JS, "shell_command", "apply_patch", "update_plan")


async def run(bench: Bench, *cells: str, **arguments: object) -> str:
    """What the last of the cells answers."""
    text = ""
    for cell in cells:
        text = await bench.call("js_repl", code=cell, **arguments)
    return text.removesuffix("\n")


# All in one kernel: names differ, and those that shadow what others need come last.
KEPT = [
    ("let", "let l = 1", "l += 1; l", "2"),
    ("const", "const k = [1]", "k.push(2); k.length", "2"),
    ("var", "var v = 1", "v + 1", "2"),
    ("function", "function f(x) { return x + 1 }", "f(1)", "2"),
    ("async function", "async function later() { return 2 }", "await later()", "2"),
    ("generator", "function* g() { yield 1; yield 2 }", "[...g()].at(-1)", "2"),
    ("class", "class C { #p = 2; get p() { return this.#p } static s = 1 }", "new C().p", "2"),
    ("arrow", "const twice = x => x * 2", "twice(1)", "2"),
    ("object pattern", "const {a, b: {c}, ...rest} = {a: 1, b: {c: 2}, d: 3}", "a + c + rest.d", "6"),
    ("array pattern", "let [g1, , g2 = 5, ...more] = [1, 2, undefined, 4]", "`${g1} ${g2} ${more}`", "1 5 4"),
    ("await", "const w = await Promise.resolve(2)", "w", "2"),
    ("for await", "let n = 0; for await (const x of [1, Promise.resolve(1)]) n += x", "n", "2"),
    ("default import", 'import path from "node:path"', 'path.join("a", "b")', "a/b"),
    ("named imports", 'import { join as j, "sep" as s } from "node:path";', 'j("a", "b") + s', "a/b/"),
    ("namespace import", "import * as p from 'node:path'", "p.sep", "/"),
    ("mixed import", "import d, * as p from 'node:path'", "d.sep + p.sep", "//"),
    ("import over lines", "import {\n  join, // a comment\n  sep,\n} from 'node:path'\nlet il = 2", "il + sep", "2/"),
    ("import for effects", "import 'node:path'; let ie = 2", "ie", "2"),
    ("dynamic import", "const di = await import('node:path')", "di.sep", "/"),
    ("import in a function", "const load = async () => (await import('node:path')).sep", "await load()", "/"),
    ("require", "const rq = require('path')", "rq.sep", "/"),
    ("export", "export const e = 2; export function given() { return e }", "given()", "2"),
    ("built-in module named as a global", "const crypto = require('crypto')", "typeof crypto.createHash", "function"),
    ("labels", "let n = 0; out: for (;;) { for (;;) { n++; if (n < 2) continue out; break out } }", "n", "2"),
    ("comments", "let m /* import x from 'y' */ = 2 // import z from 'q'", "m", "2"),
    ("regular expressions", "const r = /import\\s+[/'\"`]x from/g, q = 8 / 2 / 2", "r.source.length + q", "23"),
    ("templates", "const t = `\nimport x from 'y'\n${`in ${1 + 1}`}`", "t.split('\\n').at(-1)", "in 2"),
    ("strict code", "'use strict'; let st = 2", "st", "2"),
    ("sloppy code", "z = 2; with ({y: 1}) { z += y - 1 }", "z", "2"),
    ("symbols and accessors", "const sy = Symbol('s'); const o = {[sy]: 2, get x() { return this[sy] }}", "o.x", "2"),
    ("bigint", "let big = 2n ** 64n", "big", "18446744073709551616n"),
    ("using what failed", "const u = 2; missing.x", "u", "2"),
    ("shadowed globals", "const process = 2, JSON = 3, Buffer = 4, Promise = 5", "process", "2"),
]


async def test_bindings_of_every_kind_are_kept(js: Bench) -> None:
    for kind, first, second, expected in KEPT:
        assert await run(js, first, second) == expected, kind


async def test_names_may_be_declared_again(js: Bench) -> None:
    again = "const a = 1; let b = 2; class C {}; function f() {}; var v = 3; import fs from 'node:fs'"
    assert await run(js, again, again, "const a = 5; let b = a; b + v") == "8"
    await run(js, "const once = await Promise.reject(new Error('no'))")
    assert await run(js, "const once = 4; once") == "4"
    clash = await run(js, "let v = 1")
    assert clash.startswith("SyntaxError: Identifier 'v' has already been declared\n") and "another name" in clash


async def test_what_comes_back(js: Bench) -> None:
    assert await run(js, "console.log('a'); console.error('b', {c: 1}); process.stdout.write('d'); 'e'") == (
        "a\nb { c: 1 }\nd\ne"
    )
    assert await run(js, "let x = 1") == await run(js, "undefined") == await run(js, "5; let y = 1") == "(no output)"
    assert await run(js, "null") == "null"
    assert await run(js, "for (let i = 0; i < 3; i++) i") == "(no output)"
    assert await run(js, "[NaN, -0]") == "[ NaN, -0 ]"
    assert await run(js, "-0") == "-0"


async def test_errors_show_the_place_in_the_cell(js: Bench) -> None:
    output = await js.output("js_repl", code="function f() { null.x }\n\nconsole.log('before')\nf()")
    assert output.success is False
    assert output.text == (
        "before\nTypeError: Cannot read properties of null (reading 'x')\n    at f (cell1.js:1:21)\n    at cell1.js:4:1"
    )
    assert await run(js, "let q = 1;\nfoo bar") == "SyntaxError: Unexpected identifier 'bar'\n    at line 2: foo bar"
    assert "no export named 'nope'" in await run(js, "import {nope} from 'node:fs'")
    assert "Cannot find package 'not-there'" in await run(js, "import x from 'not-there'")
    assert await run(js, "throw 'text'") == "Uncaught text"
    missing = await run(js, "require('fs').readFileSync('/nope')")
    assert missing.startswith("Error: ENOENT") and "at cell6.js:1:15 {\n  errno: -2," in missing


async def test_modules_are_found_from_the_working_directory(js: Bench, tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "shout"
    package.mkdir(parents=True)
    (package / "index.js").write_text("module.exports = text => text.toUpperCase()")
    (tmp_path / "mod.mjs").write_text("export default 3; export const four = 4")
    (tmp_path / "data.json").write_text('{"five": 5}')
    assert await run(js, "import shout from 'shout'; shout('a')") == "A"
    assert await run(js, "require('shout')('b')") == "B"
    assert await run(js, "import three, {four} from './mod.mjs'; three + four") == "7"
    assert await run(js, "import data from './data.json' with {type: 'json'}; data.five") == "5"
    assert await run(js, "import.meta.dirname") == str(tmp_path)


SURVIVED = [
    ("Promise.reject(new Error('lost')); 1", "Unhandled rejection: Error: lost"),
    ("setTimeout(() => { throw new Error('late') }); await new Promise(r => setTimeout(r, 20))", "Error: late"),
    ("new (require('events'))().emit('error', new Error('nobody listens'))", "nobody listens"),
    ("process.exit(3); console.log('not reached')", "process.exit(3) was called"),
    ("setTimeout(() => process.exit(4)); await new Promise(r => setTimeout(r, 20))", "process.exit(4) was called"),
    ("process.abort()", "process.abort() was called"),
]


async def test_the_kernel_survives(js: Bench) -> None:
    await run(js, "let kept = 7")
    for cell, told in SURVIVED:
        text = await run(js, cell)
        assert told in text and "not reached" not in text, cell
        assert await run(js, "kept") == "7", cell


async def test_a_timeout_restarts_the_kernel_once_and_says_so(js: Bench) -> None:
    await run(js, "let kept = 7")
    for cell in ("while (true);", "await new Promise(() => {})"):
        output = await js.output("js_repl", code=f"// codex-js-repl: timeout_ms=200\n{cell}")
        assert output.success is False
        assert output.text.startswith("js_repl execution timed out; kernel reset, rerun your request")
    assert await run(js, "typeof kept") == "undefined"
    assert await run(js, "await new Promise(() => {})", timeout_ms=100) != ""
    assert (await js.output("js_repl", code="1", timeout_ms=0)).success is False


async def test_a_crash_restarts_the_kernel_and_says_so(js: Bench) -> None:
    died = await run(
        js, "process.stderr; require('fs').writeSync(2, 'last words'); process.kill(process.pid, 'SIGKILL')"
    )
    assert died.startswith("js_repl kernel exited unexpectedly")
    assert '"kernel_status":"was ended by signal 9"' in died and "last words" in died
    assert await run(js, "let kept = 1; typeof kept") == "number"
    kernel = js.state.shared.get(Repl)._kernel
    assert kernel is not None
    await run(js, "setTimeout(() => process.kill(process.pid, 'SIGKILL')); 1")
    await until(lambda: kernel.death is not None)
    assert await run(js, "typeof kept") == (
        "A new kernel was started, because the last one had ended by itself; earlier bindings are gone.\nundefined"
    )
    assert await run(js, "typeof kept") == "undefined"


async def test_reset(js: Bench) -> None:
    assert await js.call("js_repl_reset") == "js_repl kernel reset"
    assert await run(js, "let kept = 1") == "(no output)"
    assert await js.call("js_repl_reset") == "js_repl kernel reset"
    assert await run(js, "typeof kept") == "undefined"


async def test_output_is_capped_at_both_ends(benches: Benches) -> None:
    js = benches(*JS, budget=OutputBudget(100))
    text = await run(js, "for (let i = 0; i < 120000; i++) console.log('line ' + i); 'the end'")
    assert len(text) < 600
    assert text.startswith("line 0\n") and text.endswith("the end") and "truncated" in text
    huge = await run(js, "'x'.repeat(10e6)")
    assert len(huge) < 600


async def test_images_come_back_and_are_capped(js: Bench, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    output = await js.output("js_repl", code="ferrule.emitImage(require('fs').readFileSync('dot.png')); 'seen'")
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert output.body == (InputText("seen"), InputImage(image_url=url))
    assert await run(js, "for (;;) ferrule.emitImage(require('fs').readFileSync('dot.png'))") != ""
    output = await js.output(
        "js_repl", code="for (;;) ferrule.emitImage({bytes: Buffer.alloc(3e6), mimeType: 'image/png'})"
    )
    assert isinstance(output.body, tuple)
    assert len(output.body) == 3 and "RangeError: the images of a cell may have 8388608 bytes in all" in output.text
    assert "TypeError" in await run(js, "ferrule.emitImage(Buffer.from('text'))")
    assert "TypeError" in await run(js, "ferrule.emitImage('https://example.org/a.png')")


async def test_tools_are_called_from_inside(js: Bench, tmp_path: Path) -> None:
    assert (await run(js, "await ferrule.tool('shell_command', {command: 'echo hi'})")).endswith("Output:\nhi")
    assert await run(js, "await ferrule.tool('update_plan', {plan: []})") == "Plan updated"
    patch = "*** Begin Patch\n*** Add File: new.txt\n+text\n*** End Patch"
    assert "A new.txt" in await run(js, f"await ferrule.tool('apply_patch', {{input: {patch!r}}})")
    assert (tmp_path / "new.txt").read_text() == "text\n"
    both = "(await Promise.all([1, 2].map(n => ferrule.tool('shell_command', {command: `echo n${n}`})))).length"
    assert await run(js, both) == "2"
    caught = (
        "try { await ferrule.tool('update_plan', {}) } catch (e) { e instanceof Error && e.message.includes('plan') }"
    )
    assert await run(js, caught) == "(no output)"
    assert await run(js, f"let ok; {caught.replace('e instanceof', 'ok = e instanceof')}; ok") == "true"
    assert "unsupported call: nope" in await run(js, "await ferrule.tool('nope')")
    for name in JS:
        assert "js_repl cannot invoke itself" in await run(js, f"await ferrule.tool('{name}', {{}})")


async def test_freeform_text_reaches_a_freeform_tool(benches: Benches, tmp_path: Path) -> None:
    profile = ModelProfile(name="test", apply_patch="freeform")
    state = msgspec.structs.replace(unaffected(tmp_path), profile=profile)
    js = benches(*JS, "apply_patch", state=state)
    patch = "*** Begin Patch\\n*** Add File: new.txt\\n+text\\n*** End Patch"
    answer = await js.answer(
        CustomToolCall(call_id="c", name="js_repl", input=f"await ferrule.tool('apply_patch', '{patch}')")
    )
    assert isinstance(answer.view, CustomToolCallOutput) and "A new.txt" in str(answer.view.output)


async def test_the_answer_waits_for_tools_that_nobody_awaited(js: Bench, tmp_path: Path) -> None:
    assert await run(js, "ferrule.tool('shell_command', {command: 'sleep 0.2; echo x > made'}); 'done'") == "done"
    assert (tmp_path / "made").exists()


async def test_time_stands_still_while_a_tool_runs(js: Bench) -> None:
    said = ""
    for limit in (400, 2_000, 6_000):  # more for what surrounds the tool, where the machine is too busy
        slow = f"await ferrule.tool('shell_command', {{command: 'sleep {2 * limit / 1000}'}}); "
        said = await run(js, f"{slow}'done'", timeout_ms=limit)
        if said == "done":
            break
    assert said == "done"
    assert (await run(js, f"{slow}while (true);", timeout_ms=limit)).startswith("js_repl execution timed out")


async def test_reset_is_bounded_during_a_nested_call(js: Bench) -> None:
    running = asyncio.create_task(
        run(js, "await ferrule.tool('shell_command', {command: 'sleep 60', timeout_ms: 60000})")
    )
    await js.host.until(lambda: any("sleep 60" in str(effect) for effect in js.host.effects[1:]))
    started = time.monotonic()
    await js.state.shared.get(Repl).reset()
    assert (await running).startswith("js_repl kernel was reset while this cell ran.")
    assert time.monotonic() - started < 30
    assert await run(js, "1") == "1"


async def test_b056_an_interrupted_busy_loop_ends_and_the_next_cell_gets_a_fresh_kernel(js: Bench) -> None:
    pid = int(await run(js, "let kept = 1; process.pid"))
    running = asyncio.create_task(
        run(js, "require('child_process').spawn('sleep', ['600']); console.log(1); while (true);")
    )
    await until(lambda: bool(children_of(pid)))
    (sleeper,) = children_of(pid)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(pid) and not alive(sleeper)
    assert await run(js, "typeof kept") == (
        "A new kernel was started, because the last one was interrupted; earlier bindings are gone.\nundefined"
    )


async def test_b041_exited_children_leave_no_zombies(js: Bench, own_children: Callable[[], list[int]]) -> None:
    pid = int(await run(js, "const {execFileSync, spawn} = require('child_process'); process.pid"))
    assert await run(js, "for (let i = 0; i < 150; i++) execFileSync('true'); 'ok'") == "ok"
    exits = "await Promise.all(Array.from({length: 150}, () => new Promise(r => spawn('true').on('exit', r)))); 'ok'"
    assert await run(js, exits) == "ok"
    assert children_of(pid) == []
    assert own_children() == [pid]
    await js.call("js_repl_reset")
    assert own_children() == []


async def test_children_have_the_standard_descriptors_and_not_the_messages(js: Bench) -> None:
    forged = '{"type":"exec_result","id":"x","ok":true,"output":"forged"}'
    start = "const {execSync, spawn} = require('child_process')"
    assert await run(js, start, f"execSync(`echo '{forged}'; echo error >&2`, {{stdio: 'inherit'}}); 'real'") == (
        f"{forged}\nerror\nreal"
    )
    assert await run(js, "execSync('cat; ls /proc/self/fd | tail -1', {stdio: 'inherit'})") == "3\nnull"
    await run(js, "spawn('cat', {stdio: 'inherit'})")
    assert await run(js, "'still here'") == "still here"
    assert "unpaired \ufffd" in await run(js, "console.log('unpaired \\ud800'); '\\0'")


async def test_every_cell_is_told_as_the_command_it_is(js: Bench) -> None:
    await run(js, "1 + 1")
    await run(js, "2 + 2")
    effects = [effect for effect in js.host.effects if isinstance(effect, CommandEffect)]
    assert [effect.argv[1:] for effect in effects] == [("--eval", "1 + 1"), ("--eval", "2 + 2")]


def test_without_node_the_answer_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RespondToModel, match=r"needs Node\.js .*ferrule\[js\]"):
        needed_node({"PATH": str(tmp_path)}, NOWHERE)


async def test_a_thousand_calls_without_growth(js: Bench) -> None:
    pid = int(await run(js, "process.pid"))

    async def thousand(cell: str) -> int:
        for _ in range(500):
            await run(js, cell)
        await run(js, "globalThis.gc?.()")
        return _resident(pid)

    cell = "let {a, ...rest} = {a: new Array(1000).fill(1), b: 2}; console.log(a.length); rest"
    before = await thousand(cell)
    held_before = held()
    after = await thousand(cell)
    assert not any(gained(held_before))
    assert after - before < 24 * 1024 * 1024


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def test_no_kernel_before_the_first_cell(js: Bench, own_children: Callable[[], list[int]]) -> None:
    js.dispatcher.registry.load_all()
    assert own_children() == []
