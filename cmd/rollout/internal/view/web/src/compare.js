// Two rows side by side, aligned by their common prefix.
import { useEffect, useState } from "preact/hooks";
import { html } from "./h.js";
import { Legend, Tokens } from "./tokens.js";
import { count, plural, value } from "./format.js";
import { go, href } from "./route.js";
import { sample } from "./source.js";
import { useKeys } from "./keys.js";

// context is the number of equal tokens that are shown before the point of divergence.
const context = 24;

// common returns the number of equal ids at the start of two lists.
export function common(a, b) {
  const most = Math.min(a.length, b.length);
  for (let i = 0; i < most; i++) if (a[i] !== b[i]) return i;
  return most;
}

// Beside shows the rows a and b, which are {row, vocab, title}.
export function Beside({ a, b }) {
  const [whole, setWhole] = useState(false);
  const n = common(a.row.ids, b.row.ids);
  const from = whole ? 0 : Math.max(0, n - context);
  const equal = n === a.row.ids.length && n === b.row.ids.length;
  return html`<section class="beside" aria-label="Two rows side by side">
    <p role="status">
      ${equal ? `Both rows are equal: ${plural(n, "token")}.` : n === 0 ? "The rows have no common prefix." : `The first ${plural(n, "token")} are equal. The rows diverge at token ${count(n)}.`}
      ${n > context && html` <button type="button" class="quiet" aria-pressed=${whole} onClick=${() => setWhole(!whole)}>${whole ? `Hide ${count(n - context)} equal tokens` : "Show the equal tokens"}</button>`}
    </p>
    <div class="pair">
      ${[a, b].map((side) => html`<div>
        <h3 class="id">${side.title}</h3>
        <${Tokens} row=${side.row} vocab=${side.vocab} from=${from} mark=${equal ? undefined : n} label=${"Tokens: " + side.title} />
      </div>`)}
    </div>
    <${Legend} />
  </section>`;
}

// useSample reads sample n, and reads it again when revision changes. It returns {s} or {error}, and {}
// until then.
export function useSample(n, revision) {
  const [state, set] = useState({});
  useEffect(() => {
    let stopped = false;
    sample(n).then(
      (s) => stopped || set(s ? { s } : { error: `There is no sample ${n}.` }),
      (e) => stopped || set({ error: e.message }),
    );
    return () => (stopped = true);
  }, [n, revision]);
  return state;
}

// Compare is the page that compares two samples.
export function Compare({ a, b, samples, query }) {
  const left = useSample(a);
  const right = useSample(b);
  const [rows, setRows] = useState([Number(query.a ?? 0), Number(query.b ?? 0)]);
  useKeys({ x: () => go(`/compare/${b}/${a}`) });
  const error = left.error ?? right.error;
  if (error) return html`<main id="main"><p class="bad" role="alert">${error}</p></main>`;
  if (!left.s || !right.s) return html`<main id="main"><p role="status" class="soft">Reading two samples \u2026</p></main>`;
  const side = (s, which) => {
    const row = s.rows[Math.min(rows[which], s.rows.length - 1)];
    return row && { row, vocab: s.vocab, title: `${s.task}, sample ${s.index}, row ${row.segment}` };
  };
  const head = (n, s, which) => html`<div class="card">
    <h2><a href=${href(`/sample/${n}`)}>${s.task}, sample ${s.index}</a></h2>
    <p>reward ${value(s.reward)}, ${s.status}${s.stop_reason && ` (${s.stop_reason})`}, ${plural(s.rows.length, "row")}</p>
    ${s.rows.length > 1 && html`<label>row <select value=${rows[which]} onChange=${(e) => setRows(rows.with(which, Number(e.target.value)))}>${s.rows.map((r, i) => html`<option value=${i}>${r.segment}</option>`)}</select></label>`}
  </div>`;
  const [x, y] = [side(left.s, 0), side(right.s, 1)];
  return html`<main id="main" class="full" tabindex="-1">
    <h1>Compare two samples</h1>
    ${left.s.group !== right.s.group && html`<p class="warn">The samples are of different groups.</p>`}
    <div class="pair">${head(a, left.s, 0)}${head(b, right.s, 1)}</div>
    ${x && y ? html`<${Beside} a=${x} b=${y} />` : html`<p>A sample without rows has no tokens to compare.</p>`}
  </main>`;
}
