/** Submit a job; shows the same job as a command line, a job file and Python. */

import { get, jobPath, send } from "../api.js";
import { Failure, Loaded, Section } from "../components.js";
import { FIELDS, asCommandLine, asPython, asYaml, formOf, jobOf } from "../job-spec.js";
import { useLive } from "../live.js";
import { html, useState } from "../dom.js";

/** @param {{query: URLSearchParams}} props ``clone``: the job whose values the form begins with */
export function Submit({ query }) {
  const id = query.get("clone");
  return html`<h1>Submit a job</h1>
    ${id === null ? html`<${Form} first=${{ command: "" }} />` : html`<${Clone} id=${id} />`}`;
}

/** @param {{id: string}} props */
function Clone({ id }) {
  const job = useLive(() => get(jobPath(id)), [id], { every: 0, wants: () => false });
  return html`<p class="notice">
      A copy of ${id}. The server does not show the environment, the working directory, the
      accelerators and the code of a job: fill in those that this one needs.
    </p>
    <${Loaded} of=${job}>${(/** @type {Api.JobView} */ data) => html`<${Form} first=${formOf(data)} />`}<//>`;
}

/** @param {{first: Record<string, string>}} props */
function Form({ first }) {
  const [form, setForm] = useState(first);
  const [error, setError] = useState(/** @type {import("../api.js").ApiError | null} */ (null));
  const job = jobOf(form);
  /** @param {import("../dom.js").FieldEvent} event */
  const input = (event) => setForm({ ...form, [event.target.name]: event.target.value });
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    try {
      const made = await (await send("POST", "/v1/jobs", job)).json();
      location.hash = `#/jobs/${encodeURIComponent(made.id)}`;
    } catch (problem) {
      setError(problem);
    }
  };
  const field = error?.field?.split(".")[0];
  return html`
    <form class="card submit" onSubmit=${submit} onInput=${input}>
      <${Input} name="command" label="Command" kind="command" required wrong=${field === "command"} value=${form.command}
        help="program and arguments, quoted as in a shell; it runs on the cluster" />
      <div class="columns">
        ${FIELDS.map((one) => html`<${Input} key=${one.name} ...${one} wrong=${field === one.name} value=${form[one.name] ?? ""} />`)}
      </div>
      ${error && html`<${Failure} error=${error} />`}
      <button type="submit" class="primary">Submit</button>
    </form>
    <${Equivalent} title="Command line" text=${asCommandLine(job)} />
    <${Equivalent} title="Job file" text=${asYaml(job)} help="fairlead submit --file job.yaml" />
    <${Equivalent} title="Python" text=${asPython(job)} />`;
}

/**
 * @param {{name: string, label: string, kind: string, help?: string, required?: boolean, wrong: boolean, value: string}} props
 */
function Input({ name, label, kind, help, required, wrong, value }) {
  const settings = { id: `field-${name}`, name, required, value, "aria-invalid": wrong ? "true" : null };
  const described = { ...settings, "aria-describedby": help ? `help-${name}` : null };
  const type = kind === "whole" || kind === "number" ? "number" : "text";
  return html`<div class="field kind-${kind}">
    <label for=${settings.id}>${label}</label>
    ${kind === "variables"
      ? html`<textarea ...${described} rows="2"></textarea>`
      : html`<input ...${described} type=${type} step=${kind === "number" ? "any" : null} autocomplete="off" />`}
    ${help && html`<small id=${`help-${name}`}>${help}</small>`}
  </div>`;
}

/** @param {{title: string, text: string, help?: string | null}} props */
function Equivalent({ title, text, help = null }) {
  const copy = html`<button type="button" onClick=${() => void navigator.clipboard?.writeText(text)}
    aria-label="Copy ${title.toLowerCase()}">Copy</button>`;
  return html`<${Section} title=${title} aside=${copy}>
    ${help && html`<p class="help"><code>${help}</code></p>`}
    <pre tabindex="0" aria-label=${title}>${text}</pre>
  <//>`;
}
