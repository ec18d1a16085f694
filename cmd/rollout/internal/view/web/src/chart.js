// Charts. Each has a title with the name of the run, axes that start at 0 or say so, and a text for
// people who cannot see it. A chart with too few points is left out.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "./h.js";
import { count, value } from "./format.js";

// fewest is the smallest number of points that is drawn as a line.
const fewest = 3;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Plot redraws a chart when the width, the theme or the medium changes.
function Plot({ options, data }) {
  const box = useRef();
  useEffect(() => {
    const host = box.current;
    const size = () => ({ width: Math.max(200, host.clientWidth), height: 190 });
    let plot;
    const draw = () => {
      plot?.destroy();
      plot = new uPlot({ ...size(), ...options() }, data, host);
    };
    draw();
    const resized = new ResizeObserver(() => plot.setSize(size()));
    resized.observe(host);
    const media = ["(prefers-color-scheme: dark)", "print"].map((q) => matchMedia(q));
    media.forEach((m) => m.addEventListener("change", draw));
    return () => {
      resized.disconnect();
      media.forEach((m) => m.removeEventListener("change", draw));
      plot.destroy();
    };
  }, [JSON.stringify(data)]); // the options depend only on the data
  return html`<div class="plot" ref=${box}></div>`;
}

function Figure({ title, name, note, about, options, data }) {
  return html`<figure class="card" role="group" aria-label=${title}>
    <figcaption>${title} <span class="soft">${name}</span></figcaption>
    <div role="img" aria-label=${about}><${Plot} options=${options} data=${data} /></div>
    ${note && html`<p class="soft">${note}</p>`}
  </figure>`;
}

// across is the height of an x axis without its label, in pixels.
const across = 24;

// upright returns the width of a y axis without its label, which is enough for its longest value.
const upright = (_, values) => 14 + 6.5 * Math.max(0, ...(values ?? []).map((v) => String(v).length));

// tick formats a number of an axis. It must not round: 0.25 is not 0.3.
const tick = (v) => (Math.abs(v) >= 1000 ? count(v) : value(v));

const axis = (label, size, values, extra = {}) => ({
  label,
  labelSize: 18,
  size,
  font: "11px sans-serif",
  labelFont: "11px sans-serif",
  stroke: color("--soft"),
  grid: { stroke: color("--grid"), width: 1 },
  ticks: { stroke: color("--line"), width: 1, size: 4 },
  values: (_, list) => list.map((v) => (v === null ? "" : values(v))),
  ...extra,
});

// wholes are the steps of an axis of counts. It has no fractions.
const wholes = { incrs: Array.from({ length: 13 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat() };

// fromZero returns the range of an axis that starts at 0, or below 0 if a value is negative.
const fromZero = (_, low, high) => {
  const from = Math.min(0, low ?? 0);
  const to = Math.max(0, high ?? 0);
  const spare = (to - from) * 0.06 || 1;
  return [from < 0 ? from - spare : 0, to > 0 || from === 0 ? to + spare : 0];
};

const base = { legend: { show: false }, cursor: { show: false }, padding: [8, 18, 0, 0] };

// Histogram draws the bins of a distribution: one bar per value, or bars with a width.
export function Histogram({ title, name, unit, what, d }) {
  if (!d || d.bins.length < 2) return null;
  const single = d.bins.every((b) => b.from === b.to);
  const xs = d.bins.map((b, i) => (single ? i : (b.from + b.to) / 2));
  const label = (b) => (single ? value(b.from) : `${value(b.from)} to ${value(b.to)}`);
  const width = single ? 1 : d.bins[0].to - d.bins[0].from;
  const range = [xs[0] - 0.6 * width, xs.at(-1) + 0.6 * width];
  const options = () => ({
    ...base,
    scales: { x: { time: false, range }, y: { range: fromZero } },
    axes: [
      axis(unit, across, single ? (i) => (Number.isInteger(i) && d.bins[i] ? tick(d.bins[i].from) : "") : tick, single ? { splits: () => xs, grid: { show: false } } : { grid: { show: false } }),
      axis(what, upright, tick, wholes),
    ],
    series: [{}, { fill: color("--s1"), stroke: color("--s1"), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [single ? 0.7 : 0.96, 80] }) }],
  });
  const about = `${title}: ${d.bins.map((b) => `${label(b)}: ${count(b.count)} ${what}`).join("; ")}`;
  const note = !single && d.bins[0].from > 0 && `The ${unit} axis starts at ${value(d.bins[0].from)}, not at 0.`;
  return html`<${Figure} title=${title} name=${name} note=${note} about=${about} options=${options} data=${[xs, d.bins.map((b) => b.count)]} />`;
}

const inks = ["--s1", "--s2", "--s3", "--s4"];

// Lines draws lines on a y axis from 0. whole is true if y counts something. A line is {name, points: [[x, y], …], step}. A point without
// a y is a gap.
export function Lines({ title, name, x, y, lines, high, note, xs, whole }) {
  const drawn = lines.filter((l) => l.points.length > 0).slice(0, inks.length);
  if (drawn.every((l) => l.points.filter((p) => p[1] !== null).length < fewest)) return null;
  const tables = drawn.map((l) => [l.points.map((p) => p[0]), l.points.map((p) => p[1])]);
  const data = tables.length === 1 ? tables[0] : uPlot.join(tables);
  if (data[0].at(-1) <= data[0][0]) return null;
  const options = () => ({
    ...base,
    scales: { x: { time: false, distr: xs ? 3 : 1, log: 2 }, y: { range: high ? [0, high] : fromZero } },
    axes: [axis(x, across, tick, xs ? { splits: () => xs } : {}), axis(y, upright, tick, whole ? wholes : {})],
    series: [{}, ...drawn.map((l, i) => ({
      label: l.name, stroke: color(inks[i]), width: 1.6, spanGaps: tables.length > 1,
      points: { show: data[0].length < 40, size: 5, fill: color(inks[i]) }, paths: l.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
    }))],
  });
  const about = `${title}, ${y} by ${x}: ` + drawn.map((l) => {
    const ys = l.points.map((p) => p[1]).filter((v) => v !== null);
    return `${l.name ? l.name + ": " : ""}from ${value(ys[0])} to ${value(ys.at(-1))}, at most ${value(Math.max(...ys))}`;
  }).join("; ");
  const legend = drawn.length > 1 && html`${drawn.map((l, i) => html`<span class="key-line"><span class=${"key " + inks[i].slice(2)}></span>${l.name} </span>`)}`;
  return html`<${Figure} title=${title} name=${name} note=${legend || note} about=${about} options=${options} data=${data} />`;
}
