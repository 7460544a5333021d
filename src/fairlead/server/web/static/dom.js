/** Preact with htm: components are functions that return html`…`. */

import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export { render } from "./vendor/preact.js";
export { useEffect, useErrorBoundary, useRef, useState } from "./vendor/preact-hooks.js";

/** Returns new elements for each rendering; htm would reuse constant ones. */
export const html = htm.bind(
  /** @this {any} */
  function (/** @type {any[]} */ ...parts) {
    this[0] = 3;
    return h(...parts);
  },
);
