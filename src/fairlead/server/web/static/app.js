/** The shell: login, navigation, and the page that the address names. */

import { get, hasSession, logIn, logOut, whenLoggedOut } from "./api.js";
import { Failure } from "./components.js";
import { follow, startStream, stopStream, useConnected } from "./live.js";
import { html, render, useEffect, useErrorBoundary, useState, withValue } from "./dom.js";
import { Audit } from "./pages/audit.js";
import { Cluster } from "./pages/cluster.js";
import { Job } from "./pages/job.js";
import { Jobs } from "./pages/jobs.js";
import { PolicyRoom } from "./pages/policy.js";
import { Searches } from "./pages/searches.js";
import { Simulate } from "./pages/simulate.js";
import { Speeds } from "./pages/speeds.js";
import { Submit } from "./pages/submit.js";
import { Tenants } from "./pages/tenants.js";
import { Timeline } from "./pages/timeline.js";
import { Tokens } from "./pages/tokens.js";

/** Pages of the navigation, with the roles that may open them. */
const PAGES = [
  { path: "jobs", title: "Jobs", page: Jobs },
  { path: "searches", title: "Searches", page: Searches },
  { path: "cluster", title: "Cluster", page: Cluster },
  { path: "timeline", title: "Timeline", page: Timeline },
  { path: "tenants", title: "Tenants", page: Tenants },
  { path: "speeds", title: "Speeds", page: Speeds },
  { path: "submit", title: "Submit", page: Submit, roles: ["admin", "tenant"] },
  { path: "simulate", title: "Simulate", page: Simulate, roles: ["admin", "tenant"] },
  { path: "policy", title: "Policy room", page: PolicyRoom, roles: ["admin"] },
  { path: "tokens", title: "Tokens", page: Tokens, roles: ["admin"] },
  { path: "audit", title: "Audit trail", page: Audit, roles: ["admin"] },
];

/** Return the parts of the address: #/jobs/j1?state=queued. */
function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, ...rest] = path.split("/");
  return { page: page || "jobs", id: safelyDecoded(rest.join("/")), query: new URLSearchParams(query) };
}

/** @param {string} text */
function safelyDecoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return the current route; ``visit`` counts the navigations, each of which restarts a page. */
function useRoute() {
  const [current, setCurrent] = useState({ ...route(), visit: 0 });
  useEffect(() => {
    const update = () => setCurrent((old) => ({ ...route(), visit: old.visit + 1 }));
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return current;
}

function App() {
  const [session, setSession] = useState(/** @type {Api.SessionView | null} */ (null));
  const [state, setState] = useState(hasSession() ? "loading" : "out");
  const [error, setError] = useState(null);
  const load = async () => {
    setError(null);
    try {
      setSession(await get("/v1/session"));
      setState("in");
      void follow();
    } catch (problem) {
      if (problem.status === 401) setState("out");
      else setError(problem);
    }
  };
  useEffect(() => {
    whenLoggedOut(() => {
      stopStream();
      setSession(null);
      setState("out");
    });
    startStream();
    if (hasSession()) void load();
  }, []);
  if (state === "out") return html`<${Login} onDone=${load} />`;
  if (error !== null) return html`<main><${Failure} error=${error} retry=${load} /></main>`;
  if (session === null) return html`<main><p class="notice loading" role="status">Loading…</p></main>`;
  return html`<${Shell} session=${session} />`;
}

/** @param {{session: Api.SessionView}} props */
function Shell({ session }) {
  const current = useRoute();
  const pages = PAGES.filter(({ roles }) => roles === undefined || roles.includes(session.role));
  const shown = pages.find(({ path }) => path === current.page);
  const title = shown === undefined ? "Not found" : shown.title;
  useEffect(() => {
    document.title = `${current.id || title} · Fairlead`;
  }, [title, current.id]);
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/jobs"><img src="/web/icon.svg" alt="" width="24" height="24" />Fairlead</a>
      <nav aria-label="Pages">
        ${pages.map(
          ({ path, title }) =>
            html`<a href=${`#/${path}`} aria-current=${path === current.page ? "page" : null}>${title}</a>`,
        )}
      </nav>
      <span class="user">
        <span>${session.name} <small>${session.tenant ?? session.role}</small></span>
        <button type="button" onClick=${() => void logOut()}>Log out</button>
      </span>
    </header>
    <${Stale} />
    <main id="main" tabindex="-1">
      <${Guarded} key=${current.visit}>
        ${shown === undefined
          ? html`<h1>Not found</h1><p class="notice">No page has this address, or your role may not open it.</p>`
          : current.page === "jobs" && current.id
            ? html`<${Job} id=${current.id} session=${session} />`
            : html`<${shown.page} session=${session} query=${current.query} />`}
      <//>
    </main>
  `;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault(); // the address names the page
  document.getElementById("main")?.focus();
}

/** Tells that the data may be outdated. */
function Stale() {
  return html`<div role="status" class="stale-place">
    ${!useConnected() &&
    html`<p class="stale">Not connected to the server: these data may be outdated. Reconnecting…</p>`}
  </div>`;
}

/** Shows the error of a page that failed instead of an empty screen. @param {{children: unknown}} props */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  return error ? html`<${Failure} error=${error} retry=${reset} />` : children;
}

/** @param {{onDone: () => void}} props */
function Login({ onDone }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(null);
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    try {
      await logIn(token);
      onDone();
    } catch (problem) {
      setError(problem);
    }
  };
  useEffect(() => {
    document.title = "Log in · Fairlead";
  }, []);
  return html`<main class="login">
    <form class="card" onSubmit=${submit}>
      <h1><img src="/web/icon.svg" alt="" width="32" height="32" /> Fairlead</h1>
      <label for="token">Token</label>
      <input
        id="token"
        type="password"
        autocomplete="current-password"
        required
        autofocus
        aria-describedby="token-help"
        value=${token}
        onInput=${withValue(setToken)}
      />
      <p id="token-help" class="help">
        Ask an admin for a token: <code>fairlead tokens make NAME --tenant TENANT</code>. The first
        admin token is in <code>DATA/admin.token</code> on the server.
      </p>
      ${error && html`<${Failure} error=${error} />`}
      <button type="submit" class="primary">Log in</button>
    </form>
  </main>`;
}

render(html`<${App} />`, document.getElementById("app"));
