// The kernel of js_repl: evaluates cells, and calls tools of the host for them.
//
// One JSON object a line. From the host on descriptor 3: {type: "exec", id, code} and {type: "run_tool_result", id, ok,
// response, error}. To the host on 4: {type: "run_tool", id, exec_id, tool_name, arguments, raw} and {type:
// "exec_result", id, ok, output, error, images}. The usual three descriptors are free for the children of cells.
//
// Cells run in V8's own REPL mode (Runtime.evaluate), which keeps every top-level binding, lets cells declare a name
// again and awaits at the top level. What it lacks are imports; they are rewritten to calls of a loader, where Node's own
// parser finds them.
"use strict";

const fs = require("node:fs");
const inspector = require("node:inspector");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const stream = require("node:stream");
const vm = require("node:vm");
const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");
const { inspect } = require("node:util");
const acorn = require("internal/deps/acorn/acorn/dist/acorn");
const walk = require("internal/deps/acorn/acorn-walk/dist/walk");

// A cell may shadow any global; the kernel keeps its own.
const { parse, stringify } = JSON;
const { Buffer, Error, Promise, String, SyntaxError } = globalThis;
const { process: host, setImmediate } = globalThis;

const MAX_OUTPUT = 1024 * 1024; // characters of console output that one cell keeps; the model reads far less
const PIECE = 16 * 1024; // characters up to which short outputs are joined, so that a chatty cell costs few pieces
const MAX_IMAGES = 8; // images that one cell may show: more do not fit any model's context
const MAX_IMAGE_BYTES = 8 * 1024 * 1024; // of all images of one cell, decoded
const HIDDEN = "__ferrule__"; // the global through which rewritten cells and the inspector reach the kernel

const cwd = host.cwd();
const leave = host.reallyExit.bind(host);

// ---- output ----

/** Text that keeps its beginning and its end. */
class Text {
  head = "";
  tail = [];
  tailLength = 0;
  omitted = 0;

  add(text) {
    const room = MAX_OUTPUT / 2 - this.head.length;
    if (room > 0) {
      this.head += text.slice(0, room);
      text = text.slice(room);
    }
    if (!text) return;
    if (this.tail.length && this.tail.at(-1).length < PIECE) this.tail[this.tail.length - 1] += text;
    else this.tail.push(text);
    this.tailLength += text.length;
    while (this.tailLength - this.tail[0].length >= MAX_OUTPUT / 2) {
      const dropped = this.tail.shift().length;
      this.tailLength -= dropped;
      this.omitted += dropped;
    }
  }

  take() {
    let end = this.tail.join("");
    const over = Math.max(0, end.length - MAX_OUTPUT / 2);
    end = end.slice(over);
    const omitted = this.omitted + over;
    const text = this.head + (omitted ? `\n… ${omitted} characters omitted …\n` : "") + end;
    [this.head, this.tail, this.tailLength, this.omitted] = ["", [], 0, 0];
    return text;
  }

  line(text) {
    const last = this.tail.at(-1) ?? this.head;
    this.add((last && !last.endsWith("\n") ? "\n" : "") + text);
  }
}

const output = new Text();

function captured(fd) {
  const writable = new stream.Writable({
    decodeStrings: false,
    write(chunk, encoding, done) {
      output.add(typeof chunk === "string" ? chunk : chunk.toString());
      done();
    },
  });
  return Object.assign(writable, { fd, isTTY: false });
}

/** A value as the model reads it: a string as it is, anything else as Node shows it. */
function shown(value) {
  return typeof value === "string" ? value : inspect(value);
}

