// The page of one sample.
import { useMemo, useState } from "preact/hooks";
import { html } from "./h.js";
import { Legend, textOf, Tokens } from "./tokens.js";
import { Beside, useSample } from "./compare.js";
import { blocksOfMessages, blocksOfSpans, Conversation, parsed } from "./conversation.js";
import { count, moment, plural, seconds, value } from "./format.js";
import { groupOf } from "./filter.js";
import { go, href } from "./route.js";
import { current } from "./samples.js";
import { useKeys } from "./keys.js";

const kinds = {
  prompt: "in the prompt itself",
  context: "in the text between two outputs",
  earlier_output: "in an output before the last one",
  last_output: "in the last output",
  proper_prefix: "the prompt ends inside the row or at the end of the row",
  after_lost: "the previous call is unknown",
};

// Sample is the page of sample n. row is the number of the row that is shown first.
export function Sample({ n, samples, row: wanted }) {
  const { s, error } = useSample(n, samples.failed[n]);
  const group = useMemo(() => (n >= 0 && n < samples.n ? groupOf(samples, n) : []), [samples, n]);
  const at = group.indexOf(n);
  const step = (by) => {
    const next = current.list[current.list.indexOf(n) + by];
    if (next !== undefined) go(`/sample/${(current.selected = next)}`);
  };
  const inGroup = (by) => group[at + by] !== undefined && go(`/sample/${group[at + by]}`);
  const other = group.length > 1 ? group[(at + 1) % group.length] : undefined;
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    "]": () => inGroup(1),
    "[": () => inGroup(-1),
    c: () => other !== undefined && go(`/compare/${n}/${other}`),
  });
  const [row, setRow] = useState(Number(wanted ?? 0));
  if (error) return html`<main id="main"><p class="bad" role="alert">${error}</p></main>`;
  if (!s) return html`<main id="main"><p role="status" class="soft">Reading the sample \u2026</p></main>`;
  return html`<main id="main" class="full" tabindex="-1">
    <h1>${s.task} <span class="soft">sample ${s.index}</span></h1>
    <${Group} samples=${samples} group=${group} n=${n} />
    <${Facts} s=${s} />
    ${s.failures.map((f) => html`<${Failure} f=${f} vocab=${s.vocab} />`)}
    ${s.rows.length > 0 ? html`<${Rows} s=${s} row=${Math.min(row, s.rows.length - 1)} setRow=${setRow} />` : s.failures.length === 0 && html`<p>${s.status === "damaged" ? "The sample cannot be read, because its shard is damaged. rollout verify lists the damage." : "The sample has no rows."}</p>`}
    ${s.messages && s.rows.length === 0 && html`<${Conversation} blocks=${blocksOfMessages(parsed(s.messages) ?? [s.messages])} />`}
  </main>`;
}

// Group shows the samples of the group, with links.
function Group({ samples, group, n }) {
  if (group.length < 2) return null;
  return html`<nav class="group" aria-label="Samples of the group">
    <span class="lead soft">Group (sample: reward)</span>
    ${group.map((i) => html`<span><a href=${href(`/sample/${i}`)} aria-current=${i === n ? "page" : undefined} class=${samples.failed[i] ? "bad" : ""}>
      ${samples.index[i]}: ${samples.failed[i] ? samples.words.status[samples.status[i]] : value(samples.reward[i])}</a>
      ${i !== n && html`<a class="soft" href=${href(`/compare/${n}/${i}`)} aria-label=${`compare with sample ${samples.index[i]}`} title="compare">\u21c4</a>`}</span>`)}
  </nav>`;
}

function Facts({ s }) {
  const read = s.rows.length + s.failures.length > 0; // otherwise only the log of the run knows the sample
  const facts = [
    ["key", html`<code>${s.key}</code>`],
    ["group", read ? `${s.group}, ${plural(s.group_size, "sample")}` : s.group],
    ["status", read ? `${s.status}${s.stop_reason ? ` (${s.stop_reason})` : ""}, attempt ${s.attempt}` : s.status],
    read && ["reward", html`<b>${s.reward === null ? "none" : String(s.reward)}</b>`],
    s.keep !== null && ["keep", `${s.keep}${s.keep_reason ? ` (${s.keep_reason})` : ""}`],
    read && ["started", `${moment(s.started)}, took ${seconds(s.seconds)}, working ${seconds(s.working)}`],
    read && ["server counts", `${plural(s.steps, "step")}, ${count(s.prompt_tokens)} prompt and ${count(s.completion_tokens)} completion tokens`],
    s.model && ["model", s.model],
    s.agent && ["agent", html`<code>${s.agent}</code>`],
    s.run_ids?.length > 0 && ["server runs", s.run_ids.map((id) => html`<code>${id}</code> `)],
    Object.keys(s.sampling ?? {}).length > 0 && ["sampling", Object.entries(s.sampling).map(([k, v]) => `${k} ${v}`).join(", ")],
    s.unshown && ["unshown calls", `${s.unshown} (the tap saw these calls, but no reply contains them)`],
  ].filter(Boolean);
  const json = (text) => {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  };
  const more = (title, text, open) => text && html`<details open=${open}><summary>${title}</summary><pre tabindex="0" role="region" aria-label=${title}>${json(text)}</pre></details>`;
  return html`<section class="card" aria-label="Facts">
    <dl class="facts">${facts.map(([name, v]) => html`<div><dt>${name}</dt><dd>${v}</dd></div>`)}</dl>
    ${more("Reward details", s.reward_details, true)} ${more("Metadata", s.metadata, false)}
  </section>`;
}

