// The overview of a run: the report.
import { useMemo, useState } from "preact/hooks";
import { html } from "./h.js";
import { Histogram, Lines } from "./chart.js";
import { Card, Shares, Spread, Table } from "./tables.js";
import { amount, count, moment, plural, seconds, share, shorten, size, value } from "./format.js";
import { hasSamples } from "./source.js";
import { href } from "./route.js";
import { fromReport, fromSamples } from "./tasks.js";

// Overview is the page of the report. samples has the columns of all samples, or is null.
export function Overview({ name, report: r, notes, left_out, balance, lag_most, samples }) {
  const mood = { complete: "good", running: "warn", incomplete: "bad" }[r.state] ?? "";
  return html`<main id="main" tabindex="-1">
    <h1>${shorten(name)} <span class=${"badge " + mood}>${r.state}</span></h1>
    <p class="soft">run <code>${shorten(r.run_id)}</code>${r.model && html`, model <code>${shorten(r.model)}</code>`}, ${plural(r.tasks, "task")}${r.partitions > 0 && ` in ${plural(r.partitions, "partition")}`}, created ${moment(r.created_at)}${(r.servers ?? []).map((s, i) => html`${i === 0 ? `, ${r.servers.length === 1 ? "server" : plural(r.servers.length, "server")} ` : ", "}<code>${shorten(s)}</code>`)}</p>
    ${left_out && html`<${LeftOut} out=${left_out} />`}
    ${notes.length > 0 && html`<ul class="card notes">${notes.map((n) => html`<li class=${n.mood}>${n.text}</li>`)}</ul>`}
    <${Tiles} r=${r} />
    <${Coverage} r=${r} /><${Failures} r=${r} /><${Rewards} r=${r} name=${name} /><${Tasks} r=${r} samples=${samples} />
    <${Lengths} r=${r} name=${name} balance=${balance} /><${Verification} r=${r} most=${lag_most} /><${Times} r=${r} name=${name} /><${Concurrency} r=${r} name=${name} />
    <${Slowest} r=${r} samples=${samples} /><${Tail} r=${r} /><${Storage} r=${r} />
    <footer>Written ${moment(r.written_at)} by rollout ${r.program} from the files of the run.</footer>
  </main>`;
}

function LeftOut({ out }) {
  return html`<section class="card" aria-label="Samples that are not in this page">
    <p><b>This page has ${plural(out.kept, "sample")} of ${count(out.kept + out.samples)}.</b> It has whole groups from all parts of the run. The numbers of the overview cover the whole run.</p>
    ${out.samples > 0 && html`<details><summary>${plural(out.samples, "sample")} of ${plural(out.tasks, "task")} left out</summary>
      <p class="id">${out.ids.join(", ")}${out.tasks > out.ids.length && `, and ${count(out.tasks - out.ids.length)} more tasks`}</p></details>`}
  </section>`;
}

function Tiles({ r }) {
  const c = r.coverage;
  const tiles = [
    ["committed", count(c.committed), `${share(c.committed, c.planned)} of ${plural(c.planned, "sample")}`],
    ["failed", count(c.failed), share(c.failed, c.planned), c.failed > 0 ? "bad" : ""],
  ];
  const d = r.rewards.all;
  const k = r.rewards.pass_at_k ?? [];
  if (d) tiles.push(["mean reward", value(d.mean), `standard deviation ${value(d.std)}${d.count === c.committed ? "" : `, ${count(d.count)} scored`}`]);
  if (k.length > 0) tiles.push(["pass@1", k[0].value.toFixed(3), k.length > 1 ? `pass@${k.at(-1).k} ${k.at(-1).value.toFixed(3)}` : ""]);
  const s = r.storage;
  if (r.lengths.rows > 0) tiles.push(["rows", count(r.lengths.rows), `${count(s.tokens)} tokens, ${share(s.trainable_tokens, s.tokens)} trained`]);
  if (r.time.total) tiles.push(["median time per sample", seconds(r.time.total.p50), `p99 ${seconds(r.time.total.p99)}`]);
  if (r.throughput?.tokens_per_second > 0) tiles.push(["sampled tokens per second", amount(r.throughput.tokens_per_second), r.clock_jumps?.length ? "over the running time of the invocations" : "from first start to last end"]);
  if (s.tokens > 0) tiles.push(["data", size(s.data_bytes), `${(s.data_bytes / s.tokens).toFixed(2)} bytes per token`]);
  return html`<div class="tiles">${tiles.map(([name, text, note, mood]) => html`<div class="card tile"><small>${name}</small><b class=${mood}>${text}</b><small>${note}</small></div>`)}</div>`;
}

