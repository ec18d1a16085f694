// html creates elements. Every text of the page passes through it or through visible.
import { h } from "preact";
import htm from "htm";

// Characters that hide text or change its order: controls except tab and line break, bidirectional
// and zero-width controls, tags, private use, and halves of surrogate pairs.
const hidden =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;

// visible replaces hidden characters with their escapes, such as \u202e.
export function visible(text) {
  return text.replace(hidden, (c) => {
    const code = c.codePointAt(0);
    if (c === "\ufffd") return c;
    return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

function shown(child) {
  if (typeof child === "string") return visible(child);
  return Array.isArray(child) ? child.map(shown) : child;
}

export const html = htm.bind((type, props, ...children) => {
  if (typeof type === "string" && props) {
    for (const name of ["title", "aria-label", "value", "placeholder"]) {
      if (typeof props[name] === "string") props[name] = visible(props[name]);
    }
  }
  return h(type, props, ...children.map(shown));
});
