// The tokens of a row, colored by mask and log-probability.
import { useEffect, useRef, useState } from "preact/hooks";
import { html, visible } from "./h.js";
import { count } from "./format.js";

const roles = ["prompt", "assistant", "tool", "user"];

// shades are the limits between the colors of trained tokens, from likely to unlikely.
const shades = [-0.05, -0.25, -0.7, -1.6, -3];

const shade = (logprob) => {
  const at = shades.findIndex((limit) => logprob >= limit);
  return "t" + (at < 0 ? shades.length : at);
};

// spansOf returns the spans of a row. A call is the number of an assistant span, or -1.
export function spansOf(row) {
  const assistants = row.roles.filter((r) => r === 1).length;
  let call = 0;
  return row.roles.map((r, k) => ({
    role: roles[r] ?? `role ${r}`,
    from: row.offsets[k],
    to: row.offsets[k + 1],
    call: r === 1 && assistants === row.finish.length ? call++ : -1,
  }));
}

// textOf returns the text of a token. Without a vocabulary, it returns the id and a space. A token
// that the vocabulary lacks is its id in angle brackets.
export const textOf = (vocab, id) => (vocab ? vocab[id] ?? `<${id}>` : `${id} `);

// about returns what is known about token i of a row, as pairs of a name and a text.
export function about(row, vocab, i) {
  const k = row.roles.findIndex((_, k) => i >= row.offsets[k] && i < row.offsets[k + 1]);
  const span = spansOf(row)[k];
  const out = [
    ["token", `${count(i)} of ${count(row.ids.length)}`],
    ["id", String(row.ids[i])],
  ];
  if (vocab?.[row.ids[i]] !== undefined) out.push(["text", JSON.stringify(vocab[row.ids[i]])]);
  if (row.mask[i] === 1) out.push(["log-probability", `${row.logprobs[i]} (${(100 * Math.exp(row.logprobs[i])).toPrecision(3)} %)`]);
  out.push(["loss mask", row.mask[i] === 1 ? "1, trained" : span?.role === "assistant" ? "0, sampled but not trained" : "0, context"]);
  if (span) out.push(["span", `${k}, ${span.role} [${count(span.from)}, ${count(span.to)})`]);
  if (span && span.call >= 0) {
    out.push(["call", `${span.call} of this row`], ["finish reason", row.finish[span.call] || "unknown"]);
    if (row.step_ids[span.call]) out.push(["step", row.step_ids[span.call]]);
  }
  if (row.versions) out.push(["policy version", row.versions[i] < 0 ? "unknown" : String(row.versions[i])]);
  return out;
}

function heading(row, span) {
  let text = `${span.role} [${count(span.from)}, ${count(span.to)}) ${count(span.to - span.from)} tokens`;
  let sum = 0;
  let least = 0;
  let n = 0;
  for (let i = span.from; i < span.to; i++) {
    if (row.mask[i] !== 1) continue;
    sum += row.logprobs[i];
    least = Math.min(least, row.logprobs[i]);
    n++;
  }
  if (n > 0) text += `, ${count(n)} trained, log-probability mean ${(sum / n).toFixed(3)}, min ${least.toFixed(3)}`;
  if (span.call >= 0 && row.finish[span.call]) text += `, finish reason ${row.finish[span.call]}`;
  return text;
}

// fill puts the tokens of the row into the element box, from number from on. It creates one element
// per token itself, because components are too slow for rows of many thousand tokens.
function fill(box, row, vocab, from, mark) {
  const all = [];
  for (const span of spansOf(row)) {
    if (span.to <= from && span.to > span.from) continue;
    const block = document.createElement("section");
    block.className = "span " + span.role;
    const title = document.createElement("h4");
    title.textContent = visible(heading(row, span));
    const body = document.createElement("p");
    for (let i = Math.max(from, span.from); i < span.to; i++) {
      if (i === mark) {
        const sign = document.createElement("mark");
        sign.className = "fork";
        sign.textContent = "diverges here";
        body.append(sign);
      }
      const token = document.createElement("span");
      token.dataset.i = i;
      token.className = row.mask[i] === 1 ? shade(row.logprobs[i]) : span.role === "assistant" ? "masked" : "context";
      token.textContent = visible(textOf(vocab, row.ids[i])).replaceAll("\n", "\u21b5\n");
      body.append(token);
    }
    block.append(title, body);
    all.push(block);
  }
  if (mark !== undefined && mark >= row.ids.length) {
    const end = document.createElement("p");
    const sign = document.createElement("mark");
    sign.className = "fork";
    sign.textContent = "ends here";
    end.append(sign);
    all.push(end);
  }
  box.replaceChildren(...all);
}

// Tokens shows the tokens of a row from number from on. mark is the token at which the row diverges
// from another row.
export function Tokens({ row, vocab, label, from = 0, mark }) {
  const box = useRef();
  const [at, setAt] = useState(null);
  useEffect(() => (fill(box.current, row, vocab, from, mark), setAt(null)), [row, vocab, from, mark]);

  const show = (token) => {
    box.current.querySelector(".cursor")?.classList.remove("cursor");
    if (!token) return setAt(null);
    token.classList.add("cursor");
    const r = token.getClientRects()[0] ?? token.getBoundingClientRect();
    setAt({ i: Number(token.dataset.i), x: r.left, y: r.bottom, above: r.top });
  };
  const key = (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (e.key === "Escape" && at) {
      e.preventDefault();
      return show(null);
    }
    if (!by || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    const next = at ? at.i + by : from;
    const token = box.current.querySelector(`[data-i="${next}"]`);
    if (!token) return;
    token.scrollIntoView({ block: "nearest" });
    show(token);
  };
  return html`<div class="tokens">
    <div ref=${box} class="flow" tabindex="0" role="region" aria-label=${label} onKeyDown=${key}
      onMouseOver=${(e) => show(e.target.closest("[data-i]"))} onClick=${(e) => show(e.target.closest("[data-i]"))}
      onMouseLeave=${() => show(null)} onScroll=${() => at && show(null)}></div>
    ${at && html`<${Tip} at=${at} facts=${about(row, vocab, at.i)} />`}
  </div>`;
}

function Tip({ at, facts }) {
  const box = useRef();
  useEffect(() => {
    const { width, height } = box.current.getBoundingClientRect();
    const left = Math.max(4, Math.min(at.x, innerWidth - width - 4));
    const top = at.y + height + 8 > innerHeight ? at.above - height - 6 : at.y + 6;
    box.current.style.left = left + "px";
    box.current.style.top = Math.max(4, top) + "px";
  });
  return html`<dl ref=${box} class="tip" role="status">${facts.map(([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>`;
}

// Legend explains the colors of tokens.
export const Legend = () => html`<p class="legend soft" aria-label="Colors of tokens">
  trained, from likely to unlikely: ${[0, 1, 2, 3, 4, 5].map((i) => html`<span class=${"t" + i}>${["\u2265 " + shades[0], ...shades.slice(1).map((v) => "\u2265 " + v), "< " + shades[4]][i]}</span> `)}
  <span class="masked">sampled, not trained</span> <span class="context">context</span></p>`;
