/** A job as the submission form has it, and its equivalents: CLI line, job file, Python. */

/**
 * Fields of the form: name in the API, option of ``fairlead submit``, and kind of the value.
 * @type {{name: string, label: string, option: string, kind: "text" | "whole" | "number" | "list" | "variables", help?: string}[]}
 */
export const FIELDS = [
  { name: "name", label: "Name", option: "--name", kind: "text" },
  { name: "tenant", label: "Tenant", option: "--tenant", kind: "text", help: "default: your token's" },
  { name: "workload", label: "Workload", option: "--workload", kind: "text", help: "model and batch size, the key of the speed table" },
  { name: "gang", label: "Gang", option: "--gang", kind: "whole", help: "devices needed at once; default 1" },
  { name: "accelerators", label: "Accelerators", option: "--accelerators", kind: "list", help: "such as v100,k80=2; default all" },
  { name: "steps", label: "Steps", option: "--steps", kind: "whole", help: "training steps in all" },
  { name: "priority", label: "Priority", option: "--priority", kind: "whole", help: "higher is served first" },
  { name: "weight", label: "Weight", option: "--weight", kind: "number", help: "relative to other jobs; default 1" },
  { name: "deadline_s", label: "Deadline", option: "--deadline", kind: "number", help: "seconds from now" },
  { name: "directory", label: "Working directory", option: "--directory", kind: "text", help: "on the cluster" },
  { name: "environment", label: "Environment", option: "--env", kind: "variables", help: "one NAME=VALUE per line" },
];

/**
 * Return the words of a command line; quotes and backslashes work as in a shell.
 * @param {string} line
 */
export function splitCommand(line) {
  const words = [];
  let word = /** @type {string | null} */ (null);
  let quote = "";
  for (let i = 0; i < line.length; i += 1) {
    const character = line[i];
    if (quote !== "") {
      if (character === quote) quote = "";
      else if (character === "\\" && quote === '"' && '"\\'.includes(line[i + 1])) word += line[(i += 1)];
      else word += character;
    } else if (character === '"' || character === "'") {
      quote = character;
      word ??= "";
    } else if (/\s/.test(character)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (character === "\\" && i + 1 < line.length) {
      word = (word ?? "") + line[(i += 1)];
    } else {
      word = (word ?? "") + character;
    }
  }
  if (word !== null) words.push(word);
  return words;
}

/**
 * Return the body of ``POST /v1/jobs``.
 * @param {Record<string, string>} form texts of the form
 */
export function jobOf(form) {
  /** @type {Record<string, unknown>} */
  const job = { command: splitCommand(form.command ?? "") };
  for (const { name, kind } of FIELDS) {
    const text = (form[name] ?? "").trim();
    if (text !== "") job[name] = READERS[kind](text);
  }
  return job;
}

/**
 * Return the texts of the form for a job like another one.
 * @param {Api.JobView} view
 * @returns {Record<string, string>}
 */
export function formOf(view) {
  /** @type {Record<string, string>} */
  const form = { command: view.command.map(quoted).join(" ") };
  const { name, tenant, workload, gang, total_steps: steps, priority, weight } = view;
  for (const [field, value] of Object.entries({ name, tenant, workload, gang, steps, priority, weight })) {
    if (value && value !== USUAL[field]) form[field] = String(value);
  }
  return form;
}

/** Values that a form leaves out. @type {Record<string, unknown>} */
const USUAL = { gang: 1, priority: 0, weight: 1 };

/** @type {Record<string, (text: string) => unknown>} */
const READERS = {
  text: (text) => text,
  whole: Number,
  number: Number,
  list: (text) => text.split(",").map((part) => part.trim()),
  variables: (text) =>
    Object.fromEntries(
      text.split("\n").filter((line) => line.trim() !== "").map((line) => {
        const [name, ...value] = line.split("=");
        return [name.trim(), value.join("=")];
      }),
    ),
};

/** @param {Record<string, any>} job */
export function asCommandLine(job) {
  const options = FIELDS.flatMap(({ name, option, kind }) => {
    if (job[name] === undefined) return [];
    if (kind === "variables") {
      return Object.entries(job[name]).flatMap(([key, value]) => [option, `${key}=${value}`]);
    }
    return [option, kind === "list" ? job[name].join(",") : String(job[name])];
  });
  return ["fairlead", "submit", ...options, "--", ...job.command].map(quoted).join(" ");
}

/** @param {string} word */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** @param {Record<string, any>} job */
export function asYaml(job) {
  // JSON values are YAML values.
  return Object.entries(job).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join("\n");
}

/** @param {Record<string, any>} job */
export function asPython({ command, ...settings }) {
  const lines = Object.entries(settings).map(([name, value]) => `    ${name}=${JSON.stringify(value)},`);
  const call = [`    ${JSON.stringify(command)},`, ...lines].join("\n");
  return `from fairlead.client import Client\n\nClient.from_environment().submit(\n${call}\n)`;
}
