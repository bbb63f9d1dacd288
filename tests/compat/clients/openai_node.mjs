// The official Node client, asked of a gateway.

import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { ResponsesWS } from "openai/resources/responses/ws";
import { z } from "zod";
import { show, weather } from "./points.mjs";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "unused", maxRetries: 0 });
const Weather = z.object({ city: z.string(), degrees: z.number() });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function over(socket, body) {
  socket.send({ type: "response.create", model: "m", ...body });
  for await (const { type, message, error } of socket.stream()) {
    if (type === "error") throw error;
    if (type !== "message") continue;
    assert.ok(!["error", "response.failed"].includes(message.type), JSON.stringify(message));
    if (message.type === "response.completed") return message.response;
  }
  throw new Error("the connection ended");
}

await show({
  async create() {
    const first = await client.responses.create({ model: "m", input: "say hello" });
    assert.equal(first.output_text, "You said: hello");
    const again = await client.responses.create({ model: "m", input: "say more", previous_response_id: first.id });
    assert.equal(again.previous_response_id, first.id);
    assert.deepEqual((await client.responses.retrieve(first.id)).output, first.output);
  },
  async "function call"() {
    const first = await client.responses.create({ model: "m", input: "use get_weather", tools: [weather] });
    const call = first.output.find((item) => item.type === "function_call");
    const output = { type: "function_call_output", call_id: call.call_id, output: "sunny" };
    const input = [{ role: "user", content: "use get_weather" }, ...first.output, output];
    const second = await client.responses.create({ model: "m", input, tools: [weather], store: false });
    assert.equal(second.output_text, "Done: sunny");
  },
  async "stream accumulator"() {
    const stream = client.responses.stream({ model: "m", input: "use get_weather", tools: [weather] });
    const numbers = [];
    const done = [];
    for await (const event of stream) {
      numbers.push(event.sequence_number);
      if (event.type === "response.output_item.done") done.push(event.item.id);
    }
    const final = await stream.finalResponse();
    assert.deepEqual(numbers, [...numbers.keys()]);
    assert.deepEqual(final.output.map((item) => item.id), done);
    assert.deepEqual(final.output.map((item) => item.type), ["reasoning", "message", "function_call"]);
  },
  async parse() {
    const text = { format: zodTextFormat(Weather, "weather") };
    const answer = await client.responses.parse({ model: "m", input: "say it", text });
    assert.deepEqual(answer.output_parsed, { city: "Rome", degrees: 21 });
    const streamed = await client.responses.stream({ model: "m", input: "say it", text }).finalResponse();
    assert.deepEqual(streamed.output_parsed, { city: "Rome", degrees: 21 });
  },
  async "retrieve a stream after a number"() {
    const seen = [];
    for await (const event of await client.responses.create({
      model: "m", input: "say hello", background: true, stream: true,
    })) {
      seen.push(event);
      if (event.type === "response.output_text.delta") break;
    }
    const after = seen.at(-1).sequence_number;
    const rest = [];
    for await (const event of await client.responses.retrieve(seen[0].response.id, {
      stream: true, starting_after: after,
    })) rest.push(event);
    assert.equal(rest[0].sequence_number, after + 1);
    assert.equal(rest.at(-1).type, "response.completed");
    const final = await client.responses.stream({ response_id: seen[0].response.id }).finalResponse();
    assert.equal(final.output_text, "You said: hello");
  },
  async "background and cancel"() {
    let answer = await client.responses.create({ model: "m", input: "say hello", background: true });
    while (["queued", "in_progress"].includes(answer.status)) {
      await pause(50);
      answer = await client.responses.retrieve(answer.id);
    }
    assert.equal(answer.output_text, "You said: hello");
    const held = await client.responses.create({ model: "m", input: "hold", background: true });
    assert.equal((await client.responses.cancel(held.id)).status, "cancelled");
  },
  async "compact and input tokens"() {
    const input = [{ role: "user", content: "say first" }, { role: "assistant", content: "You said: first" }];
    const done = await client.responses.compact({ model: "m", input });
    const next = await client.responses.create({
      model: "m", input: [...done.output, { role: "user", content: "say next" }],
    });
    assert.equal(next.output_text, "You said: next");
    assert.ok((await client.responses.inputTokens.count({ model: "m", input })).input_tokens > 0);
  },
  async conversations() {
    const talk = await client.conversations.create({ items: [{ type: "message", role: "user", content: "say old" }] });
    await client.responses.create({ model: "m", input: "say new", conversation: talk.id });
    const roles = [];
    for await (const item of client.conversations.items.list(talk.id, { order: "asc", limit: 2 })) roles.push(item.role);
    assert.deepEqual(roles, ["user", "user", "assistant"]);
    assert.ok((await client.conversations.delete(talk.id)).deleted);
  },
  async files() {
    const file = await toFile(Buffer.from("of the file"), "a.txt");
    const made = await client.files.create({ file, purpose: "user_data" });
    assert.equal(await (await client.files.content(made.id)).text(), "of the file");
    assert.ok((await client.files.delete(made.id)).deleted);
  },
  async errors() {
    const wrong = client.responses.create({ model: "m", input: "x", previous_response_id: "resp_none" });
    await assert.rejects(wrong, (error) => error.code === "previous_response_not_found");
    const bad = client.responses.create({ model: "m", input: "x", temperature: 9 });
    await assert.rejects(bad, (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature");
  },
  async websocket() {
    const socket = new ResponsesWS(client);
    const first = await over(socket, { input: "use get_weather", tools: [weather], store: false });
    const call = first.output.find((item) => item.type === "function_call");
    const output = { type: "function_call_output", call_id: call.call_id, output: "sunny" };
    const second = await over(socket, { input: [output], previous_response_id: first.id, store: false });
    assert.equal(second.output.at(-1).content[0].text, "Done: sunny");
    socket.close();
  },
});
