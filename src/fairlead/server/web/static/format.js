/** Numbers, times and counts as text. */

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
const whole = new Intl.NumberFormat("en");
const significant = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

/** @param {number | null | undefined} seconds since 1970 */
export const time = (seconds) => (seconds == null ? "–" : clock.format(1000 * seconds));

/** @param {number} value */
export const count = (value) => whole.format(Math.round(value));

/** @param {number | null | undefined} value */
export function figure(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-5 || Math.abs(value) >= 1e9)) {
    return value.toExponential(2);
  }
  return significant.format(value);
}

/** @param {number} fraction */
export const percent = (fraction) => `${(100 * fraction).toFixed(fraction < 0.1 ? 1 : 0)}\u00a0%`;

/** @param {number | null | undefined} seconds a duration */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

/** @param {Record<string, number>} counts such as 2 v100, 1 k80 */
export const counts = (counts) =>
  Object.entries(counts)
    .map(([name, number]) => `${figure(number)} ${name}`)
    .join(", ") || "–";

/** @param {number} number @param {string} noun */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
