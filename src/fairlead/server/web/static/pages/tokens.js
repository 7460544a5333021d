/** Tokens: their rights and last use; new ones, rotation, revocation. */

import { get, send } from "../api.js";
import { Failure, Loaded, Section, Table } from "../components.js";
import { time } from "../format.js";
import { useLive } from "../live.js";
import { html, useState, withValue } from "../dom.js";

const PATH = "/v1/tokens";
const ROLES = ["tenant", "viewer", "admin"];
const DAY_S = 86_400;

/** @typedef {(action: () => Promise<Response>) => Promise<void>} Act */

export function Tokens() {
  const tokens = useLive(() => get(PATH), [], { every: 1.5, wants: () => false });
  const [{ made, error }, setState] = useState(
    /** @type {{made: Api.TokenView | null, error: any}} */ ({ made: null, error: null }),
  );
  /** @type {Act} */
  const act = async (action) => {
    try {
      const response = await action();
      setState({ made: response.status === 204 ? null : await response.json(), error: null });
    } catch (problem) {
      setState({ made: null, error: problem });
    }
    tokens.refresh();
  };
  return html`<h1>Tokens</h1>
    <${NewToken} act=${act} />
    ${error && html`<${Failure} error=${error} />`}
    <div role="status">${made && html`<${Made} token=${made} />`}</div>
    <${Loaded} of=${tokens}>
      ${(/** @type {Api.TokenView[]} */ list) => html`<${Section} title="Tokens of this server"><${List} tokens=${list} act=${act} /><//>`}
    <//>`;
}

/** @param {{act: Act}} props */
function NewToken({ act }) {
  const [role, setRole] = useState("tenant");
  /** @param {import("../dom.js").FormEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const [name, tenant, days] = ["name", "tenant", "days"].map((field) => String(form.get(field) ?? "").trim());
    const body = { name, role, ...(tenant ? { tenant } : {}), ...(days ? { lasts_s: DAY_S * Number(days) } : {}) };
    void act(() => send("POST", PATH, body));
  };
  return html`<form class="card" onSubmit=${submit}>
    <div class="columns">
      <div class="field"><label for="token-name">Name</label>
        <input id="token-name" name="name" required autocomplete="off" aria-describedby="token-name-help" />
        <small id="token-name-help">of its owner, for the audit trail</small></div>
      <div class="field"><label for="token-role">Role</label>
        <select id="token-role" value=${role} onChange=${withValue(setRole)}>
          ${ROLES.map((name) => html`<option value=${name}>${name}</option>`)}
        </select></div>
      ${role === "tenant" && html`<div class="field"><label for="token-tenant">Tenant</label>
        <input id="token-tenant" name="tenant" required autocomplete="off" /></div>`}
      <div class="field"><label for="token-days">Valid for</label>
        <input id="token-days" name="days" type="number" min="0" step="any" aria-describedby="token-days-help" />
        <small id="token-days-help">days; without a number it does not expire</small></div>
    </div>
    <button type="submit" class="primary">Make a token</button>
  </form>`;
}

/** @param {{token: Api.TokenView}} props */
function Made({ token }) {
  return html`<${Section} title=${`Token of ${token.name}`}>
    <p class="help">Copy it now: the server does not show it again.</p>
    <pre tabindex="0" aria-label="New token">${token.token}</pre>
  <//>`;
}

/** @param {{tokens: Api.TokenView[], act: Act}} props */
function List({ tokens, act }) {
  /** @param {Api.TokenView} token */
  const rotate = ({ id, name }) =>
    confirm(`Give the token of ${name} a new secret? The old one stops working.`) &&
    void act(() => send("POST", `${PATH}/${encodeURIComponent(id)}/rotate`, {}));
  /** @param {Api.TokenView} token */
  const revoke = ({ id, name }) =>
    confirm(`Revoke the token of ${name}?`) && void act(() => send("DELETE", `${PATH}/${encodeURIComponent(id)}`));
  return html`<${Table}
    caption="Tokens"
    heads=${["name", "role", "tenant", "also sees", "scopes", "made", "last used", "expires", "changes"]}
    rows=${tokens.map((token) => [
      html`${token.name} <small>${token.id}</small>`,
      token.role,
      token.tenant ?? "–",
      token.sees.join(", ") || "–",
      token.scopes.join(", ") || "all of its role",
      token.created_at > 0 ? time(token.created_at) : "at the first start",
      token.last_used_at === null ? "never" : time(token.last_used_at),
      token.expires_at === null ? "never" : time(token.expires_at),
      html`<span class="pager">
        <button type="button" aria-label=${`Rotate the token of ${token.name}`} onClick=${() => rotate(token)}>Rotate</button>
        <button type="button" class="danger" aria-label=${`Revoke the token of ${token.name}`} onClick=${() => revoke(token)}>Revoke</button>
      </span>`,
    ])}
  />`;
}
