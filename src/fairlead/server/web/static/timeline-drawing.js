/** Drawing of the timeline on a canvas: rows of devices, runs of jobs, outages, marks, the time axis. */

import { PixelBrush } from "./pixel-brush.js";

/** @typedef {{id: string, tenant: string, kept: boolean, device_s: number, preemptions: number, failures: number}} Job */
/** @typedef {Omit<Api.Timeline, "jobs"> & {jobs: Job[]}} Shown */
/** @typedef {{span: number, end: number}} View */
/** @typedef {(value: number) => number} Scale */
/** @typedef {(name: string) => string} Colours variable of style.css → its value */
/** @typedef {CanvasRenderingContext2D} Context */
/** @typedef {Context | PixelBrush} Brush */

export const GUTTER = 96;
/** Marked ends of leases, by the number that the server gives them. */
export const MARKS = ["preempted", "moved", "failed", "lost"];
const FIRST_FAILURE = 2;
const AXIS = 24;
const STEPS = [
  1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600,
  86_400, 2 * 86_400, 7 * 86_400,
];
const MIN_TICK_PX = 90;
const WIDE_ROW = 8;
const COLOURS = 10;

/** Return the height of a row, in pixels. @param {number} devices */
export const rowHeight = (devices) => Math.max(2, Math.min(18, Math.floor(640 / Math.max(1, devices))));

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{data: Shown, view: View, width: number, height: number, colourOf: (job: number, device: number) => number}} picture
 */
export function draw(canvas, { data, view, width, height, colourOf }) {
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (context === null) return;
  const styles = getComputedStyle(canvas);
  /** @type {Colours} */
  const colour = (name) => styles.getPropertyValue(`--${name}`).trim();
  context.scale(ratio, ratio);
  context.font = `12px ${styles.fontFamily}`;
  const row = rowHeight(data.devices.length);
  const x = scaleOf(view, width);
  drawAxis(context, view, width, height, x, colour);
  drawNodes(context, data.devices, width, row, colour);
  context.save();
  context.beginPath();
  context.rect(GUTTER, AXIS, width - GUTTER, height - AXIS);
  context.clip();
  /** @param {(brush: Brush) => void} work */
  const paint = (work) => {
    if (row >= WIDE_ROW) return work(context);
    const brush = new PixelBrush(width, height, ratio);
    work(brush);
    brush.drawOn(context);
  };
  paint((brush) => drawRuns(brush, data, row, x, colourOf, colour));
  drawOutages(context, data, row, x, colour);
  paint((brush) => drawMarks(brush, data, row, x, colour));
  context.restore();
}

/** Return time → x. @param {View} view @param {number} width @returns {Scale} */
function scaleOf(view, width) {
  const [begin, pixels] = [view.end - view.span, Math.max(1, width - GUTTER)];
  return (at) => GUTTER + ((at - begin) / view.span) * pixels;
}

/** Return column → x. @param {Shown} data @param {Scale} x @returns {Scale} */
function columnScale(data, x) {
  const first = x(data.begin);
  const width = (x(data.end) - first) / data.columns;
  return (column) => first + column * width;
}

/**
 * Call a function for each index, by colours: changing the colour costs more than a rectangle.
 * @param {Brush} brush @param {string[]} colours @param {number} length
 * @param {(index: number) => number} colourOf index in ``colours``
 * @param {(index: number) => void} work
 */
function eachByColour(brush, colours, length, colourOf, work) {
  /** @type {number[][]} */
  const lists = colours.map(() => []);
  for (let i = 0; i < length; i += 1) lists[colourOf(i)].push(i);
  lists.forEach((list, number) => {
    brush.fillStyle = colours[number];
    for (const i of list) work(i);
  });
}

/** @param {Context} context @param {View} view @param {number} width @param {number} height @param {Scale} x @param {Colours} colour */
function drawAxis(context, view, width, height, x, colour) {
  const pixelsPerSecond = Math.max(1, width - GUTTER) / view.span;
  const step = STEPS.find((seconds) => seconds * pixelsPerSecond >= MIN_TICK_PX) ?? 14 * 86_400;
  const label = new Intl.DateTimeFormat(
    undefined,
    step >= 86_400
      ? { day: "numeric", month: "short" }
      : step >= 3600 && view.span > 86_400
        ? { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }
        : { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) },
  );
  // Ticks are multiples of the step in local time.
  const shift = 60 * new Date(1000 * view.end).getTimezoneOffset();
  const begin = view.end - view.span;
  context.textBaseline = "middle";
  for (let at = Math.ceil((begin - shift) / step) * step + shift; at <= view.end; at += step) {
    const left = Math.round(x(at)) + 0.5;
    context.fillStyle = colour("line");
    context.fillRect(left, AXIS - 6, 1, height);
    const text = label.format(1000 * at);
    context.fillStyle = colour("muted");
    if (left + context.measureText(text).width + 4 < width) context.fillText(text, left + 4, AXIS / 2);
  }
}

/** @param {Context} context @param {Api.TimelineDevice[]} devices @param {number} width @param {number} row @param {Colours} colour */
function drawNodes(context, devices, width, row, colour) {
  for (let first = 0; first < devices.length; ) {
    let end = first + 1;
    while (end < devices.length && devices[end].node === devices[first].node) end += 1;
    const top = AXIS + first * row;
    context.fillStyle = colour("line");
    if ((end - first) * row >= 4) context.fillRect(0, top, width, 1);
    context.fillStyle = colour("muted");
    if ((end - first) * row >= 12) {
      context.fillText(shortened(context, devices[first].node), 2, top + Math.min(9, ((end - first) * row) / 2));
    }
    first = end;
  }
}