const reasons = (by) => Object.entries(by ?? {}).sort((a, b) => b[1] - a[1]).map(([name, n]) => `${name} ${count(n)}`).join(", ");

function Coverage({ r }) {
  const c = r.coverage;
  const cut = c.late === c.skipped ? "cut at the deadline of their task" : `cut by the tail policy${c.late ? ", or at the deadline of their task" : ""}`;
  const parts = [
    ["c", "committed", c.committed, [c.empty && `${count(c.empty)} of them without rows`, c.lost_calls && `${count(c.lost_calls)} calls of these samples failed and are in failures/`].filter(Boolean).join("; ")],
    c.filtered > 0 && ["o", "filtered", c.filtered, `keep=false: ${reasons(r.filtered_by)}`],
    ["x", "failed", c.failed, c.superseded ? `${count(c.superseded)} earlier failures were superseded by later successes` : ""],
    ["k", "skipped", c.skipped, c.skipped ? cut + (c.unstarted ? `, ${count(c.unstarted)} of them before they started` : "") : ""],
    ["r", "remaining", c.remaining, c.durable ? `${count(c.durable)} of them have ended and are in the write-ahead log` : ""],
  ].filter(Boolean);
  const whole = parts.reduce((n, p) => n + p[2], 0);
  const about = parts.map((p) => `${p[1]} ${p[2]}`).join(", ") + ` of ${plural(c.planned, "sample")}`;
  const sum = c.holds ? `planned = committed + ${c.filtered ? "filtered + " : ""}failed + skipped + remaining` : html`<span class="bad">the folder has more samples than were planned</span>`;
  return html`<h2>Coverage</h2><${Card}>
    <div class="parts" role="img" aria-label=${about}>${parts.map(([key, , n]) => html`<span class=${key} style=${{ width: `${whole ? (100 * n) / whole : 0}%` }}></span>`)}</div>
    <${Table} caption="Samples by outcome" class="stack" columns=${[["", ""], ["samples", "n"], ["share", "n"], ["", "words soft"]]}
      rows=${[...parts.map(([key, title, n, note]) => [html`<span class=${"key " + key}></span>${title}`, count(n), share(n, c.planned), note]), ["planned", count(c.planned), "", sum]]} />
  </${Card}>`;
}

// whole keeps the names of flags in a text on one line.
const whole = (text) => text.split(/(--[a-z-]+)/).map((part, i) => (i % 2 ? html`<span class="cmd">${part}</span>` : part));

function Failures({ r }) {
  const classes = r.failures.classes ?? [];
  if (classes.length === 0) return html`<h2>Failures</h2><p class="soft">No sample failed.</p>`;
  const link = (c) => (hasSamples ? html`<a href=${href("/samples", { status: c.class })}><code>${shorten(c.class)}</code></a>` : html`<code>${shorten(c.class)}</code>`);
  return html`<h2>Failures</h2><${Card}><${Table} caption="Failures by class" class="stack"
      columns=${[["class", ""], ["samples", "n"], ["of planned", "n"], ["what to do", "words"], ["example", "words soft"]]}
      rows=${classes.map((c) => [link(c), count(c.samples), share(c.samples, r.coverage.planned), whole(c.advice), c.example])} /></${Card}>
    ${r.failures.reasons && html`<div class="grid"><${Shares} title="Quarantined samples and calls by reason" by=${r.failures.reasons} /></div>`}`;
}

// series returns the points of values over time, in seconds, minutes or hours since the start.
function series(s, values) {
  const whole = values.length * s.step;
  const [unit, per] = whole < 180 ? ["seconds", 1] : whole < 3 * 3600 ? ["minutes", 60] : ["hours", 3600];
  return { x: `${unit} since ${moment(s.start)}`, points: values.map((v, i) => [(i * s.step) / per, v]) };
}

