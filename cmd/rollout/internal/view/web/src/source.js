// The data of the page. A page that rollout view serves fetches its data. A page in a file contains
// it. Both have the same shape.

const embedded = JSON.parse(document.getElementById("data").textContent);

// live is true on a page that rollout view serves. follow is true with --follow.
export const live = embedded.live === true;
export const follow = embedded.follow === true;

async function get(path) {
  const reply = await fetch(path, { cache: "no-store" }).catch(() => {
    throw new Error("rollout view does not answer: it has ended");
  });
  if (reply.status === 304) return null;
  if (!reply.ok) throw new Error((await reply.text()).trim() || `${path}: ${reply.status}`);
  return reply.json();
}

// overview returns {name, report, notes, left_out}.
export const overview = async () => (live ? get("api/overview") : embedded.overview);

// samples returns the columns of all samples, or null if they have not changed since the revision.
// A page without samples returns undefined.
export const samples = async (since) => (live ? get(`api/samples?since=${since ?? ""}`) : embedded.samples);

// hasSamples is false on the page of a report.
export const hasSamples = live || embedded.samples !== undefined;

// sample returns all rows and failures of sample n.
export const sample = async (n) => (live ? get(`api/sample/${n}`) : embedded.details[n]);

// search calls found with {done, of, found}: the numbers of the samples with the text. It returns
// the reason why only a part was searched, or "".
export async function search(text, signal, found) {
  if (!live) {
    const want = text.toLowerCase();
    const hits = [];
    embedded.details.forEach((s, n) => textsOf(s).some((t) => t.toLowerCase().includes(want)) && hits.push(n));
    found({ done: embedded.details.length, of: embedded.details.length, found: hits });
    return "";
  }
  const reply = await fetch(`api/search?q=${encodeURIComponent(text)}`, { signal, cache: "no-store" });
  if (!reply.ok) throw new Error((await reply.text()).trim());
  let rest = "";
  let note = "";
  const decoder = new TextDecoder();
  const reader = reply.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return note;
    rest += decoder.decode(value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const part = JSON.parse(line);
      if (part.error) throw new Error(part.error);
      note = part.note ?? note;
      found(part);
    }
  }
}

// textsOf returns the texts of a sample that search compares.
function textsOf(s) {
  const texts = [s.task];
  for (const f of s.failures) texts.push(f.error, f.text);
  for (const row of s.rows) for (const span of row.text ?? []) texts.push(span.map((part) => part.t).join(""));
  if (s.messages) texts.push(s.messages);
  return texts;
}
