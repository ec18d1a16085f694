// A List shows a part of many rows. All rows have the same height.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html, visible } from "./h.js";

// tallest is the largest height of the list in pixels. A longer list is scaled, because browsers limit
// the height of an element.
const tallest = 8e6;

// spare is the number of rows above and below the visible rows.
const spare = 8;

// height is the height of a row in pixels. It must match --row in page.css.
const height = 34;

// chunk is the number of rows whose places are counted from the same row, because a browser places
// elements many million pixels away only roughly.
const chunk = 4096;

// settled is the time after the last scroll event, in milliseconds, after which the list is at rest.
const settled = 150;

// Rows draws rows with a few elements, without preact: while the list scrolls, an element that leaves
// the view gets the content of a row that enters it. A cell is {text, kind}, and a cell with an href is a
// link, and has a title.
class Rows {
  #part;
  #lines = [];

  constructor(part) {
    this.#part = part;
  }

  #create(cells) {
    const element = document.createElement("div");
    element.className = "line";
    element.setAttribute("role", "row");
    const line = { element, i: -1, y: -1, selected: undefined, cells: [] };
    for (const { href } of cells) {
      const cell = document.createElement("span");
      cell.setAttribute("role", "gridcell");
      const text = document.createTextNode("");
      const link = href === undefined ? null : document.createElement("a");
      if (link) link.tabIndex = -1;
      (link ?? cell).append(text);
      if (link) cell.append(link);
      element.append(cell);
      line.cells.push({ cell, text, link, kind: "" });
    }
    return line;
  }

  // draw draws the rows from first to last-1. If all is true, the cells of all rows can have changed.
  // The place of row base is the top of the part.
  draw(first, last, { cells, width, selected, base, all }) {
    const n = Math.max(0, last - first);
    if (this.#lines.length !== n) {
      while (this.#lines.length > n) this.#lines.pop().element.remove();
      while (this.#lines.length < n) {
        const line = this.#create(cells(first, width));
        this.#lines.push(line);
        this.#part.append(line.element);
      }
      all = true;
    }
    for (let i = first; i < last; i++) {
      const line = this.#lines[i % n];
      if (all || line.i !== i) this.#fill(line, i, cells(i, width));
      const y = (i - base) * height;
      if (line.y !== y) line.element.style.transform = `translateY(${(line.y = y)}px)`;
      const chosen = i === selected;
      if (line.selected !== chosen) line.element.ariaSelected = String((line.selected = chosen));
    }
    if (all) this.order();
  }

  #fill(line, i, cells) {
    line.i = i;
    line.element.id = "row" + i;
    line.element.ariaRowIndex = String(i + 2);
    cells.forEach(({ text, kind, href, title }, k) => {
      const old = line.cells[k];
      const shown = visible(String(text));
      if (old.text.data !== shown) old.text.data = shown;
      if (old.kind !== kind) old.cell.className = old.kind = kind;
      if (old.link) [old.link.href, old.link.title] = [href, visible(title)];
    });
  }

  // order brings the elements into the order of their rows, for screen readers and for copied text.
  order() {
    const all = this.#lines.map((line) => line.i).every((i, k, list) => k === 0 || list[k - 1] < i);
    if (all && this.#part.firstElementChild === this.#lines[0]?.element) return;
    this.#part.append(...[...this.#lines].sort((a, b) => a.i - b.i).map((line) => line.element));
  }

  // at returns the number of the row of an element.
  at(element) {
    return this.#lines.find((line) => line.element === element)?.i;
  }
}

// List calls cells(i, width) for the rows that it shows. width is the width of a first cell in pixels. The array ids contains the identity of each row. It
// must be a new array when a row has changed. If order is the same as before, the list stays at the row that it
// shows first. selected is the number of the row with the cursor. The list scrolls to the cursor when
// reveal changes.
export function List({ ids, order, columns, header, cells, selected, reveal, open, label }) {
  const box = useRef();
  const part = useRef();
  const rows = useRef();
  const [{ room, width }, setSize] = useState({ room: 600, width: 300 }); // the height of the view without the header; the width of a first cell
  const count = ids.length;
  const total = count * height;
  const scaled = Math.min(total, tallest);

  // top returns the number of pixels above the view, as if the list were not scaled.
  const top = () => (scaled > room ? (box.current.scrollTop / (scaled - room)) * (total - room) : 0);
  const anchor = useRef({ order, top: 0 }); // the row that is shown first, and how much of it is hidden
  const drawn = useRef();
  const draw = () => {
    const now = top();
    const at = Math.floor(now / height);
    anchor.current = { order, top: now, id: ids[at], hidden: now - at * height };
    const n = Math.min(count, Math.ceil(room / height) + 1 + 2 * spare); // the same for each place
    const first = Math.max(0, Math.min(at - spare, count - n));
    const base = first - (first % chunk);
    const all = drawn.current?.ids !== ids || drawn.current.width !== width;
    rows.current.draw(first, first + n, { cells, width, selected, base, all });
    drawn.current = { ids, width };
    const offset = (scaled < total ? box.current.scrollTop - now : 0) + base * height;
    part.current.style.transform = offset === 0 ? "" : `translateY(${offset}px)`;
    if (selected >= first && selected < first + n) box.current.setAttribute("aria-activedescendant", "row" + selected);
    else box.current.removeAttribute("aria-activedescendant");
  };
  const scrollTo = (want) => (box.current.scrollTop = total > room ? (want / (total - room)) * (scaled - room) : 0);

  useLayoutEffect(() => {
    rows.current = new Rows(part.current);
    const watch = new ResizeObserver(() => {
      const room = Math.max(height, box.current.clientHeight - height);
      const width = box.current.querySelector(".head > :first-child").clientWidth;
      setSize((old) => (old.room === room && old.width === width ? old : { room, width }));
    });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    const had = anchor.current;
    const at = ids.indexOf(had.id);
    if (had.order !== order) scrollTo(0);
    else if (had.top > 0 && at >= 0) scrollTo(at * height + had.hidden);
  }, [ids, room]);
  useLayoutEffect(() => {
    if (total === 0) return;
    const at = selected * height;
    const rest = room - height;
    if (at < top() || at > top() + rest) scrollTo(at < top() ? at : at - rest);
  }, [reveal]);
  useLayoutEffect(draw); // last: the list is at its place

  const rest = useRef();
  const scrolled = () => {
    draw();
    clearTimeout(rest.current);
    rest.current = setTimeout(() => rows.current.order(), settled);
  };
  useLayoutEffect(() => () => clearTimeout(rest.current), []);
  const clicked = (e) => {
    const at = rows.current.at(e.target.closest(".line"));
    if (at === undefined || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return; // the link opens another tab
    e.preventDefault();
    open(at);
  };
  return html`<div class="list">
    <div class="rows" role="grid" aria-label=${label} aria-rowcount=${count + 1} aria-colcount=${columns} ref=${box} tabindex="0" onScroll=${scrolled}>
      <div class="head line" role="row" aria-rowindex="1">${header}</div>
      <div class="tall" role="rowgroup" style=${{ height: scaled + "px" }}>
        <div class="part" role="presentation" ref=${part} onClick=${clicked}></div>
      </div>
    </div>
  </div>`;
}
