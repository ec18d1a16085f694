// Makes the calls of a JSON file with the official SDKs, and prints what the SDKs return.
//
// Usage: node client.mjs HARNESSES BASE_URL KEY CALLS
//
// HARNESSES is the folder with the SDKs. client.py describes the other arguments and the output.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [harnesses, base, key, file] = process.argv.slice(2);
const calls = JSON.parse(readFileSync(file, "utf8"));

async function load(folder) {
  const sdk = `${harnesses}/${folder}`;
  return (await import(pathToFileURL(createRequire(sdk + "/").resolve(sdk)))).default;
}
const OpenAI = await load("openai/node_modules/openai");
const Anthropic = calls.some((c) => c.api === "messages") && (await load("anthropic/node_modules/@anthropic-ai/sdk"));

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
  if (e.status === undefined) return { class: kind, message: e.message, body: e.error ?? null };
  return { class: kind, status: e.status, body: e.error ?? null, retry_after: e.headers?.get("retry-after") ?? null };
}

function resourceOf(call) {
  const options = { baseURL: call.base ?? base, apiKey: call.key ?? key, timeout: 30000, maxRetries: call.retries ?? 0 };
  if (call.api === "messages") return new Anthropic({ ...options, baseURL: options.baseURL.replace(/\/v1$/, "") }).messages;
  const client = new OpenAI(options);
  return call.api === "responses" ? client.responses : client.chat.completions;
}

// make appends what the call returns to objects.
async function make(call, objects) {
  const resource = resourceOf(call);
  if (call.turns) {
    await converse(resource, call, objects);
  } else if (call.helper) {
    const events = resource.stream(call.body);
    for await (const chunk of events) objects.push(chunk.object);
    objects.push(await events.finalChatCompletion());
  } else if (call.body.stream) {
    for await (const chunk of await resource.create(call.body)) objects.push(chunk);
  } else {
    objects.push(await resource.create(call.body));
  }
}

async function converse(resource, call, objects) {
  const messages = call.api === "messages";
  const history = [];
  for (const turn of call.turns) {
    history.push(...turn);
    const body = { ...call.body, [messages ? "messages" : "input"]: history };
    const answer = await (!call.helper ? resource.create(body) : messages ? resource.stream(body).finalMessage() : resource.stream(body).finalResponse());
    objects.push(answer);
    history.push(...following(call, answer));
  }
}

// following returns what the client adds to the conversation after an answer.
function following(call, answer) {
  if (call.api === "messages") {
    const results = answer.content.filter((b) => b.type === "tool_use").map((b) => ({ type: "tool_result", tool_use_id: b.id, content: call.result }));
    return [{ role: "assistant", content: answer.content }, ...(results.length ? [{ role: "user", content: results }] : [])];
  }
  const outputs = { function_call: "function_call_output", custom_tool_call: "custom_tool_call_output" };
  return [
    ...answer.output,
    ...answer.output.filter((o) => outputs[o.type]).map((o) => ({ type: outputs[o.type], call_id: o.call_id, output: call.result })),
  ];
}

for (const call of calls) {
  const objects = [];
  let error = null;
  try {
    await make(call, objects);
  } catch (e) {
    error = described(e); // the test compares every error
  }
  emit(call.name, objects, error);
}
const models = [];
for await (const model of new OpenAI({ baseURL: base, apiKey: key, timeout: 30000 }).models.list()) models.push(model.id);
emit("models", models, null);
