// Makes the calls of a JSON file with the official OpenAI SDK, and prints what the SDK returns.
//
// Usage: node client.mjs SDK BASE_URL KEY CALLS
//
// SDK is the folder node_modules/openai. client.py describes the other arguments and the output.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [sdk, baseURL, apiKey, calls] = process.argv.slice(2);
const { default: OpenAI } = await import(pathToFileURL(createRequire(sdk + "/").resolve(sdk)));

// sorted returns a copy whose objects have their members in the order of their names.
function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}

function emit(name, objects, error) {
  const line = JSON.stringify(sorted({ name, objects, error }));
  console.log(line.replace(/[\u0080-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")));
}

function described(e) {
  const kind = e.constructor.name;
  if (e.status === undefined) return { class: kind, message: e.message };
  return { class: kind, status: e.status, body: e.error ?? null, retry_after: e.headers?.get("retry-after") ?? null };
}

// make appends what the call returns to objects.
async function make(client, call, objects) {
  const options = { maxRetries: call.retries ?? 0 };
  if (call.helper) {
    const events = client.chat.completions.stream(call.body, options);
    for await (const chunk of events) objects.push(chunk.object);
    objects.push(await events.finalChatCompletion());
  } else if (call.body.stream) {
    for await (const chunk of await client.chat.completions.create(call.body, options)) objects.push(chunk);
  } else {
    objects.push(await client.chat.completions.create(call.body, options));
  }
}

const client = new OpenAI({ baseURL, apiKey, timeout: 30000 });
for (const call of JSON.parse(readFileSync(calls, "utf8"))) {
  const objects = [];
  let error = null;
  try {
    await make(client, call, objects);
  } catch (e) {
    error = described(e); // the test compares every error
  }
  emit(call.name, objects, error);
}
const models = [];
for await (const model of client.models.list()) models.push(model.id);
emit("models", models, null);