function Rewards({ r, name }) {
  const w = r.rewards;
  const head = html`<h2>Rewards</h2>${r.scores && html`<p class="soft">The rewards come from scores set <code>${r.scores}</code> of <code>rollout rescore</code>.</p>`}`;
  if (!w.all) return html`${head}<p class="soft">No sample was scored.</p>`;
  const over = w.over_time && series(w.over_time, w.over_time.mean);
  const k = w.pass_at_k ?? [];
  const g = r.groups;
  const groups = [
    ["with data", g.groups],
    ["whole: every sample has data", g.whole, g.groups],
    ["with two scored samples or more", g.scored, g.groups],
    ["of these, with equal rewards", g.zero_variance, g.scored],
    ["\u2013 all passed", g.all_pass, g.scored],
    ["\u2013 none passed", g.none_pass, g.scored],
    ["\u2013 otherwise equal", g.zero_variance - g.all_pass - g.none_pass, g.scored],
  ];
  return html`${head}<div class="grid">
    <${Histogram} title="Samples by reward" name=${name} unit="reward" what="samples" d=${w.all} />
    ${over && html`<${Lines} title="Mean reward over time" name=${name} x=${over.x} y="mean reward" lines=${[{ points: over.points }]} note="A sample counts at the time when it ended. A time without samples is a gap." />`}
    <${Lines} title="pass@k as k grows" name=${name} x="k" y="share of groups" high=${1.05} xs=${k.map((p) => p.k)} lines=${[{ points: k.map((p) => [p.k, p.value]) }]} note="The k axis starts at 1 and is logarithmic." />
    <${Card}><${Table} caption="pass@k in numbers" columns=${[["k", "n"], ["pass@k", "n"], ["groups", "n"]]} rows=${k.map((p) => [p.k, p.value.toFixed(3), count(p.groups)])} />
      <p class="soft">A pass is a reward of at least ${value(w.pass)}. The estimate is unbiased, over the scored samples of each group. Groups with fewer than k scored samples and failed samples are not counted.</p></${Card}>
    ${(w.by_attempt ?? []).length > 1 && html`<${Card}><${Table} caption="Rewards by attempt" columns=${[["attempt", "n"], ["samples", "n"], ["scored", "n"], ["mean reward", "n"]]} rows=${w.by_attempt.map((a) => [a.attempt, count(a.samples), count(a.scored), value(a.mean)])} /></${Card}>`}
    <${Card}><${Table} caption="Groups" columns=${[["", ""], ["groups", "n"], ["share", "n"]]} rows=${groups.map(([title, n, of]) => [title, count(n), of === undefined ? "" : share(n, of)])} /></${Card}>
  </div>`;
}

// mostTasks is the number of tasks in the table of tasks, and fewTasks the number that is shown first.
const mostTasks = 100;
const fewTasks = 20;

function Tasks({ r, samples }) {
  const tasks = useMemo(() => (samples ? fromSamples(samples, r.rewards.pass) : fromReport(r)), [r, samples]);
  const [all, setAll] = useState(false);
  if (tasks.length === 0) return null;
  const shown = tasks.slice(0, all ? mostTasks : fewTasks);
  const places = Math.max(...shown.map((t) => (value(t.mean).split(".")[1] ?? "").length));
  const mean = (t) => (t.mean === null ? value(null) : t.mean.toFixed(Math.min(places, 6)));
  const more = Math.min(mostTasks, tasks.length) - fewTasks;
  const k = Math.max(1, ...tasks.map((t) => t.k));
  const link = (t) => (hasSamples ? html`<a href=${href("/samples", { task: t.task })}>${shorten(t.task)}</a>` : shorten(t.task));
  const whole = samples ? tasks.length : r.groups.groups;
  return html`<h2>Tasks, hardest first</h2><${Card}><${Table} caption=${whole > shown.length ? `The ${shown.length} hardest of ${plural(whole, "task")}` : plural(whole, "task")}
    columns=${[["task", "id"], ["samples", "n extra"], ["scored", "n extra"], ["passed", "n extra"], ["mean reward", "n"], ["pass@1", "n extra"], [k > 1 ? `pass@${k}` : "", "n"], ["mean sampled tokens", "n"], ["rewards", "cmd extra"]]}
    rows=${shown.map((t) => [link(t), count(t.samples), count(t.scored), count(t.passed), mean(t), t.scored ? t.pass1.toFixed(3) : "\u2013", k > 1 && t.k >= k ? t.passk.toFixed(3) : "", amount(t.sampled), t.scored > 1 && t.same ? html`<span class="soft">all equal</span>` : ""])} />
    ${more > 0 && html`<p><button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer tasks" : `Show ${plural(more, "more task")}`}</button></p>`}</${Card}>`;
}

