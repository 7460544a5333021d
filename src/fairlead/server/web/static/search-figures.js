/** Figures of a hyperparameter search: best value so far, learning curves, parallel coordinates. */

import { figure } from "./format.js";
import { html } from "./dom.js";

const WIDTH = 480;
const HEIGHT = 200;
const LEFT = 56;
const LETTER = 9; // width of a letter on small screens, where texts are largest
const RIGHT = 16;
const TOP = 14;
const BOTTOM = 30;
const LOG_FROM = 50;

/** @typedef {{x: number, y: number}} Place */
/** @typedef {{label: string, places: Place[]}} Line */
/** @typedef {{at: (value: string) => number, marks: [number, string][]}} Axis heights from 0 to 1, and their labels */

/** Return a function from values to a range of pixels. @param {number[]} values @param {number} from @param {number} to */
function scale(values, from, to) {
  const [least, greatest] = [Math.min(...values), Math.max(...values)];
  const span = greatest - least || 1;
  return (/** @type {number} */ value) => from + ((value - least) / span) * (to - from);
}

/** @param {Place[]} places @param {(x: number) => number} across @param {(y: number) => number} up */
const path = (places, across, up) => places.map(({ x, y }) => `${across(x).toFixed(1)},${up(y).toFixed(1)}`).join(" ");

/**
 * Lines over a common axis; the last one is the best.
 * @param {{label: string, unit: string, lines: Line[]}} props
 */
export function Lines({ label, unit, lines }) {
  const places = lines.flatMap((line) => line.places);
  const [xs, ys] = [places.map(({ x }) => x), places.map(({ y }) => y)];
  const [bottom, top] = [Math.min(...ys), Math.max(...ys)];
  const left = Math.max(LEFT, 6 + LETTER * Math.max(figure(bottom).length, figure(top).length));
  const across = scale(xs, left, WIDTH - RIGHT);
  const up = scale(ys, HEIGHT - BOTTOM, TOP);
  return html`<svg class="plot" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${label}>
    ${[bottom, top].map((y) => html`<line x1=${left} x2=${WIDTH - RIGHT} y1=${up(y)} y2=${up(y)} />
      <text x=${left - 6} y=${up(y) + 4} text-anchor="end">${figure(y)}</text>`)}
    <text x=${left} y=${HEIGHT - 8}>${figure(Math.min(...xs))}</text>
    <text x=${WIDTH - RIGHT} y=${HEIGHT - 8} text-anchor="end">${figure(Math.max(...xs))} ${unit}</text>
    ${lines.map((line, i) => html`<polyline key=${line.label} class=${i === lines.length - 1 ? "best" : ""}
      points=${path(line.places, across, up)}><title>${line.label}</title></polyline>
      ${line.places.slice(-1).map(({ x, y }) => html`<circle cx=${across(x)} cy=${up(y)} r="1.5"
        class=${i === lines.length - 1 ? "best" : ""} />`)}`)}
  </svg>`;
}

/** Return the axis of a hyperparameter: a number, linear or logarithmic, or one of several texts. @param {string[]} values @returns {Axis} */
export function axisOf(values) {
  const distinct = [...new Set(values)];
  const numbers = distinct.map(Number);
  if (distinct.some((text) => text.trim() === "") || !numbers.every(Number.isFinite)) {
    const sorted = distinct.sort();
    const height = scale(sorted.map((_, i) => i), 0, 1);
    return { at: (text) => height(sorted.indexOf(text)), marks: sorted.map((text, i) => [height(i), text]) };
  }
  const [least, greatest] = [Math.min(...numbers), Math.max(...numbers)];
  const isLog = least > 0 && greatest / least >= LOG_FROM;
  const place = (/** @type {number} */ number) => (isLog ? Math.log(number) : number);
  const height = scale(numbers.map(place), 0, 1);
  return {
    at: (text) => height(place(Number(text))),
    marks: [[height(place(least)), figure(least)], [height(place(greatest)), figure(greatest)]],
  };
}

/**
 * One axis per hyperparameter and one for the metric; a line per trial, the last one the best.
 * @param {{label: string, names: string[], rows: {label: string, values: string[]}[]}} props
 */
export function ParallelCoordinates({ label, names, rows }) {
  const axes = names.map((_, i) => axisOf(rows.map((row) => row.values[i])));
  const across = (/** @type {number} */ index) => LEFT + (index / Math.max(1, names.length - 1)) * (WIDTH - LEFT - 2 * RIGHT - 40);
  const up = (/** @type {number} */ part) => HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP);
  return html`<svg class="plot" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${label}>
    ${rows.map((row, i) => html`<polyline key=${row.label} class=${i === rows.length - 1 ? "best" : ""}
      points=${path(row.values.map((value, axis) => ({ x: axis, y: axes[axis].at(value) })), across, up)}
      ><title>${row.label}</title></polyline>`)}
    ${names.map((name, i) => html`<line x1=${across(i)} x2=${across(i)} y1=${up(0)} y2=${up(1)} />
      <text x=${across(i)} y=${HEIGHT - 8} text-anchor="middle">${name}</text>
      ${axes[i].marks.map(([part, text]) => html`<text x=${across(i) + 4} y=${up(part) + 4}>${text}</text>`)}`)}
  </svg>`;
}
