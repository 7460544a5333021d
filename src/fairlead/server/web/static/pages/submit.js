/** Submit a job; shows the same job as a command line, a job file and Python. */

import { send } from "../api.js";
import { Failure, Section } from "../components.js";
import { FIELDS, asCommandLine, asPython, asYaml, jobOf } from "../job-spec.js";
import { html, useState } from "../dom.js";

export function Submit() {
  const [form, setForm] = useState({ command: "" });
  const [error, setError] = useState(null);
  const job = jobOf(form);
  const input = (event) => setForm({ ...form, [event.target.name]: event.target.value });
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
  return html`<h1>Submit a job</h1>
    <form class="card submit" onSubmit=${submit} onInput=${input}>
      <${Input} name="command" label="Command" kind="command" required wrong=${field === "command"}
        help="program and arguments, quoted as in a shell; it runs on the cluster" />
      <div class="columns">
        ${FIELDS.map((one) => html`<${Input} key=${one.name} ...${one} wrong=${field === one.name} />`)}
      </div>
      ${error && html`<${Failure} error=${error} />`}
      <button type="submit" class="primary">Submit</button>
    </form>
    <${Equivalent} title="Command line" text=${asCommandLine(job)} />
    <${Equivalent} title="Job file" text=${asYaml(job)} help="fairlead submit --file job.yaml" />
    <${Equivalent} title="Python" text=${asPython(job)} />`;
}

function Input({ name, label, kind, help, required, wrong }) {
  const settings = { id: `field-${name}`, name, required, "aria-invalid": wrong ? "true" : null };
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

function Equivalent({ title, text, help = null }) {
  const copy = html`<button type="button" onClick=${() => void navigator.clipboard?.writeText(text)}
    aria-label="Copy ${title.toLowerCase()}">Copy</button>`;
  return html`<${Section} title=${title} aside=${copy}>
    ${help && html`<p class="help"><code>${help}</code></p>`}
    <pre tabindex="0" aria-label=${title}>${text}</pre>
  <//>`;
}
