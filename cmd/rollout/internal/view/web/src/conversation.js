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

// blocksOfMessages returns the blocks of stored messages, in the shapes of OpenAI, Anthropic and
// Letta. It returns null if the text is not a list of messages.
export function blocksOfMessages(text) {
  let list;
  try {
    list = JSON.parse(text);
  } catch {
    return null;
  }
  if (!Array.isArray(list)) return null;
  const out = [];
  const add = (kind, text, name = "") => text !== "" && text !== null && text !== undefined && out.push({ kind, name, text: typeof text === "string" ? text : pretty(text) });
  const call = (c) => add("call", pretty(c.function?.arguments ?? c.arguments ?? c.input ?? {}), c.function?.name ?? c.name ?? "");
  const returned = (r) => add("return", pretty(r.tool_return ?? r.content ?? r.output ?? ""), r.name ?? r.tool_call_id ?? "");
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
    else if (m.role === "tool") add("return", typeof m.content === "string" ? pretty(m.content) : pretty(m.content ?? ""), m.name ?? m.tool_call_id ?? "");
    else {
      const role = m.role ?? /^(system|user|assistant)_message$/.exec(m.message_type ?? "")?.[1];
      const kind = { system: "system", developer: "system", user: "user", assistant: "assistant" }[role];
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

const tags = { "<think>": "reasoning", "<tool_call>": "call", "<tool_response>": "return" };
const tag = /(<\/?(?:think|tool_call|tool_response)>)/;
const starts = { "<|im_start|>": "\n", "<|start_header_id|>": "<|end_header_id|>" };

// blocksOfRow returns the blocks of the text of a row. The spans are lists of {t, s}: a text, and
// whether it is a special token of the model.
export function blocksOfRow(row) {
  const out = [];
  let known = false; // true if the template marks roles in a known way; then its tokens are noise
  row.text.forEach((span, k) => {
    const base = { 0: "other", 1: "assistant", 2: "return", 3: "user" }[row.roles[k]] ?? "other";
    let kind = base; // of the text outside of tags
    let inside = ""; // the kind of the open tag
    let head = ""; // the token that ends the name of a role
    const add = (kind, text, name = "") => {
      const last = out.at(-1);
      if (last && last.kind === kind && last.span === k && last.name === name && kind !== "mark") last.text += text;
      else if (text.trim() !== "") out.push({ kind, name, text, span: k });
    };
    const role = (name) => (known = true) && (kind = { system: "system", developer: "system", user: "user", assistant: "assistant", tool: "return", ipython: "return" }[name.trim()] ?? "other");
    for (const part of span) {
      for (const text of part.s ? [part.t] : part.t.split(tag)) {
        if (text === "") continue;
        const opened = tags[text];
        if (opened) inside = opened;
        else if (tag.test(text) && text.length < 20) inside = "";
        else if (part.s) {
          if (head === text) head = "";
          else {
            head = starts[text] ?? "";
            if (!head) add("mark", text);
          }
          inside = "";
        } else if (head === "\n") {
          const [name, ...rest] = text.split("\n");
          head = "";
          role(name);
          add(kind, rest.join("\n"));
        } else if (head) role(text);
        else add(inside || kind, text);
      }
    }
  });
  for (const b of out) {
    if (b.kind === "call") Object.assign(b, named(b.text));
    b.text = b.text.replace(/^\s*\n|\s+$/g, "");
  }
  return out.filter((b) => b.text !== "" && !(known && b.kind === "mark"));
}

// named separates the name of the tool from a call such as {"name": …, "arguments": …}.
function named(text) {
  try {
    const call = JSON.parse(text);
    if (typeof call.name === "string") return { name: call.name, text: pretty(call.arguments ?? call.parameters ?? {}) };
  } catch {
    // Not JSON: show the text as it is.
  }
  return { name: "", text };
}

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
