// What a client shows: one line for each point.

export async function show(points, ...given) {
  for (const [name, point] of Object.entries(points)) {
    try {
      await point(...given);
      console.log(`passed: ${name}`);
    } catch (error) {
      const said = error instanceof Error ? `${error.name}: ${error.message}` : JSON.stringify(error);
      const at = (error?.stack ?? "").split("\n").find((line) => line.includes(".mjs:") && !line.includes("node_modules"));
      const why = `${said} ${error?.cause?.message ?? ""} (${at?.trim() ?? ""})`;
      console.log(`failed: ${name}: ${why.replace(/\s+/g, " ").slice(0, 1500)}`);
    }
  }
  process.exit(0);
}

export const weather = {
  type: "function",
  name: "get_weather",
  strict: true,
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
};
