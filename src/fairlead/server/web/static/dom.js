/** Preact with htm: components are functions that return html`…`. */

import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/preact-hooks.js";

export { render } from "./vendor/preact.js";
export { useEffect, useErrorBoundary, useRef, useState } from "./vendor/preact-hooks.js";

/** @typedef {Event & {target: HTMLInputElement}} FieldEvent of an input, a selection or a text area */
/** @typedef {SubmitEvent & {currentTarget: HTMLFormElement}} FormEvent */

/** Return a handler that passes on the value of a field. @param {(value: string) => void} set */
export const withValue = (set) => /** @param {FieldEvent} event */ (event) => set(event.target.value);

/** Return whether the browser prefers dark colours, which canvases must follow themselves. */
export function useDark() {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(scheme.matches);
  useEffect(() => {
    const change = () => setDark(scheme.matches);
    scheme.addEventListener("change", change);
    return () => scheme.removeEventListener("change", change);
  }, []);
  return dark;
}

/** Returns new elements for each rendering; htm would reuse constant ones. */
export const html = htm.bind(
  /** @this {any} @param {Parameters<typeof h>} parts @returns {ReturnType<typeof h>} */
  function (...parts) {
    this[0] = 3;
    return h(...parts);
  },
);