/** @param {Context} context @param {string} text */
function shortened(context, text) {
  if (context.measureText(text).width <= GUTTER - 6) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > GUTTER - 6) length -= 1;
  return `${text.slice(0, length)}…`;
}

/**
 * @param {Brush} brush @param {Shown} data @param {number} row @param {Scale} x
 * @param {(job: number, device: number) => number} colourOf @param {Colours} colour
 */
function drawRuns(brush, data, row, x, colourOf, colour) {
  const { runs } = data;
  const at = columnScale(data, x);
  const palette = [...Array.from({ length: COLOURS }, (_, i) => colour(`c${i}`)), colour("muted")];
  const gap = row > 4 ? 1 : 0;
  /** @param {number} i */
  const fillOf = (i) => (runs.job[i] < 0 ? COLOURS : colourOf(runs.job[i], runs.device[i]) % COLOURS);
  eachByColour(brush, palette, runs.device.length, fillOf, (i) => {
    const left = at(runs.first[i]);
    const length = at(runs.end[i]) - left;
    brush.fillRect(left, AXIS + runs.device[i] * row + gap, Math.max(1, length - (length > 6 ? 1 : 0)), row - gap);
  });
}

/** Hatch the rows of nodes while they were down. @param {Context} context @param {Shown} data @param {number} row @param {Scale} x @param {Colours} colour */
function drawOutages(context, { outages, devices }, row, x, colour) {
  if (outages.node.length === 0) return;
  /** @type {Map<string, number[]>} */
  const rowsOf = new Map(devices.map(({ node }) => [node, []]));
  devices.forEach(({ node }, i) => rowsOf.get(node)?.push(i));
  context.fillStyle = hatched(colour("card"), colour("bad"));
  for (let i = 0; i < outages.node.length; i += 1) {
    const left = x(outages.begin[i]);
    const width = Math.max(2, x(outages.end[i]) - left);
    for (const device of rowsOf.get(outages.node[i]) ?? []) context.fillRect(left, AXIS + device * row, width, row);
  }
}

/** Return a pattern of diagonal lines. @param {string} ground @param {string} line */
function hatched(ground, line) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const context = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  context.fillStyle = ground;
  context.fillRect(0, 0, 8, 8);
  context.strokeStyle = line;
  context.lineWidth = 2;
  context.beginPath();
  for (const shift of [-8, 0, 8]) {
    context.moveTo(shift - 1, 9);
    context.lineTo(shift + 9, -1);
  }
  context.stroke();
  return /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat"));
}

/** @param {Brush} brush @param {Shown} data @param {number} row @param {Scale} x @param {Colours} colour */
function drawMarks(brush, data, row, x, colour) {
  const { marks } = data;
  const at = columnScale(data, x);
  const colours = [colour("text"), colour("accent"), colour("bad"), colour("bad")];
  const isWide = row >= WIDE_ROW;
  brush.fillStyle = colour("card");
  for (let i = 0; isWide && i < marks.device.length; i += 1) {
    brush.fillRect(at(marks.column[i] + 1) - 2, AXIS + marks.device[i] * row, 4, row);
  }
  eachByColour(brush, colours, marks.device.length, (i) => marks.kind[i], (i) => {
    const left = at(marks.column[i] + 1);
    const top = AXIS + marks.device[i] * row;
    brush.fillRect(left - 1, top, isWide ? 2 : 1, row);
    if (!(brush instanceof PixelBrush)) drawTip(brush, left, top, marks.kind[i] >= FIRST_FAILURE ? 8 : 5);
  });
}

/** Draw the triangle at the top of a mark. @param {Context} context @param {number} left @param {number} top @param {number} height */
function drawTip(context, left, top, height) {
  context.beginPath();
  context.moveTo(left - 4, top);
  context.lineTo(left + 4, top);
  context.lineTo(left, top + height);
  context.fill();
}

/**
 * Return the device, time, job and state at a place of the picture; null outside the rows.
 * @param {Shown} data
 * @param {View} view
 * @param {number} width
 * @param {{x: number, y: number}} place
 * @returns {{device: Api.TimelineDevice, at: number, job: Job | null, hidden: boolean, down: boolean} | null}
 */
export function deviceAt(data, view, width, { x, y }) {
  const index = Math.floor((y - AXIS) / rowHeight(data.devices.length));
  if (x < GUTTER || y < AXIS || index >= data.devices.length) return null;
  const at = view.end - view.span * (1 - (x - GUTTER) / Math.max(1, width - GUTTER));
  const column = ((at - data.begin) / (data.end - data.begin)) * data.columns;
  const { runs, outages } = data;
  const run = runs.device.findIndex(
    (device, i) => device === index && runs.first[i] <= column && column < runs.end[i],
  );
  const job = run < 0 ? -1 : runs.job[run];
  const device = data.devices[index];
  const down = outages.node.some(
    (node, i) => node === device.node && outages.begin[i] <= at && at <= outages.end[i],
  );
  return { device, at, job: job < 0 ? null : data.jobs[job], hidden: job === -2, down };
}
