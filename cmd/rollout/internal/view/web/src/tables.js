// Tables of the overview.
import { html } from "./h.js";
import { count, share, shorten } from "./format.js";

// Table shows rows of cells. A column is [title, kind]; the kind "n" is a number.
export function Table({ caption, columns, rows, none = "none", class: kind = "" }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table class=${kind}>
    <caption>${caption}</caption>
    ${columns.some(([title]) => title) && html`<thead><tr>${columns.map(([title, kind]) => html`<th scope="col" class=${kind}>${title || html`<span class="unseen">name</span>`}</th>`)}</tr></thead>`}
    <tbody>
      ${rows.map((cells) => html`<tr>${cells.map((cell, i) => (i === 0 ? html`<th scope="row" class=${columns[0][1]}>${cell}</th>` : html`<td class=${columns[i]?.[1]}>${cell}</td>`))}</tr>`)}
      ${rows.length === 0 && html`<tr><td class="soft" colspan=${columns.length}>${none}</td></tr>`}
    </tbody>
  </table></div>`;
}

// Card is a box. A wide card takes all columns of the grid.
export const Card = ({ children, wide }) => html`<div class=${"card" + (wide ? " wide" : "")}>${children}</div>`;

// Shares is a table of counts and their shares of the whole, the largest first.
export function Shares({ title, by, of, keep }) {
  const all = Object.entries(by ?? {});
  const whole = of ?? all.reduce((n, [, v]) => n + v, 0);
  if (!keep) all.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const bar = (n) => html`<span class="bar"><span style=${{ width: `${whole ? (100 * n) / whole : 0}%` }}></span></span>`;
  return html`<${Card}><${Table} caption=${title} columns=${[["", "id"], ["", "n"], ["", "n"], ["", "barred"]]}
    rows=${all.map(([name, n]) => [shorten(name || "\u2013", 120), count(n), share(n, whole), bar(n)])} /></${Card}>`;
}

// Spread is a table of distributions. A row is [name, distribution, format].
export function Spread({ title, rows }) {
  const numbers = ["mean", "min", "p10", "p50", "p90", "p99", "max"];
  return html`<${Card} wide><${Table} caption=${title} class="spread" columns=${[["", ""], ["count", "n"], ...numbers.map((n) => [n, "n"])]}
    rows=${rows.map(([name, d, format]) => [name, ...(d ? [count(d.count), ...numbers.map((n) => format(d[n]))] : ["none"])])} /></${Card}>`;
}
