// Filters and sorts samples. A filter is an object of strings, because it is kept in the URL.

// empty is the filter that all samples pass.
export const empty = { task: "", status: "", grade: "", flag: "", min: "", max: "", short: "", long: "", q: "", sort: "", desc: "" };

// isFiltered reports whether a filter can exclude samples.
export const isFiltered = (f) => Object.keys(empty).some((k) => k !== "sort" && k !== "desc" && f[k] !== "");

const number = (text) => (text === "" || Number.isNaN(Number(text)) ? null : Number(text));

// matching returns the numbers of the samples that pass the filter, sorted. found is the set of
// samples that contain the searched text, or null.
export function matching(s, f, found) {
  const tests = [];
  if (f.task) {
    const want = f.task.toLowerCase();
    const has = s.words.task.map((w) => w.toLowerCase().includes(want));
    tests.push((i) => has[s.task[i]]);
  }
  if (f.status) {
    const at = s.words.status.indexOf(f.status);
    tests.push((i) => s.status[i] === at);
  }
  if (f.grade) {
    const at = s.words.grade.indexOf(f.grade);
    tests.push((i) => s.grade[i] === at);
  }
  if (f.flag) {
    const bit = 2 ** s.words.flag.indexOf(f.flag);
    tests.push((i) => bit >= 1 && Math.floor(s.flags[i] / bit) % 2 === 1);
  }
  const range = (column, low, high) => {
    if (low !== null) tests.push((i) => column[i] !== null && column[i] >= low);
    if (high !== null) tests.push((i) => column[i] !== null && column[i] <= high);
  };
  range(s.reward, number(f.min), number(f.max));
  range(s.tokens, number(f.short), number(f.long));
  if (found) tests.push((i) => found.has(i));
  let out = [];
  for (let i = 0; i < s.n; i++) if (tests.every((t) => t(i))) out.push(i);
  return sorted(s, out, f.sort, f.desc === "1");
}

// sorted orders samples by a column. Samples without a value come last, whatever the direction.
function sorted(s, list, by, down) {
  if (by === "") return down ? list.reverse() : list;
  let column = s[by];
  if (!column) return list;
  if (s.words[by]) {
    const order = s.words[by].map((w, i) => [w, i]).sort((a, b) => (a[0] < b[0] ? -1 : 1));
    const rank = [];
    order.forEach(([, i], at) => (rank[i] = at));
    column = column.map((i) => rank[i] ?? null);
  }
  const sign = down ? -1 : 1;
  return list.sort((a, b) => {
    const x = column[a];
    const y = column[b];
    if (x === y) return a - b;
    if (x === null) return 1;
    if (y === null) return -1;
    return x < y ? -sign : sign;
  });
}

// flagsOf returns the names of the flags of sample i.
export const flagsOf = (s, i) => s.words.flag.filter((_, bit) => Math.floor(s.flags[i] / 2 ** bit) % 2 === 1);

// groupOf returns the numbers of the samples in the group of sample i, by index.
export function groupOf(s, i) {
  const out = [];
  for (let k = 0; k < s.n; k++) if (s.group[k] === s.group[i]) out.push(k);
  return out.sort((a, b) => s.index[a] - s.index[b]);
}
