/** Live data: the server's event stream, and resources that are fetched again after events. */

import { ApiError, endSession, hasSession, sessionHeaders } from "./api.js";
import { useEffect, useRef, useState } from "./dom.js";

const SILENCE_MS = 25_000; // the server sends a comment after 15 s of silence
const MAX_WAIT_MS = 5_000;
const MIN_INTERVAL_MS = 1_000; // with the spread and the answer, an event shows within 2 s
const AFTER_EVENT_MS = 150;
const SPREAD_MS = 300; // so that pages do not all ask at once

/** @typedef {{event: string, job?: string}} Notice */

/** @type {Set<(notice: Notice) => void>} */
const followers = new Set();
/** @type {Set<(connected: boolean) => void>} */
const watchers = new Set();
let connected = true;
/** @type {AbortController | null} */
let connection = null;

/** @param {boolean} value */
function setConnected(value) {
  if (connected === value) return;
  connected = value;
  for (const watcher of watchers) watcher(value);
}

/** @param {Notice} notice */
function publish(notice) {
  for (const follower of followers) follower(notice);
}

/** Follow the event stream while this page is visible: browsers allow few connections. */
export function startStream() {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) connection?.abort();
    else void follow();
  });
  void follow();
}

/** End the stream, as after a logout. */
export function stopStream() {
  connection?.abort();
}

/** Follow the stream until it is aborted; connect again when it breaks. */
export async function follow() {
  if (connection !== null || !hasSession()) return;
  const own = (connection = new AbortController());
  for (let failures = 0; !own.signal.aborted && hasSession(); failures += 1) {
    const heard = await readStream(own.signal);
    if (own.signal.aborted || !hasSession()) break;
    setConnected(false);
    if (heard) failures = 0;
    await pause(Math.min(250 * 2 ** failures, MAX_WAIT_MS), own.signal);
  }
  connection = null;
}

/** @param {AbortSignal} signal @returns {Promise<boolean>} whether the server answered */
async function readStream(signal) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await fetch("/v1/events", {
      headers: sessionHeaders(),
      signal: AbortSignal.any([signal, silence.signal]),
    });
    if (response.status === 401) endSession();
    if (!response.ok || response.body === null) return false;
    setConnected(true);
    publish({ event: "connected" });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return true;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      blocks.forEach(publishBlock);
    }
  } catch {
    return false; // the connection broke
  } finally {
    clearTimeout(timer);
  }
}

/** @param {string} block lines of one server-sent event */
function publishBlock(block) {
  const data = block.split("\n").find((line) => line.startsWith("data: "));
  if (data !== undefined) publish(JSON.parse(data.slice(6)));
}

/** @param {number} ms @param {AbortSignal} signal @returns {Promise<void>} */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Return whether the event stream is connected. */
export function useConnected() {
  const [value, setValue] = useState(connected);
  useEffect(() => {
    watchers.add(setValue);
    setValue(connected);
    return () => void watchers.delete(setValue);
  }, []);
  return value;
}

/**
 * @template T
 * @typedef {{data: T | undefined, error: ApiError | null, refresh: () => void}} Loaded
 */

/**
 * Return a resource, fetched again after events and every few seconds while the page is visible.
 * Data of the last success stay while a later attempt fails.
 * @template T
 * @param {() => Promise<T>} load
 * @param {unknown[]} keys values on which the resource depends
 * @param {{every?: number, wants?: (notice: Notice) => boolean}} [options]
 * @returns {Loaded<T>}
 */
export function useLive(load, keys, { every = 10, wants = () => true } = {}) {
  const [state, setState] = useState(
    /** @type {{data: T | undefined, error: ApiError | null}} */ ({ data: undefined, error: null }),
  );
  const latest = useRef({ load, wants, refresh: () => {} });
  latest.current.load = load;
  latest.current.wants = wants;
  useEffect(() => {
    let current = true;
    let [sent, startedAt] = [0, 0];
    const timers = new Set();
    const refresh = async () => {
      const number = (sent += 1);
      startedAt = performance.now();
      try {
        const data = await latest.current.load();
        if (current && number === sent) setState({ data, error: null });
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (current && number === sent) setState((old) => ({ data: old.data, error }));
      }
    };
    /** @param {number} ms */
    const soon = (ms) => {
      const timer = setTimeout(() => {
        timers.delete(timer);
        void refresh();
      }, ms);
      timers.add(timer);
    };
    /** @param {Notice} notice */
    const onNotice = (notice) => {
      if (timers.size > 0 || (notice.event !== "connected" && !latest.current.wants(notice))) return;
      const wait = Math.max(AFTER_EVENT_MS, startedAt + MIN_INTERVAL_MS - performance.now());
      soon(wait + SPREAD_MS * Math.random());
    };
    const onVisible = () => !document.hidden && void refresh();
    const poll = every === 0 ? undefined : setInterval(() => !document.hidden && void refresh(), 1000 * every);
    latest.current.refresh = () => void refresh();
    followers.add(onNotice);
    document.addEventListener("visibilitychange", onVisible);
    void refresh();
    return () => {
      current = false;
      followers.delete(onNotice);
      document.removeEventListener("visibilitychange", onVisible);
      clearInterval(poll);
      timers.forEach(clearTimeout);
    };
  }, keys);
  return { ...state, refresh: () => latest.current.refresh() };
}
