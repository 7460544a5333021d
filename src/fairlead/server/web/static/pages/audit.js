/** The audit trail: author, action and values of each change. */

import { get, withQuery } from "../api.js";
import { Empty, Failure, Loaded, Table } from "../components.js";
import { count, time } from "../format.js";
import { useLive } from "../live.js";
import { html, useState } from "../dom.js";

const PAGE = 100;
const FIELDS = ["author", "action", "subject"];

/** @param {{query: URLSearchParams}} props */
export function Audit({ query }) {
  const [filter, setFilter] = useState(() => Object.fromEntries(query));
  const [before, setBefore] = useState(/** @type {number | null} */ (null));
  const trail = useLive(
    () => get("/v1/audit", { ...filter, before, limit: PAGE }),
    [JSON.stringify(filter), before],
    { every: before === null ? 10 : 0, wants: () => before === null },
  );
  /** @param {import("../dom.js").FormEvent} event */
  const select = (event) => {
    event.preventDefault();
    setBefore(null);
    const form = new FormData(event.currentTarget);
    const wanted = Object.fromEntries(FIELDS.map((name) => [name, String(form.get(name))]));
    setFilter(wanted);
    history.replaceState(null, "", withQuery("#/audit", wanted));
  };
  return html`<h1>Audit trail</h1>
    <form class="filters" onSubmit=${select}>
      ${FIELDS.map((name) => html`<label>${name} <input name=${name} defaultValue=${filter[name] ?? ""} /></label>`)}
      <button type="submit">Filter</button>
    </form>
    <${Verification} />
    <${Loaded} of=${trail}>
      ${/** @param {Api.AuditEntry[]} entries */ (entries) => html`
        ${entries.length === 0 ? html`<${Empty}>No entry matches.<//>` : html`<${Entries} entries=${entries} />`}
        <p class="pager">
          ${before !== null && html`<button type="button" onClick=${() => setBefore(null)}>Newest</button>`}
          ${entries.length === PAGE &&
          html`<button type="button" onClick=${() => setBefore(entries[PAGE - 1].seq)}>Older</button>`}
        </p>
      `}
    <//>`;
}

/** @param {{entries: Api.AuditEntry[]}} props */
function Entries({ entries }) {
  return html`<${Table}
    caption="Entries, the newest first"
    heads=${["time", "author", "role", "action", "subject", "detail", "changes"]}
    rows=${entries.map((entry) => [
      time(entry.at),
      entry.who,
      entry.role,
      entry.action,
      entry.subject,
      entry.detail,
      Object.entries(entry.changes).map(
        ([name, { old, new: value }]) =>
          html`<div>${name}: ${old !== null && `${JSON.stringify(old)} → `}${JSON.stringify(value)}</div>`,
      ),
    ])}
  />`;
}

function Verification() {
  const [{ result, error }, setState] = useState(/** @type {{result: Api.AuditVerification | null, error: any}} */ ({ result: null, error: null }));
  const verify = async () => {
    try {
      setState({ result: await get("/v1/audit/verify"), error: null });
    } catch (problem) {
      setState({ result: null, error: problem });
    }
  };
  return html`<p>
      <button type="button" onClick=${() => void verify()}>Verify the hash chain</button>
      <span role="status">${result !== null &&
      (result.intact ? ` Intact: ${count(result.entries)} entries.` : ` Broken: ${result.problem}`)}</span>
    </p>
    ${error && html`<${Failure} error=${error} />`}`;
}
