// The conversation of a sample, as a person reads it.
import { html } from "./h.js";
import { plural } from "./format.js";

// A block is {kind, name, text}. The kind is system, user, assistant, reasoning, call, return, mark
// (a special token) or other.

const pretty = (v) => {
  if (typeof v !== "string") return JSON.stringify(v, null, 2) ?? "";
  try {
    const parsed = JSON.parse(v);
    return typeof parsed === "object" && parsed !== null ? JSON.stringify(parsed, null, 2) : v;
  } catch {
    return v;
  }
};

// parsed returns the list of messages in a text, or null.
export function parsed(text) {
  try {
    const list = JSON.parse(text);
    return Array.isArray(list) ? list : null;
  } catch {
    return null;
  }
}

// blocksOfMessages returns the blocks of messages in the shapes of OpenAI, Anthropic and Letta.
export function blocksOfMessages(list) {
  const out = [];
  const names = new Map(); // of tools, by the id of the call
  const add = (kind, text, name = "") => text !== "" && text !== null && text !== undefined && out.push({ kind, name, text: typeof text === "string" ? text : pretty(text) });
  const call = (c) => {
    const name = c.function?.name ?? c.name ?? "";
    names.set(c.id ?? c.tool_call_id, name);
    add("call", pretty(c.function?.arguments ?? c.arguments ?? c.input ?? {}), name);
  };
  const returned = (r) => add("return", pretty(r.tool_return ?? r.content ?? r.output ?? ""), r.name ?? names.get(r.tool_call_id ?? r.tool_use_id ?? null) ?? r.tool_call_id ?? "");
  const content = (kind, c) => {
    if (!Array.isArray(c)) return add(kind, c);
    for (const part of c) {
      if (part.type === "thinking" || part.type === "reasoning") add("reasoning", part.thinking ?? part.text ?? part.reasoning);
      else if (part.type === "tool_use") call(part);
      else if (part.type === "tool_result") returned(part);
      else if (typeof part.text === "string") add(kind, part.text);
      else add("other", part, part.type);
    }
  };
  for (const m of list) {
    if (typeof m !== "object" || m === null) add("other", m);
    else if (m.message_type === "reasoning_message") add("reasoning", m.reasoning);
    else if (m.tool_return !== undefined || m.tool_returns) (m.tool_returns ?? [m]).forEach(returned);
    else if (m.tool_call || (m.message_type && m.tool_calls)) [m.tool_calls ?? m.tool_call].flat().forEach(call);
    else if (m.role === "tool") returned(m);
    else {
      const role = m.role ?? /^(system|user|assistant)_message$/.exec(m.message_type ?? "")?.[1];
      const kind = { system: "system", developer: "system", user: "user", assistant: "assistant", unknown: "other" }[role];
      if (!kind) {
        add("other", m, m.message_type ?? role ?? "");
        continue;
      }
      add("reasoning", m.reasoning_content ?? m.reasoning);
      content(kind, m.content);
      (m.tool_calls ?? []).forEach(call);
    }
  }
  return out;
}

// blocksOfSpans returns the blocks of a row whose messages are not known: its text, and the special tokens.
export const blocksOfSpans = (row) =>
  row.text
    .flatMap((span, k) => span.map((part) => ({ kind: part.s ? "mark" : ({ 1: "assistant", 2: "return", 3: "user" }[row.roles[k]] ?? "other"), name: "", text: part.t.trim() })))
    .filter((b) => b.text !== "");

const titles = { system: "system", user: "user", assistant: "assistant", reasoning: "reasoning", call: "tool call", return: "tool return", other: "text" };

// Conversation shows blocks. Reasoning and system prompts are folded.
export function Conversation({ blocks }) {
  return html`<div class="conversation" role="region" tabindex="0" aria-label="Conversation">
    ${blocks.map((b) => {
      if (b.kind === "mark") return html`<code class="special">${b.text}</code>`;
      const title = html`<b>${titles[b.kind]}</b>${b.name && html` <code>${b.name}</code>`}`;
      if (b.kind === "reasoning" || b.kind === "system")
        return html`<details class=${"block " + b.kind}><summary>${title} <span class="soft">${plural(b.text.split(/\s+/).length, "word")}</span></summary><div class="text" dir="auto">${b.text}</div></details>`;
      const code = b.kind === "call" || b.kind === "return";
      return html`<div class=${"block " + b.kind}><div class="who">${title}</div><div class=${code ? "text mono" : "text"} dir="auto">${b.text}</div></div>`;
    })}
    ${blocks.length === 0 && html`<p class="soft">There is no text: the run has no tokenizer and no messages.</p>`}
  </div>`;
}