const FRAME = /^\s+at .*?( \{)?$/; // what `inspect` adds to an error follows its last frame, behind a brace
const INSIDE = /node:|\bjs_repl\/kernel\.js|<anonymous>\)?( \{)?$/;

/** An error with the frames of the cells only. */
function described(error) {
  if (!(error instanceof Error) || typeof error.stack !== "string") return `Uncaught ${shown(error)}`;
  const lines = [];
  for (const line of inspect(error).split("\n")) {
    if (!FRAME.test(line) || !INSIDE.test(line)) lines.push(line);
    else if (line.endsWith(" {")) lines.push(`${lines.pop()} {`);
  }
  return lines.join("\n");
}

// ---- what a cell may not do: end the kernel ----

class Exit extends Error {
  constructor(call, code) {
    super(`${call} was called: the cell ends, and the kernel goes on`);
    this.code = code;
  }
}

function stray(what, error) {
  output.line(error instanceof Exit ? error.message : `${what}: ${described(error)}`);
}

for (const name of ["exit", "reallyExit", "abort"]) {
  host[name] = (code = 0) => {
    throw new Exit(`process.${name}(${name === "abort" ? "" : code})`, name === "abort" ? 1 : Number(code));
  };
}
host.on("uncaughtException", (error) => stray("Uncaught exception", error));
host.on("unhandledRejection", (reason) => stray("Unhandled rejection", reason));

// ---- imports ----

const importer = vm.compileFunction("return import(specifier, options)", ["specifier", "options"], {
  filename: path.join(cwd, "js_repl.js"),
  importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
});

async function load(specifier, options, names = []) {
  const loaded = await importer(specifier, options);
  for (const name of names) {
    if (!(name in loaded)) throw new SyntaxError(`The module '${specifier}' has no export named '${name}'`);
  }
  return loaded;
}
const meta = { url: pathToFileURL(path.join(cwd, "js_repl.js")).href, dirname: cwd, filename: path.join(cwd, "js_repl.js") };

/** The declaration of constants that an import declaration stands for, on as many lines. */
function asDeclaration(node, source) {
  const key = (name) => name.name ?? stringify(name.value);
  const named = node.specifiers
    .filter((specifier) => specifier.type !== "ImportNamespaceSpecifier")
    .map((specifier) => [specifier.imported ? key(specifier.imported) : "default", specifier.local.name]);
  const space = node.specifiers.find((specifier) => specifier.type === "ImportNamespaceSpecifier");
  const attributes = (node.attributes ?? []).map((one) => `${key(one.key)}: ${one.value.raw}`).join(", ");
  const names = named.map(([name]) => (name.startsWith('"') ? name : stringify(name))).join(", ");
  const call = `await ${HIDDEN}.load(${node.source.raw}, ${attributes ? `{with: {${attributes}}}` : "undefined"}, [${names}])`;
  const pattern = `{${named.map(([name, local]) => `${name}: ${local}`).join(", ")}}`;
  const lines = "\n".repeat(source.slice(node.start, node.end).split("\n").length - 1);
  if (space) return `const ${space.local.name} = ${call}${named.length ? `, ${pattern} = ${space.local.name}` : ""};${lines}`;
  return `${named.length ? `const ${pattern} = ` : ""}${call};${lines}`;
}

/** The cell as V8 takes it, and whether its last statement has a value to show. */
function prepared(source) {
  let program;
  try {
    program = acorn.parse(source, {
      ecmaVersion: "latest",
      allowAwaitOutsideFunction: true,
      allowImportExportEverywhere: true,
    });
  } catch {
    return [source, true]; // newer than the parser, or wrong: V8 will say
  }
  const edits = [];
  for (const node of program.body) {
    if (node.type === "ImportDeclaration") edits.push([node.start, node.end, asDeclaration(node, source)]);
    if (node.type === "ExportNamedDeclaration" && node.declaration) edits.push([node.start, node.declaration.start, ""]);
  }
  walk.full(program, (node) => {
    if (node.type === "ImportExpression") edits.push([node.start, node.start + "import".length, `${HIDDEN}.load`]);
    if (node.type === "MetaProperty" && node.meta.name === "import") edits.push([node.start, node.end, `${HIDDEN}.meta`]);
  });
  edits.sort((one, other) => other[0] - one[0]);
  for (const [start, end, text] of edits) source = source.slice(0, start) + text + source.slice(end);
  return [source, program.body.at(-1)?.type === "ExpressionStatement"];
}

// ---- cells ----

const session = new inspector.Session();
session.connect();
const post = (method, params) =>
  new Promise((resolve, reject) => {
    session.post(method, params, (error, result) => (error ? reject(error) : resolve(result)));
  });

let kept; // the value that the inspector names by an id, on its way out of `valueOf`

/** The value behind what the inspector answered. */
async function valueOf(remote) {
  if (!remote.objectId) return remote.unserializableValue ?? remote.value;
  const functionDeclaration = `function () { "use strict"; ${HIDDEN}.keep(this); }`;
  await post("Runtime.callFunctionOn", { objectId: remote.objectId, functionDeclaration });
  const value = kept;
  kept = undefined;
  return value;
}

let cell; // the one that runs now

async function evaluate(id, source, number) {
  const [code, shows] = prepared(source);
  const { result, exceptionDetails: thrown } = await post("Runtime.evaluate", {
    expression: `${code}\n//# sourceURL=cell${number}.js`,
    replMode: true,
    awaitPromise: true,
    objectGroup: "cell",
  });
  if (thrown) return failed(thrown, await valueOf(thrown.exception ?? { value: thrown.text }), source);
  if (shows && result.type !== "undefined") {
    output.line(shown(await valueOf(result)));
  }
  return { ok: true, error: null };
}

function failed(thrown, error, source) {
  if (error instanceof Exit) return { ok: error.code === 0, error: error.message };
  let text = described(error);
  if (error instanceof SyntaxError && !/\bcell\d+\.js:/.test(text)) {
    const line = source.split("\n")[thrown.lineNumber];
    text = text.split("\n")[0];
    if (thrown.lineNumber || thrown.columnNumber) text += `\n    at line ${thrown.lineNumber + 1}: ${line?.trim()}`;
    if (text.includes("has already been declared")) {
      text += "\nvar or function and let, const or class cannot share a name: assign to it, or choose another name";
    }
  }
  return { ok: false, error: text };
}

let cells = 0;

async function exec({ id, code }) {
  cell = { id, pending: new Set(), images: [], bytes: 0 };
  const current = cell;
  const result = await evaluate(id, code, ++cells).catch((error) => ({ ok: false, error: described(error) }));
  while (current.pending.size) await Promise.allSettled(current.pending);
  await new Promise(setImmediate); // rejections that nobody handled are told in between
  cell = undefined;
  await post("Runtime.releaseObjectGroup", { objectGroup: "cell" });
  await post("Runtime.discardConsoleEntries");
  send({ type: "exec_result", id, ...result, output: output.take(), images: current.images });
}

// ---- what cells are given ----

const waiting = new Map();
let calls = 0;

function tool(name, args = {}) {
  if (!cell) return Promise.reject(new Error("ferrule.tool works only while a cell runs: await it there"));
  const id = `tool_${++calls}`;
  const call = new Promise((resolve, reject) => {
    const raw = typeof args === "string";
    send({ type: "run_tool", id, exec_id: cell.id, tool_name: String(name), arguments: raw ? args : stringify(args), raw });
    waiting.set(id, { resolve, reject });
  });
  const { pending } = cell;
  const done = call.then(() => {}, () => {}).finally(() => pending.delete(done));
  pending.add(done);
  return call;
}

const SIGNATURES = [["image/png", "\x89PNG"], ["image/jpeg", "\xff\xd8\xff"], ["image/gif", "GIF8"], ["image/webp", "RIFF"]];

function emitImage(image) {
  if (!cell) throw new Error("ferrule.emitImage works only while a cell runs");
  let url = image;
  if (typeof image !== "string") {
    const bytes = Buffer.from(image.bytes ?? image);
    const start = bytes.toString("latin1", 0, 8);
    const type = image.mimeType ?? SIGNATURES.find(([, signature]) => start.startsWith(signature))?.[0];
    if (!type) throw new TypeError("ferrule.emitImage takes the bytes of a PNG, JPEG, GIF or WebP image, or a data URL");
    url = `data:${type};base64,${bytes.toString("base64")}`;
  }
  if (!/^data:image\/[\w.+-]+;base64,/.test(url)) throw new TypeError("ferrule.emitImage takes bytes or a data URL of an image");
  const size = Math.floor((url.length * 3) / 4);
  if (cell.images.length >= MAX_IMAGES) throw new RangeError(`a cell may show ${MAX_IMAGES} images`);
  if (cell.bytes + size > MAX_IMAGE_BYTES) throw new RangeError(`the images of a cell may have ${MAX_IMAGE_BYTES} bytes in all`);
  cell.bytes += size;
  cell.images.push(url);
}

const given = Object.freeze({ tool, emitImage, cwd, homeDir: os.homedir(), tmpDir: os.tmpdir() });
const globals = {
  ferrule: given,
  codex: given, // the name that models were trained on
  require: createRequire(path.join(cwd, "js_repl.js")),
  [HIDDEN]: Object.freeze({ load, meta, keep: (value) => void (kept = value) }),
};
for (const [name, value] of Object.entries(globals)) {
  Object.defineProperty(globalThis, name, { value, writable: name !== HIDDEN, configurable: false, enumerable: false });
}
for (const [name, value] of [
  ["stdout", captured(1)],
  ["stderr", captured(2)],
]) {
  Object.defineProperty(host, name, { value, configurable: true, enumerable: true });
}

// ---- the host ----

/** Half a surrogate pair is no text. */
const sendable = (key, value) => (typeof value === "string" ? value.toWellFormed() : value);

function send(message) {
  const bytes = Buffer.from(`${stringify(message, sendable)}\n`);
  for (let sent = 0; sent < bytes.length; ) sent += fs.writeSync(4, bytes, sent);
}

function receive(message) {
  if (message.type === "exec") return void exec(message);
  const call = waiting.get(message.id);
  waiting.delete(message.id);
  if (message.ok) call?.resolve(message.response);
  else call?.reject(new Error(message.error));
}

let rest = "";
const input = new net.Socket({ fd: 3, readable: true, writable: false });
input.setEncoding("utf8");
input.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  for (const line of lines) receive(parse(line));
});
input.on("end", () => leave(0));
