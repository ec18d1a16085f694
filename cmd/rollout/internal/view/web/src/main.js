import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./h.js";
import * as source from "./source.js";
import { go, href, useRoute } from "./route.js";
import { Help, useKeys } from "./keys.js";
import { Overview } from "./overview.js";
import { Samples } from "./samples.js";
import { Sample } from "./sample.js";
import { Compare } from "./compare.js";

// interval is the time between two requests for new samples, in milliseconds.
const interval = 3000;

// useData loads the overview and the samples, and loads them again while the run grows.
function useData() {
  const [overview, setOverview] = useState(null);
  const [samples, setSamples] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => {
    let revision;
    const load = async () => {
      try {
        const next = source.hasSamples && (await source.samples(revision));
        if (next) {
          revision = next.revision;
          setSamples(next);
        }
        setOverview(await source.overview()); // afterwards: the report of a large run takes a second
        setError("");
      } catch (e) {
        setError(e.message);
      }
      if (source.follow) setTimeout(load, interval);
    };
    load();
  }, []);
  return { overview, samples, error };
}

function Page() {
  const route = useRoute();
  const { overview, samples, error } = useData();
  const [help, setHelp] = useState(false);
  const [at, id, other] = route.path;
  const filter = useRef({}); // the last filter of the list
  if (at === "samples") filter.current = route.query;
  useKeys({
    "?": () => setHelp(!help),
    Escape: () => (help ? setHelp(false) : at === "sample" || at === "compare" ? history.back() : null),
    "g o": () => go("/"),
    "g s": () => source.hasSamples && go("/samples", filter.current),
  });
  const name = overview?.name ?? "";
  useEffect(() => {
    const what = { samples: "samples", sample: `sample ${id}`, compare: `samples ${id} and ${other}` }[at];
    if (name) document.title = `${name} \u2013 ${what ?? "rollout"}`;
  }, [name, at, id, other]);
  const tab = (path, text, query) => html`<a href=${href("/" + path, query)} aria-current=${(at ?? "") === path ? "page" : undefined}>${text}</a>`;
  let body;
  if (at === undefined) body = overview ? html`<${Overview} ...${overview} samples=${samples} />` : html`<${Loading} error=${error} what="the report" />`;
  else if (!source.hasSamples) body = html`<main id="main"><p>This page has no samples. Open the run with rollout view.</p></main>`;
  else if (!samples) body = html`<${Loading} error=${error} what="the samples" />`;
  else if (at === "samples") body = html`<${Samples} samples=${samples} waiting=${overview?.report.coverage.durable ?? 0} query=${route.query} />`;
  else if (at === "sample") body = html`<${Sample} key=${id} n=${Number(id)} samples=${samples} row=${route.query.row} />`;
  else if (at === "compare") body = html`<${Compare} key=${id + "/" + other} a=${Number(id)} b=${Number(other)} samples=${samples} query=${route.query} />`;
  else body = html`<main id="main"><p>No such page. <a href="#/">Overview</a></p></main>`;
  return html`
    <a class="skip" href="#main" onClick=${(e) => (e.preventDefault(), document.getElementById("main")?.focus())}>Skip to content</a>
    <nav class="top" aria-label="Pages">
      <b class="id">${name}</b>
      ${tab("", "Overview")} ${source.hasSamples && tab("samples", "Samples", filter.current)}
      <button type="button" class="quiet" aria-haspopup="dialog" onClick=${() => setHelp(true)}>Keys <kbd>?</kbd></button>
      ${source.follow && html`<span class="soft">following</span>`}
    </nav>
    ${error && overview && html`<p class="card bad" role="alert">${error}</p>`} ${body}
    ${help && html`<${Help} close=${() => setHelp(false)} />`}
  `;
}

const Loading = ({ error, what }) =>
  html`<main id="main" tabindex="-1"><p role="status" class=${error ? "bad" : "soft"}>${error || `Reading ${what} \u2026`}</p></main>`;

render(html`<${Page} />`, document.getElementById("page"));
