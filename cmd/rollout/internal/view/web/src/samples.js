// The list of samples, with its filters.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "./h.js";
import { List } from "./list.js";
import { useKeys } from "./keys.js";
import { empty, flagsOf, isFiltered, matching } from "./filter.js";
import { amount, count, middle, plural, seconds, value } from "./format.js";
import { go, href, replace } from "./route.js";
import { live, search } from "./source.js";

// current is the list that the user saw last, and the number of the sample with the cursor. The page
// of a sample needs them for "next" and "previous".
export const current = { list: [], selected: 0 };

const columns = [
  ["task", "task", ""],
  ["index", "sample", "n"],
  ["reward", "reward", "n"],
  ["status", "status", ""],
  ["grade", "grade", "extra"],
  ["tokens", "tokens", "n"],
  ["trained", "trained", "n extra"],
  ["calls", "calls", "n extra"],
  ["rows", "rows", "n extra"],
  ["seconds", "time", "n extra"],
  ["flags", "flags", "extra"],
];

// letter is the width of a letter in a cell, in pixels, rounded up.
const letter = 9;

// useSearch returns the numbers of the samples that contain the text, while they are found. When the
// samples have changed, it searches again, and returns the earlier samples too until it has finished.
function useSearch(text, samples) {
  const [state, set] = useState({ text: "", found: null, note: "" });
  useEffect(() => {
    if (!text) return set({ text, found: null, note: "" });
    const abort = new AbortController();
    const earlier = state.text === text ? state.found : [];
    const found = new Set();
    set({ text, found: new Set(earlier), note: "searching \u2026" });
    const timer = setTimeout(async () => {
      try {
        const note = await search(text, abort.signal, (part) => {
          part.found.forEach((i) => found.add(i));
          set({ text, found: new Set([...earlier, ...found]), note: `searched ${count(part.done)} of ${plural(part.of, "sample")} \u2026` });
        });
        set({ text, found, note });
      } catch (e) {
        if (!abort.signal.aborted) set({ text, found, note: e.message });
      }
    }, live ? 250 : 0);
    return () => (clearTimeout(timer), abort.abort());
  }, [text, samples.revision]);
  return state;
}

// Samples is the page of the list. waiting is the number of samples that are only in the write-ahead
// log.
export function Samples({ samples: s, waiting, query }) {
  const filter = { ...empty, ...query };
  const order = JSON.stringify(filter);
  const { found, note } = useSearch(filter.q, s);
  const list = useMemo(() => matching(s, filter, found), [s, found, order]);
  const [moves, setMoves] = useState(0); // of the cursor
  const text = useRef();
  const at = useMemo(() => list.indexOf(current.selected), [list, moves]);
  const cursor = Math.max(0, at);
  current.list = list;
  const select = (i) => {
    current.selected = list[i];
    setMoves(moves + 1);
  };
  const last = useRef(order);
  if (order !== last.current) current.selected = undefined; // of the first row
  last.current = order;
  const set = (name, v) => replace("/samples", { ...filter, [name]: v });
  const open = (i) => {
    current.selected = list[i];
    go(`/sample/${list[i]}`);
  };
  const move = (by) => list.length > 0 && select(Math.max(0, Math.min(list.length - 1, cursor + by)));
  useKeys({
    "/": () => text.current.focus(),
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    PageDown: () => move(15),
    PageUp: () => move(-15),
    Home: () => list.length > 0 && select(0),
    End: () => list.length > 0 && select(list.length - 1),
    Enter: () => list.length > 0 && open(cursor),
  });

  const sort = (name) => replace("/samples", { ...filter, sort: name, desc: filter.sort === name && filter.desc === "" ? "1" : "" });
  const header = columns.map(([name, title, kind]) => {
    const by = filter.sort === name;
    const order = by ? (filter.desc ? "descending" : "ascending") : "none";
    return html`<span role="columnheader" class=${kind} aria-sort=${order}><button type="button" onClick=${() => sort(name)}>${title}${by && (filter.desc ? " \u2193" : " \u2191")}</button></span>`;
  });
  const cells = (at, width) => {
    const i = list[at];
    const task = s.words.task[s.task[i]];
    const cell = (kind, text) => ({ kind, text });
    return [
      { kind: "", text: middle(task, Math.floor(width / letter)), href: href(`/sample/${i}`), title: task },
      cell("n", s.index[i]),
      cell(s.reward[i] === null ? "n soft" : "n", value(s.reward[i])),
      cell(s.failed[i] ? "bad" : "", s.words.status[s.status[i]]),
      cell("extra", s.words.grade[s.grade[i]]),
      cell("n", amount(s.tokens[i])),
      cell("n extra", amount(s.trained[i])),
      cell("n extra", s.calls[i]),
      cell("n extra", s.rows[i]),
      cell("n extra", seconds(s.seconds[i])),
      cell("extra", flagsOf(s, i).join(", ")),
    ];
  };
  return html`<main id="main" class="samples" tabindex="-1">
    <h1 class="unseen">Samples</h1>
    <${Filters} s=${s} filter=${filter} set=${set} text=${text} />
    <p class="soft" role="status">
      ${isFiltered(filter) ? `${count(list.length)} of ${plural(s.n, "sample")}` : plural(s.n, "sample")}${note && ` \u2013 ${note}`}
      ${isFiltered(filter) && html` <button type="button" class="quiet" onClick=${() => replace("/samples", { sort: filter.sort, desc: filter.desc })}>Clear filters</button>`}
    </p>
    ${waiting > 0 && html`<p class="soft">Not listed: ${plural(waiting, "sample")} in the write-ahead log. A sample is listed when its shard is committed.</p>`}
    <${List} label="Samples" ids=${list} order=${order} columns=${columns.length} header=${header} cells=${cells} selected=${cursor} reveal=${`${moves} ${at >= 0}`} open=${open} />
  </main>`;
}

function Filters({ s, filter, set, text }) {
  const id = (name) => "filter-" + name;
  const choice = (name, title, words) =>
    html`<label for=${id(name)}>${title}<select id=${id(name)} value=${filter[name]} onChange=${(e) => set(name, e.target.value)}>
      <option value="">all</option>
      ${[...words].filter(Boolean).sort().map((w) => html`<option value=${w} selected=${w === filter[name]}>${w}</option>`)}
    </select></label>`;
  const range = (title, low, high) =>
    html`<fieldset><legend>${title}</legend>
      <input id=${id(low)} type="number" step="any" aria-label=${title + " from"} placeholder="from" value=${filter[low]} onInput=${(e) => set(low, e.target.value)} />
      <input id=${id(high)} type="number" step="any" aria-label=${title + " to"} placeholder="to" value=${filter[high]} onInput=${(e) => set(high, e.target.value)} />
    </fieldset>`;
  return html`<form class="filters card" role="search" onSubmit=${(e) => e.preventDefault()}>
    <label for=${id("q")}>text<input id=${id("q")} ref=${text} type="search" value=${filter.q} onInput=${(e) => set("q", e.target.value)} /></label>
    <label for=${id("task")}>task<input id=${id("task")} type="search" value=${filter.task} onInput=${(e) => set("task", e.target.value)} /></label>
    ${choice("status", "status", s.words.status)} ${choice("grade", "grade", s.words.grade)} ${choice("flag", "flag", s.words.flag)}
    ${range("reward", "min", "max")} ${range("tokens", "short", "long")}
  </form>`;
}
