// Keyboard shortcuts. A shortcut is one key, or two keys such as "g s".
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { html } from "./h.js";

// useKeys calls the function of a pressed key. Keys in text fields are not shortcuts, except Escape.
export function useKeys(keys) {
  const current = useRef(keys);
  current.current = keys;
  useLayoutEffect(() => { // not later: no key is lost after the page has changed
    let before = "";
    const pressed = (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
      const typing = e.target.matches?.("input, select, textarea");
      if (typing && e.key === "Escape") e.target.blur();
      if (typing) return;
      const action = current.current[before + e.key] ?? current.current[e.key];
      before = e.key.length === 1 ? e.key + " " : "";
      if (!action) return;
      e.preventDefault();
      before = "";
      action();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

const list = [
  ["?", "show or hide this list"],
  ["g o", "overview"],
  ["g s", "samples"],
  ["/", "samples: search text"],
  ["j, k", "samples: next and previous; sample: next and previous of the list"],
  ["\u2191, \u2193, PgUp, PgDn", "samples: move"],
  ["Home, End", "samples: first and last"],
  ["Enter", "samples: open"],
  ["[, ]", "sample: previous and next sample of the group"],
  ["c", "sample: compare with the next sample of the group"],
  ["x", "compare: swap the samples"],
  ["\u2190, \u2192", "tokens: previous and next token"],
  ["Esc", "back"],
];

// Help is the dialog with the list of all keys. It calls close when it is closed.
export function Help({ close }) {
  const dialog = useRef();
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} aria-labelledby="keys" onClose=${close}>
    <h2 id="keys">Keys</h2>
    <dl class="keys">${list.map(([key, text]) => html`<div><dt>${key.split(", ").map((k) => html`<kbd>${k}</kbd> `)}</dt><dd>${text}</dd></div>`)}</dl>
    <form method="dialog"><button>Close</button></form>
  </dialog>`;
}