function Failure({ f, vocab }) {
  return html`<section class="card failure" aria-label="Failure">
    <h2>${f.call < 0 ? "The whole sample failed" : `Call ${f.call} failed`}: <code>${f.class}</code> <span class="soft">in ${f.stage}${f.reason && `, ${f.reason}`}</span></h2>
    <pre tabindex="0" role="region" aria-label="Error">${f.error}</pre>
    ${f.text && html`<details><summary>Text</summary><pre tabindex="0" role="region" aria-label="Text of the failure">${f.text}</pre></details>`}
    ${f.ids.length > 0 && html`<details><summary>${plural(f.ids.length, "sampled token")}</summary><pre tabindex="0" role="region" aria-label="Sampled tokens">${f.ids.map((id) => textOf(vocab, id)).join("")}</pre></details>`}
  </section>`;
}

function Rows({ s, row, setRow }) {
  const r = s.rows[row];
  const before = s.rows.slice(0, row).findLast((o) => o.chain === r.chain);
  const [beside, setBeside] = useState(true);
  const blocks = useMemo(() => {
    const messages = r.messages ?? (s.messages && row === 0 ? parsed(s.messages) : null);
    return messages ? blocksOfMessages(messages) : r.text ? blocksOfSpans(r) : [];
  }, [s, row]);
  const trained = r.mask.reduce((n, m) => n + (m === 1 ? 1 : 0), 0);
  return html`
    ${s.rows.length > 1 && html`<div class="tabs" role="group" aria-label="Rows">
      ${s.rows.map((o, i) => html`<button type="button" aria-pressed=${i === row} onClick=${() => setRow(i)}>Row ${o.segment}${o.chain > 0 && `, chain ${o.chain} (${o.chain_kind})`}</button>`)}
      ${before && html`<label><input type="checkbox" checked=${beside} onChange=${(e) => setBeside(e.target.checked)} /> beside row ${before.segment}</label>`}
    </div>`}
    <p class="soft">
      ${plural(r.ids.length, "token")}: prompt ${count(r.prompt_length)}, trained ${count(trained)}, unscored ${count(r.unscored)}, trimmed ${count(r.trimmed)}.
      Grade ${r.grade}, prompts from ${r.source}.${r.parent_step !== null && ` Started by chain ${r.parent_chain}, step ${r.parent_step}.`}${r.truncated && " Truncated."}${r.flags.length > 0 && ` Flags: ${r.flags.join(", ")}.`}
    </p>
    ${r.step_ids.some(Boolean) && html`<details><summary class="soft">${plural(r.step_ids.length, "server step")}</summary><p class="ids">${r.step_ids.map((id) => html`<code>${id || "unknown"}</code> `)}</p></details>`}
    <${Divergence} d=${r.divergence} vocab=${s.vocab} />
    ${!s.vocab && html`<p class="warn">Tokens are shown as ids, because the run\u2019s tokenizer is not available. <code>rollout view --tokenizer DIR</code> shows their text.</p>`}
    ${before && beside
      ? html`<${Beside} a=${{ row: before, vocab: s.vocab, title: `row ${before.segment}` }} b=${{ row: r, vocab: s.vocab, title: `row ${r.segment}` }} />`
      : html`<div class="reading">
          <section aria-label="Conversation"><h2>Conversation</h2><${Conversation} blocks=${blocks} /></section>
          <section aria-label="Tokens"><h2>Tokens</h2><${Tokens} row=${r} vocab=${s.vocab} label=${`Tokens of row ${r.segment}`} /><${Legend} /></section>
        </div>`}
  `;
}

// Divergence explains why a row does not continue the previous row, and where it was realigned.
function Divergence({ d, vocab }) {
  if (!d) return null;
  const words = (ids) => (ids?.length ? ids.map((id) => textOf(vocab, id)).join("") : "ends here");
  const side = (name, ids) => html`<div><dt>${name}</dt><dd><code>${words(ids)}</code></dd></div>`;
  const one = (at, text, name) => html`<p>${text}</p><dl class="facts">${side(name, at.row)}${side("prompt", at.prompt)}</dl>`;
  return html`<section class="card" aria-label="Divergence">
    ${d.kind && one(d, `The prompt of call ${d.call} diverged from the previous row at token ${count(d.offset)}: ${kinds[d.kind] ?? d.kind}.`, "row")}
    ${(d.realigned ?? []).map((at) => one(at, `The prompt of call ${at.call} diverged from this row at token ${count(at.offset)}: ${kinds[at.kind] ?? at.kind}.`, "sampled"))}
  </section>`;
}
