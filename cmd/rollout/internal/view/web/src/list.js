// A List shows a part of many rows. All rows have the same height.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./h.js";

// tallest is the largest height of the list in pixels. A longer list is scaled, because browsers limit
// the height of an element.
const tallest = 8e6;

// spare is the number of rows above and below the visible rows.
const spare = 12;

// height is the height of a row in pixels. It must match --row in page.css.
const height = 34;

// List calls row(i) for the rows that it shows. The array ids contains the identity of each row. It
// must be a new array when a row has changed. If order is the same as before, the list stays at the row that it
// shows first. selected is the number of the row with the cursor. The list scrolls to the cursor when
// reveal changes.
export function List({ ids, order, columns, header, row, selected, reveal, open, label }) {
  const box = useRef();
  const [from, setFrom] = useState(0); // the row that is shown first; with a fraction if the list is scaled
  const [view, setView] = useState(600);
  const count = ids.length;
  const total = count * height;
  const scaled = Math.min(total, tallest);
  const room = () => Math.max(height, box.current.clientHeight - height); // without the header

  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setView(room()));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);

  // top returns the number of pixels above the view, as if the list were not scaled.
  const top = () => (scaled > room() ? (box.current.scrollTop / (scaled - room())) * (total - room()) : 0);
  const anchor = useRef({ order, top: 0 }); // the row that is shown first, and how much of it is hidden
  const scrolled = () => {
    const at = Math.floor(top() / height);
    anchor.current = { order, top: top(), id: ids[at], hidden: top() - at * height };
    setFrom(scaled < total ? top() / height : at);
  };
  const scrollTo = (want) => {
    box.current.scrollTop = total > room() ? (want / (total - room())) * (scaled - room()) : 0;
    scrolled();
  };
  useLayoutEffect(() => {
    const had = anchor.current;
    const at = ids.indexOf(had.id);
    if (had.order !== order) scrollTo(0);
    else if (had.top > 0 && at >= 0) scrollTo(at * height + had.hidden);
    else scrolled();
  }, [ids, view]);
  useLayoutEffect(() => {
    if (total === 0) return;
    const at = selected * height;
    const rest = room() - height;
    if (at < top() || at > top() + rest) scrollTo(at < top() ? at : at - rest);
  }, [reveal]);

  const first = Math.max(0, Math.min(Math.floor(from), count - 1) - spare);
  const last = Math.min(count, Math.ceil(from + view / height) + spare);
  // A row that was shown before keeps its element, and preact skips it.
  const shown = useRef({});
  const reuse = shown.current.ids === ids ? shown.current.rows : new Map();
  const rows = [];
  const next = new Map();
  for (let i = first; i < last; i++) {
    const key = i === selected ? "selected" + i : i;
    const line = reuse.get(key) ?? html`<div key=${i} id=${"row" + i} role="row" aria-rowindex=${i + 2} aria-selected=${i === selected} class="line" onClick=${() => open(i)}>${row(i)}</div>`;
    next.set(key, line);
    rows.push(line);
  }
  shown.current = { ids, rows: next };
  const offset = scaled < total ? (box.current?.scrollTop ?? 0) - (from - first) * height : first * height;
  return html`<div class="list">
    <div class="rows" role="grid" aria-label=${label} aria-rowcount=${count + 1} aria-colcount=${columns} ref=${box} tabindex="0" onScroll=${scrolled}
      aria-activedescendant=${selected >= first && selected < last ? "row" + selected : undefined}>
      <div class="head line" role="row" aria-rowindex="1">${header}</div>
      <div class="tall" role="rowgroup" style=${{ height: scaled + "px" }}>
        <div class="part" role="presentation" style=${{ transform: `translateY(${offset}px)` }}>${rows}</div>
      </div>
    </div>
  </div>`;
}
