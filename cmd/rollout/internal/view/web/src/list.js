// A List shows a part of many rows. All rows have the same height.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./h.js";

// tallest is the height in pixels from which on the list is scaled, because browsers limit the
// height of an element.
const tallest = 8e6;

// spare is the number of rows above and below the visible rows.
const spare = 12;

// height is the height of a row in pixels. It must match --row in page.css.
const height = 34;

// List calls row(i) for the rows that it shows. selected is the row with the cursor, or -1. version
// must change when a row changes.
export function List({ version, count, columns, header, row, selected, select, open, label }) {
  const box = useRef();
  const [from, setFrom] = useState(0);
  const [view, setView] = useState(600);
  const total = count * height;
  const scaled = Math.min(total, tallest);
  const place = (top, of) => (scaled > view ? (top / (scaled - view)) * Math.max(0, of - view) : 0);

  useLayoutEffect(() => {
    const host = box.current;
    const watch = new ResizeObserver(() => setView(Math.max(height, host.clientHeight - height))); // without the header
    watch.observe(host);
    return () => watch.disconnect();
  }, []);

  const scroll = () => {
    const top = box.current.scrollTop;
    setFrom(Math.floor(place(top, total) / height));
  };
  useEffect(scroll, [count, view]);

  // The row with the cursor stays visible.
  useEffect(() => {
    if (selected < 0 || total === 0) return;
    const at = selected * height;
    const top = place(box.current.scrollTop, total);
    const rest = view - height;
    if (at >= top && at <= top + rest) return;
    const want = at < top ? at : at - rest;
    box.current.scrollTop = total > view ? (want / (total - view)) * (scaled - view) : 0;
  }, [selected]);

  const first = Math.max(0, Math.min(from, count - 1) - spare);
  const last = Math.min(count, from + Math.ceil(view / height) + spare);
  // A row that was shown before keeps its element, and preact skips it.
  const shown = useRef({});
  const reuse = shown.current.version === version ? shown.current.rows : new Map();
  const rows = [];
  const next = new Map();
  for (let i = first; i < last; i++) {
    const key = i === selected ? "selected" + i : i;
    const line = reuse.get(key) ?? html`<div key=${i} id=${"row" + i} role="row" aria-rowindex=${i + 2} aria-selected=${i === selected} class="line" onClick=${() => (select(i), open(i))}>${row(i)}</div>`;
    next.set(key, line);
    rows.push(line);
  }
  shown.current = { version, rows: next };
  const offset = scaled < total ? (box.current?.scrollTop ?? 0) - (from - first) * height : first * height;
  return html`<div class="list">
    <div class="rows" role="grid" aria-label=${label} aria-rowcount=${count + 1} aria-colcount=${columns} ref=${box} tabindex="0" onScroll=${scroll}
      aria-activedescendant=${selected >= first && selected < last ? "row" + selected : undefined}>
      <div class="head line" role="row" aria-rowindex="1">${header}</div>
      <div class="tall" role="rowgroup" style=${{ height: scaled + "px" }}>
        <div class="part" role="presentation" style=${{ transform: `translateY(${offset}px)` }}>${rows}</div>
      </div>
    </div>
  </div>`;
}
