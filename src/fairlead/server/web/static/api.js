/** Requests to the REST API with the session of this browser. */

const STORED_KEY = "fairlead-key";
const KEY_HEADER = "Fairlead-Key";

/** An error response of the server, or no response at all (status 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {string | null} field field of the request that the error names
   */
  constructor(status, message, field = null) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/** Called when the session has ended. @type {() => void} */
let onLoggedOut = () => {};

/** @param {() => void} callback */
export function whenLoggedOut(callback) {
  onLoggedOut = callback;
}

/** @returns {boolean} whether this browser has logged in */
export function hasSession() {
  return localStorage.getItem(STORED_KEY) !== null;
}

/** @returns {Record<string, string>} the header that proves that this page sends a request */
export function sessionHeaders() {
  const key = localStorage.getItem(STORED_KEY);
  return key === null ? {} : { [KEY_HEADER]: key };
}

/** Forget the session and show the login. */
export function endSession() {
  localStorage.removeItem(STORED_KEY);
  onLoggedOut();
}

/**
 * Send a request; throw ApiError unless it succeeds.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<Response>}
 */
export async function send(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = sessionHeaders();
  /** @type {RequestInit} */
  const options = { method, headers, cache: "no-store", credentials: "same-origin" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new ApiError(0, "the server does not answer");
  }
  if (response.ok) return response;
  const error = await problem(response);
  if (response.status === 401 && path !== "/v1/session") endSession();
  throw error;
}

/** @param {Response} response @returns {Promise<ApiError>} */
async function problem(response) {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.message, error.field);
  } catch {
    return new ApiError(response.status, `status ${response.status}`);
  }
}

/**
 * Return the JSON of a resource.
 * @template {string} Path
 * @param {Path} path
 * @param {Record<string, unknown>} [query] values that are empty are left out
 * @returns {Promise<Path extends keyof Api.Resources ? Api.Resources[Path] : any>}
 */
export async function get(path, query = {}) {
  return (await send("GET", withQuery(path, query))).json();
}

/** @param {string} path @param {Record<string, unknown>} query */
export function withQuery(path, query) {
  const entries = Object.entries(query).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined && value !== false,
  );
  if (entries.length === 0) return path;
  return `${path}?${new URLSearchParams(entries.map(([name, value]) => [name, String(value)]))}`;
}

/** @param {string} token */
export async function logIn(token) {
  const session = await (await send("POST", "/v1/session", { token })).json();
  localStorage.setItem(STORED_KEY, session.key);
  return session;
}

export async function logOut() {
  try {
    await send("DELETE", "/v1/session");
  } finally {
    endSession();
  }
}

/** @param {string} id @returns {string} the path of a tenant, whose id may name the tenants around it */
export const tenantPath = (id) => `/v1/tenants/${id.split("/").map(encodeURIComponent).join("/")}`;

/** @param {string} id @param {string} [rest] */
export function jobPath(id, rest = "") {
  return `/v1/jobs/${encodeURIComponent(id)}${rest && `/${rest}`}`;
}
