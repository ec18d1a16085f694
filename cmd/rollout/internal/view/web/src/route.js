// The route is the part of the URL after #, such as /samples?status=completed.
import { useEffect, useState } from "preact/hooks";

function parse() {
  const [path, query] = location.hash.slice(1).split("?");
  return { path: path.split("/").filter(Boolean), query: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

// useRoute returns {path, query}: the parts of the path, and the parameters.
export function useRoute() {
  const [route, set] = useState(parse);
  useEffect(() => {
    const changed = () => set(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

// href returns the URL of a page. It omits empty parameters.
export function href(path, query = {}) {
  const kept = Object.entries(query).filter(([, v]) => v !== "");
  return "#" + path + (kept.length ? "?" + new URLSearchParams(kept) : "");
}

// go opens a page. The browser's own event comes later, and a key that is pressed in between would go
// to the old page.
export function go(path, query) {
  history.pushState(null, "", href(path, query));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// replace is like go, but without a new entry in the history.
export function replace(path, query) {
  history.replaceState(null, "", href(path, query));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
