/** The log of a job, followed while the job runs. */

import { jobPath, send, withQuery } from "../api.js";
import { Empty, Failure, Section } from "../components.js";
import { html, useEffect, useRef, useState, withValue } from "../dom.js";

const INTERVAL_MS = 1500;
const MAX_SHOWN = 200_000;

/** @param {{id: string, gang: number, ended: boolean}} props */
export function Log({ id, gang, ended }) {
  const [rank, setRank] = useState(0);
  const choice = gang > 1 &&
    html`<label>Rank <input
      type="number" min="0" max=${gang - 1} value=${rank}
      onChange=${withValue((text) => setRank(Number(text)))} /></label>`;
  return html`<${Section} title="Log" aside=${choice}>
    <${Lines} key=${rank} id=${id} rank=${rank} ended=${ended} />
  <//>`;
}

/** @param {{id: string, rank: number, ended: boolean}} props */
function Lines({ id, rank, ended }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const follows = useRef(true);
  useEffect(() => {
    let current = true;
    let next = 0;
    let timer = 0;
    const read = async () => {
      try {
        const response = await send("GET", withQuery(jobPath(id, "logs"), { rank, after: next }));
        const added = await response.text();
        if (!current) return;
        const reached = Number(response.headers.get("Fairlead-Next"));
        const more = reached > next && added !== "";
        next = reached;
        if (added !== "") setText((old) => (old + added).slice(-MAX_SHOWN));
        setError(null);
        if (more) return void read();
      } catch (problem) {
        if (!current) return;
        setError(problem);
      }
      if (!ended) timer = setTimeout(() => (document.hidden ? wait() : void read()), INTERVAL_MS);
    };
    const wait = () => (timer = setTimeout(() => (document.hidden ? wait() : void read()), INTERVAL_MS));
    setText("");
    void read();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [id, rank, ended]);
  useEffect(() => {
    if (follows.current && place.current) place.current.scrollTop = place.current.scrollHeight;
  }, [text]);
  /** @param {Event & {target: HTMLElement}} event */
  const scroll = ({ target }) => {
    follows.current = target.scrollHeight - target.scrollTop - target.clientHeight < 20;
  };
  return html`${error && html`<${Failure} error=${error} />`}
  ${text === ""
    ? html`<${Empty}>No output yet.<//>`
    : html`<pre class="log" ref=${place} onScroll=${scroll} tabindex="0" aria-label="Log">${text}</pre>`}`;
}
