/** Curves over steps or over time, drawn by uPlot. */

import { html, useDark, useEffect, useRef } from "./dom.js";

const HEIGHT = 200;

/** @typedef {{label: string, colour: string, dash?: number[]}} Line ``colour``: a variable of style.css */

/**
 * A chart of one or more lines over the same points.
 * @param {{label: string, x: number[], lines: Line[], values: (number | null)[][], isTime?: boolean}} props
 */
function Chart({ label, x, lines, values, isTime = false }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const chart = useRef(/** @type {import("./vendor/uplot.js").default | null} */ (null));
  const latest = useRef(/** @type {(number | null)[][]} */ ([]));
  latest.current = [x, ...values];
  const dark = useDark();
  useEffect(() => {
    let gone = false;
    /** @type {ResizeObserver | undefined} */
    let observer;
    void import("./vendor/uplot.js").then((module) => {
      const element = place.current;
      if (gone || element === null) return;
      const width = () => Math.max(200, element.clientWidth);
      const styles = getComputedStyle(element);
      const stroke = styles.getPropertyValue("--muted");
      const grid = { stroke: styles.getPropertyValue("--line"), width: 1 };
      const axis = { stroke, grid, ticks: grid };
      const options = {
        width: width(),
        height: HEIGHT,
        scales: { x: { time: isTime }, ...(isTime ? { y: { range: fromZero } } : {}) },
        axes: [axis, { ...axis, size: 60 }],
        series: [
          { label: isTime ? "time" : "steps" },
          ...lines.map((line) => ({
            label: line.label,
            stroke: styles.getPropertyValue(`--${line.colour}`),
            width: 1.5,
            dash: line.dash,
          })),
        ],
      };
      chart.current = new module.default(options, latest.current, element);
      observer = new ResizeObserver(() => {
        if (element.isConnected) chart.current?.setSize({ width: width(), height: HEIGHT });
      });
      observer.observe(element);
    });
    return () => {
      gone = true;
      observer?.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [lines.map((line) => line.label).join("\n"), dark]);
  useEffect(() => chart.current?.setData(latest.current), [x, values]);
  return html`<div class="curve" ref=${place} role="img" aria-label=${label}></div>`;
}

/** Return the range of an axis of shares. @type {(chart: unknown, least: number | null, greatest: number | null) => [number, number]} */
const fromZero = (_chart, _least, greatest) => [0, Math.max(0.1, 1.05 * (greatest ?? 0))];

/**
 * A metric over the steps of a job.
 * @param {{title: string, points: {steps: number, value: number}[]}} props
 */
export function Curve({ title, points }) {
  return html`<${Chart}
    label=${`${title}: ${points.length} values, the last one ${points.at(-1)?.value}`}
    x=${points.map((point) => point.steps)}
    lines=${[{ label: title, colour: "accent" }]}
    values=${[points.map((point) => point.value)]}
  />`;
}

/**
 * Lines over time; null where nothing is known.
 * @param {{label: string, at: number[], lines: (Line & {values: (number | null)[]})[]}} props
 */
export function TimeLines({ label, at, lines }) {
  return html`<${Chart} label=${label} x=${at} lines=${lines} values=${lines.map((line) => line.values)} isTime />`;
}
