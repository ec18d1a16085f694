// The table of tasks. A task is {task, samples, scored, passed, mean, sampled, same, k, pass1, passk}.
import { passAtK } from "./format.js";

function finish(t) {
  t.mean = t.scored ? t.sum / t.scored : null;
  t.sampled = t.tokens / t.samples;
  t.k = t.scored;
  t.pass1 = t.scored ? passAtK(t.scored, t.passed, 1) : 0;
  t.passk = t.scored ? passAtK(t.scored, t.passed, t.k) : 0;
  return t;
}

// Tasks without a score come last, because nothing is known about them.
const hardest = (a, b) => (a.mean === null) - (b.mean === null) || a.mean - b.mean || b.sampled - a.sampled || (a.task < b.task ? -1 : 1);

// fromSamples returns all tasks of the run, hardest first.
export function fromSamples(s, pass) {
  const all = [];
  for (let i = 0; i < s.n; i++) {
    if (s.failed[i] || s.rows[i] === 0) continue;
    const t = (all[s.group[i]] ??= { task: s.words.task[s.task[i]], samples: 0, scored: 0, passed: 0, sum: 0, tokens: 0, same: true, first: null });
    t.samples++;
    t.tokens += s.sampled[i];
    const reward = s.reward[i];
    if (reward === null) continue;
    if (t.scored === 0) t.first = reward;
    t.same &&= reward === t.first;
    t.scored++;
    t.sum += reward;
    if (reward >= pass) t.passed++;
  }
  return all.filter(Boolean).map(finish).sort(hardest);
}

// fromReport returns the hardest tasks, which the report contains.
export const fromReport = (r) => (r.groups.hardest ?? []).map((t) => finish({ ...t, sum: t.reward_sum, tokens: t.sampled_tokens, same: t.equal ?? false }));