function Lengths({ r, name, balance }) {
  const l = r.lengths;
  const t = r.truncation;
  const ends = [
    [t.cut, "have a row that was cut at tokens.max_row_tokens"],
    [t.length, "have a row whose last output ended at the engine\u2019s token limit"],
    [t.max_steps, "used all their steps"],
  ].filter(([n]) => n > 0);
  return html`<h2>Lengths and truncation</h2>
    ${l.rows > 0 ? html`<div class="grid">
      <${Spread} title="Tokens, calls and rows" rows=${[["prompt tokens per row", l.prompt, amount], ["tokens per row", l.sequence, amount], ["sampled tokens per sample", l.completion, amount], ["calls per sample", l.calls, amount], ["rows per sample", l.rows_per_sample, amount]]} />
      <${Histogram} title="Prompt length" name=${name} unit="tokens" what="rows" d=${l.prompt} />
      <${Histogram} title="Row length" name=${name} unit="tokens" what="rows" d=${l.sequence} />
      <${Histogram} title="Sampled tokens" name=${name} unit="tokens" what="samples" d=${l.completion} />
      <${Shares} title="Samples by status" by=${t.status} /><${Shares} title="Samples by stop reason" by=${t.stop_reasons} /><${Shares} title="Rows by flag" by=${t.flags} of=${l.rows} />
    </div>` : html`<p class="soft">No rows.</p>`}
    ${ends.map(([n, what]) => html`<p>${count(n)} of ${plural(t.samples, "sample")} ${what}.</p>`)}
    ${l.rows > 0 && html`<p class="soft">${count(t.unscored_tokens)} sampled tokens have mask 0, and ${count(t.trimmed_tokens)} were replaced.${balance && ` ${balance}`}</p>`}`;
}

function Verification({ r, most }) {
  const v = r.verification;
  const versions = { ...Object.fromEntries(Object.entries(v.policy_versions?.newest ?? {}).map(([n, c]) => ["version " + n, c])) };
  if (v.policy_versions?.unknown) versions.unknown = v.policy_versions.unknown;
  const lags = r.policy_lag?.groups ?? [];
  const lag = Object.fromEntries(lags.map((n, i) => [plural(i, "version") + (i === most ? " or more" : ""), n]).filter(([, n]) => n > 0));
  return html`<h2>Verification</h2>
    ${r.lengths.rows > 0 ? html`<div class="grid"><${Shares} title="Rows by grade" by=${v.grades} /><${Shares} title="Rows by prompt source" by=${v.prompt_sources} />
      ${v.policy_versions && html`<${Shares} title="Rows by newest policy version" by=${versions} />`}
      ${Object.keys(lag).length > 0 && html`<${Shares} title="Groups by policy lag on arrival" by=${lag} keep />`}</div>` : html`<p class="soft">No rows.</p>`}`;
}

function Times({ r, name }) {
  const t = r.time;
  const rows = [["total", t.total], ["working (excluding queueing and backoff)", t.working], ["total (failed samples)", t.failed]].filter(([, d]) => d);
  const s = r.throughput;
  const tokens = s && series(s, s.tokens.map((v) => v / s.step));
  const samples = s && series(s, s.samples.map((v) => (60 * v) / s.step));
  return html`<h2>Time</h2>
    ${rows.length > 0 ? html`<div class="grid"><${Spread} title="Sample times" rows=${rows.map(([n, d]) => [n, d, seconds])} />
      <${Histogram} title="Time per sample" name=${name} unit="seconds" what="samples" d=${t.total} />
      ${s && html`<${Lines} title="Sampled tokens per second" name=${name} x=${tokens.x} y="tokens/s" lines=${[{ points: tokens.points, step: true }]} />
      <${Lines} title="Samples ended per minute" name=${name} x=${samples.x} y="samples/min" lines=${[{ points: samples.points, step: true }]} />`}</div>` : html`<p class="soft">No sample has ended.</p>`}`;
}

