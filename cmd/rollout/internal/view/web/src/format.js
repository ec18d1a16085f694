// Formats numbers for people.

const nbsp = "\u00a0";
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

// count formats a whole number, such as 1,234,567.
export const count = (n) => whole.format(n);

// plural formats a number and a noun, such as 1 sample or 1,234 samples.
export const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

// amount formats a number of tokens or calls. It omits the decimals of a large number.
export const amount = (v) => (Math.abs(v) >= 100 || Number.isInteger(v) ? count(v) : v.toFixed(1));

// value formats a number with four significant digits.
export function value(v) {
  if (v === null || v === undefined) return "\u2013";
  const text = String(Number(v.toPrecision(4)));
  return text;
}

// seconds formats a duration, such as 0.42 s, 12.3 s, 1 min 05 s or 2 h 03 min.
export function seconds(s) {
  const two = (n) => String(n).padStart(2, "0");
  if (s < 9.995) return s.toFixed(2) + nbsp + "s";
  if (s < 59.95) return s.toFixed(1) + nbsp + "s";
  if (s < 3599.5) {
    const n = Math.round(s);
    return `${Math.floor(n / 60)}${nbsp}min ${two(n % 60)}${nbsp}s`;
  }
  const n = Math.round(s / 60);
  return `${count(Math.floor(n / 60))}${nbsp}h ${two(n % 60)}${nbsp}min`;
}

// size formats a number of bytes, such as 512 B or 1.23 MB.
export function size(n) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let i = 0;
  for (; n >= 999.5 && i < units.length - 1; i++) n /= 1000;
  return (i === 0 ? String(n) : n.toPrecision(3)) + nbsp + units[i];
}

// share formats part/whole as a percentage, such as 12.3 %.
export function share(part, total) {
  if (!total) return "\u2013";
  let text = ((100 * part) / total).toFixed(part === 0 || part === total ? 0 : 1);
  if (part > 0 && text === "0.0") text = "<0.1";
  if (part < total && text === "100.0") text = ">99.9";
  return text + nbsp + "%";
}

// moment formats a time in UTC.
export function moment(time) {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return "\u2013";
  return at.toISOString().slice(0, 19).replace("T", " ") + nbsp + "UTC";
}

// shorten cuts a text that can come from a server or a task.
export function shorten(text, most = 80) {
  const all = Array.from(text);
  return all.length <= most ? text : all.slice(0, most - 1).join("") + "\u2026";
}

// middle shortens a text to most characters. It keeps both ends, because the names of tasks often
// differ at their ends.
export function middle(text, most) {
  const all = Array.from(text);
  if (all.length <= most || most < 3) return text;
  const head = Math.floor((most - 1) / 3);
  return all.slice(0, head).join("") + "\u2026" + all.slice(head + 1 - most).join("");
}

// passAtK estimates the probability that at least one of k samples passes if c of n passed.
export function passAtK(n, c, k) {
  if (n - c < k) return 1;
  let none = 1;
  for (let i = n - c + 1; i <= n; i++) none *= 1 - k / i;
  return 1 - none;
}
