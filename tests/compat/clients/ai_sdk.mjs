// The AI SDK with its two providers for the Responses API, asked of a gateway.

import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { show } from "./points.mjs";

const url = process.argv[2];
const openai = createOpenAI({ baseURL: url, apiKey: "unused" });
const open = createOpenResponses({ name: "gateway", url: `${url}/responses` });
const schema = z.object({ city: z.string(), degrees: z.number() });
const asked = [];
const tools = {
  get_weather: tool({
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => (asked.push(city), "sunny"),
  }),
};
const common = { maxRetries: 0, stopWhen: stepCountIs(4) };

function pointsOf(name, model) {
  return {
    async [`${name}: generateText`]() {
      const answer = await generateText({ ...common, model, prompt: "say hello" });
      assert.equal(answer.text, "You said: hello");
      assert.deepEqual(answer.warnings ?? [], []);
      assert.ok(answer.usage.totalTokens >= 0);
    },
    async [`${name}: streamText`]() {
      const stream = streamText({ ...common, model, prompt: "say hello", onError: ({ error }) => { throw error; } });
      const kinds = [];
      for await (const part of stream.fullStream) {
        if (part.type === "error") throw part.error;
        kinds.push(part.type);
      }
      assert.equal(await stream.text, "You said: hello");
      assert.equal(await stream.finishReason, "stop");
      assert.ok(kinds.includes("text-start") && kinds.includes("text-end"), kinds.join());
    },
    async [`${name}: tools`]() {
      asked.length = 0;
      const answer = await generateText({ ...common, model, tools, prompt: "use get_weather" });
      assert.equal(answer.text, "Done: sunny");
      const stream = streamText({ ...common, model, tools, prompt: "use get_weather" });
      for await (const part of stream.fullStream) if (part.type === "error") throw part.error;
      assert.equal(await stream.text, "Done: sunny");
      assert.equal((await stream.steps).length, 2);
      assert.deepEqual(asked, ["Rome", "Rome"]);
    },
    async [`${name}: object`]() {
      const output = Output.object({ schema });
      const answer = await generateText({ ...common, model, output, prompt: "say it" });
      assert.deepEqual(answer.output, { city: "Rome", degrees: 21 });
      const stream = streamText({ ...common, model, output, prompt: "say it" });
      for await (const part of stream.fullStream) if (part.type === "error") throw part.error;
      assert.deepEqual(await stream.output, { city: "Rome", degrees: 21 });
    },
  };
}

await show({
  ...pointsOf("@ai-sdk/openai", openai.responses("m")),
  async "@ai-sdk/openai: a conversation without storage"() {
    const providerOptions = { openai: { store: false, include: ["reasoning.encrypted_content"] } };
    const answer = await generateText({
      ...common, model: openai.responses("m"), tools, prompt: "use get_weather", providerOptions,
    });
    assert.equal(answer.text, "Done: sunny");
  },
  async "@ai-sdk/openai: previous response"() {
    const first = await generateText({ ...common, model: openai.responses("m"), prompt: "say one" });
    const { responseId } = first.providerMetadata.openai;
    const again = await generateText({
      ...common, model: openai.responses("m"), prompt: "say two", providerOptions: { openai: { previousResponseId: responseId } },
    });
    assert.equal(again.text, "You said: two");
  },
  async "@ai-sdk/openai: shell, local shell and apply_patch"() {
    const model = openai.responses("m");
    const ran = [];
    const native = {
      shell: openai.tools.shell({
        execute: async ({ action }) => {
          ran.push(...action.commands);
          return { output: action.commands.map((c) => ({ stdout: `${c}\n`, stderr: "", outcome: { type: "exit", exitCode: 0 } })) };
        },
      }),
      apply_patch: openai.tools.applyPatch({
        execute: async ({ operation }) => (ran.push(operation.path), { status: "completed", output: "patched" }),
      }),
    };
    const answer = await generateText({ ...common, model, tools: native, prompt: "use shell, apply_patch" });
    assert.deepEqual(ran, ["echo one", "echo two", "a.txt"]);
    assert.match(answer.text, /Done: .*patched/);
    const stream = streamText({ ...common, model, tools: native, prompt: "use shell, apply_patch" });
    for await (const part of stream.fullStream) if (part.type === "error") throw part.error;
    assert.match(await stream.text, /Done: .*patched/);
    const local = { local_shell: openai.tools.localShell({ execute: async ({ action }) => ({ output: action.command.join(" ") }) }) };
    const older = await generateText({ ...common, model, tools: local, prompt: "use local_shell" });
    assert.match(older.text, /Done: .*echo hi/);
  },
  ...pointsOf("@ai-sdk/open-responses", open("m")),
});