// noLogs returns where the logs are, for a report without logs.
const noLogs = (r) => (r.partitions > 0 ? "The logs are in the spools of the workers." : "The run has no logs.");

// retriesOf returns a sentence about the retries in the logs.
function retriesOf({ retries, partitions }) {
  if (retries.logged === undefined) return partitions ? "Retries are unknown." : "There are no logs, so retries are unknown.";
  if (retries.logged === 0) return "The logs contain no retries.";
  return `${count(retries.logged)} logged retries waited ${seconds(retries.wait_seconds)} in total, ${count(retries.by_class?.rate_limited ?? 0)} of them after a 429 (rate limit).`;
}

// mostChanges is the number of limit changes in the table.
const mostChanges = 60;

function Concurrency({ r, name }) {
  const k = r.controller;
  const changes = k.changes ?? [];
  const flight = k.in_flight ?? [];
  const endpoints = k.endpoints ?? [];
  const times = [...changes, ...flight].map((c) => Date.parse(c.at));
  const first = times.reduce((a, b) => Math.min(a, b), Infinity);
  const last = times.reduce((a, b) => Math.max(a, b), -Infinity);
  const [unit, per] = last - first < 180e3 ? ["seconds", 1e3] : last - first < 3 * 3600e3 ? ["minutes", 60e3] : ["hours", 3600e3];
  const x = (at) => (Date.parse(at) - first) / per;
  const since = `${unit} since ${moment(first)}`;
  const limits = endpoints.map((e) => {
    const points = changes.filter((c) => c.endpoint === e.endpoint).map((c) => [x(c.at), c.to]);
    if (points.length > 0 && points.at(-1)[0] < (last - first) / per) points.push([(last - first) / per, points.at(-1)[1]]);
    return { name: shorten(e.endpoint, 44), step: true, points };
  });
  const attempts = Object.fromEntries(Object.entries(r.retries.attempts ?? {}).map(([n, c]) => ["attempt " + n, c]));
  const shown = changes.slice(-mostChanges).reverse();
  return html`<h2>Concurrency and retries</h2>
    ${times.length + endpoints.length === 0 && html`<p class="soft">${r.invocations ? "The logs contain no data about concurrency." : noLogs(r)}</p>`}
    <div class="grid">
      ${times.length > 0 && html`<${Lines} title="Limit on samples in flight" name=${name} x=${since} y="samples" whole lines=${limits} />
      <${Lines} title="Samples in flight" name=${name} x=${since} y="samples" whole lines=${[{ points: flight.map((p) => [x(p.at), p.value]) }]} />`}
      ${endpoints.length > 0 && html`<${Card}><${Table} caption="Limit of each endpoint" columns=${[["endpoint", "id"], ["last", "n"], ["min", "n"], ["max", "n"], ["changes", "n"], ["decreases", "n"]]} rows=${endpoints.map((e) => [shorten(e.endpoint), e.last, e.min, e.max, count(e.changes), count(e.cuts)])} /></${Card}>`}
      ${k.reasons && html`<${Shares} title="Limit changes by reason" by=${k.reasons} />`}
      <${Shares} title="Samples by final attempt" by=${attempts} />
      ${r.retries.logged > 0 && html`<${Shares} title="Retries by failure class" by=${r.retries.by_class} />`}
    </div>
    ${shown.length > 0 && html`<details class="card wide"><summary>${shown.length === 1 ? "The only change" : `The last ${shown.length} changes`} to the limit</summary>
      <${Table} caption="Changes to the limit" columns=${[["at", ""], ["endpoint", "id"], ["from", "n"], ["to", "n"], ["reason", "words"]]} rows=${shown.map((c) => [moment(c.at), shorten(c.endpoint), c.from || "", c.to, shorten(c.reason)])} /></details>`}
    <p class="soft">
      ${retriesOf(r)}
      ${r.retries.open > 0 && ` ${count(r.retries.open)} attempts have started but have no outcome yet.`}
    </p>`;
}

function Slowest({ r, samples }) {
  const slow = r.slowest ?? [];
  if (slow.length === 0) return html`<h2>Slowest samples</h2><p class="soft">No sample has ended.</p>`;
  const find = (x) => {
    if (!samples) return -1;
    const task = samples.words.task.indexOf(x.task_id);
    for (let i = 0; i < samples.n; i++) if (samples.task[i] === task && samples.index[i] === x.sample_index) return i;
    return -1;
  };
  const name = (x) => {
    const i = find(x);
    return i < 0 ? shorten(x.task_id) : html`<a href=${href(`/sample/${i}`)}>${shorten(x.task_id)}</a>`;
  };
  const how = (x) => (x.row >= 0 ? html`<code>inspect RUN --row ${x.row}</code>` : x.row === -2 ? html`<span class="soft">not yet in a shard</span>` : html`<code>inspect RUN --failures</code>`);
  return html`<h2>Slowest samples</h2><${Card}><${Table} caption=${`The ${slow.length} slowest`}
    columns=${[["task", "id"], ["sample", "n"], ["total", "n"], ["working", "n"], ["attempt", "n"], ["calls", "n"], ["sampled", "n"], ["ended", ""], ["to inspect", "cmd"]]}
    rows=${slow.map((x) => [name(x), x.sample_index, seconds(x.seconds), seconds(x.working_seconds), x.attempt, x.calls, count(x.completion_tokens), shorten(x.status), how(x)])} /></${Card}>`;
}

function Tail({ r }) {
  const t = r.tail_bias;
  if (!t) return null;
  const row = (name, s) => [name, count(s.samples), ...["mean", "p50"].map((k) => (s.seconds ? seconds(s.seconds[k]) : "\u2013")), ...["mean", "p50"].map((k) => (s.completion_tokens ? amount(s.completion_tokens[k]) : "\u2013"))];
  return html`<h2>${r.coverage.late ? "Cut samples" : "Samples cut by the tail policy"}</h2><${Card}><${Table} caption="Kept and cut samples"
    columns=${[["", ""], ["samples", "n"], ["mean time", "n"], ["median time", "n"], ["mean sampled tokens", "n"], ["median", "n"]]} rows=${[row("kept", t.kept), row("cut", t.cut)]} />
    <p class="soft">Cut samples were measured only until the cut: their true times and lengths are larger. The data are biased toward short samples by this difference.</p></${Card}>`;
}

function Storage({ r }) {
  const s = r.storage;
  const runs = r.invocations ?? [];
  const end = (v, i) => {
    if (v.outcome) return shorten(v.outcome) + (v.exit === undefined ? "" : `, exit ${v.exit}`);
    return r.state === "running" && i === runs.length - 1 ? "running" : html`<span class="bad">killed (its log is incomplete)</span>`;
  };
  return html`<h2>Storage and invocations</h2><div class="grid">
    <${Card}><${Table} caption="Storage" columns=${[["", ""], ["size", "n"], ["", ""]]} rows=${[
      ["data", size(s.data_bytes), `in ${plural(s.data_shards, "shard")}`],
      ["failures", size(s.failure_bytes), `in ${plural(s.failure_shards, "shard")}`],
      ["tokens", count(s.tokens), `${share(s.trainable_tokens, s.tokens)} trained`],
      ["bytes per token", s.tokens ? (s.data_bytes / s.tokens).toFixed(2) : "\u2013", ""],
      s.wal_bytes !== undefined && ["write-ahead log", size(s.wal_bytes), s.wal_bytes ? "samples whose shards are still open" : ""],
      !r.partitions && ["duplicates dropped", s.duplicates_refused === undefined ? "\u2013" : count(s.duplicates_refused), s.duplicates_refused === undefined ? "not recorded" : ""],
    ].filter(Boolean)} /></${Card}>
    <${Card}><${Table} caption="Invocations" none=${noLogs(r)} columns=${[["log", ""], ["started", ""], ["duration", "n"], ["ended", ""]]}
      rows=${runs.map((v, i) => [html`${shorten(v.log)}${v.resumed && html` <span class="soft">resumed</span>`}`, moment(v.started), seconds(v.seconds), end(v, i)])} /></${Card}>
  </div>`;
}
