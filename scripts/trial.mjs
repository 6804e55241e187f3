/**
 * What the scripts that try a package share: a line for each thing that was tried, and an installed
 * server at work.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { freePort } from "../dist/test/support/server.js";

/** A busy machine may take minutes for what takes seconds. */
const WAIT_MS = 240_000;
const LONGEST_ANSWER_MS = 240_000;
const LOOK_MS = 200;

let since = Date.now();

/**
 * Prints what was tried and the seconds since the line before. If it does not hold, the script ends
 * with 1.
 */
export function check(what, holds, text = "") {
  const seconds = Math.round((Date.now() - since) / 1000);
  since = Date.now();
  console.log(`${holds ? "ok    " : "FAILED"} ${what}${seconds > 0 ? ` (${seconds} s)` : ""}`);
  if (holds) return;
  console.log(text);
  process.exitCode = 1;
}

/** Asks again until there is an answer. Throws after four minutes. */
export async function until(what, asked) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    const answer = await Promise.resolve()
      .then(asked)
      .catch((error) => void error);
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`Waited too long: ${what}.`);
    await delay(LOOK_MS);
  }
}

export const ready = (url) =>
  until(`${url} is ready`, async () => (await fetch(`${url}/health/ready`)).ok);

export async function ask(url, token, method, route, body) {
  const answer = await fetch(url + route, {
    method,
    signal: globalThis.AbortSignal.timeout(LONGEST_ANSWER_MS),
    headers: { Authorization: token, "Content-Type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: await answer.json() };
}

/**
 * Why GET / does not show the page for people; empty if it does, with each file that the page
 * names.
 */
export async function pageFault(url) {
  const answer = await fetch(`${url}/`);
  const text = await answer.text();
  if (answer.status !== 200 || !/^text\/html/.test(answer.headers.get("content-type") ?? ""))
    return `GET /: ${answer.status}\n${text}`;
  const names = [...text.matchAll(/(?:src|href)="\.?(\/assets\/[^"]+)"/g)].map(([, name]) => name);
  if (names.length < 2)
    return `GET /: expected a script and a style, found ${names.join(" ")}\n${text}`;
  const faults = [];
  for (const name of names) {
    const { status } = await fetch(url + name);
    if (status !== 200) faults.push(`GET ${name}: ${status}`);
  }
  return faults.join("\n");
}

/**
 * An installed Radserve that serves.
 * @param program its command with its first words, which the command's own follow
 * @param env its settings; the port is chosen here
 */
export async function startInstalled([program, ...words], { env, cwd }) {
  const port = await freePort();
  const settings = { ...env, RADSERVE_HOST: "127.0.0.1", RADSERVE_PORT: String(port) };
  const child = spawn(program, [...words, "serve"], {
    cwd,
    env: settings,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (said += data));
  const exited = once(child, "exit");
  const url = `http://127.0.0.1:${port}`;
  const ended = exited.then(([status]) =>
    Promise.reject(new Error(`serve ended with ${status}.\n${said}`)),
  );
  ended.catch(() => undefined);
  await Promise.race([ready(url), ended]);
  const issued = spawnSync(program, [...words, "token", "issue", "--subject", "trial"], {
    cwd,
    env: settings,
    encoding: "utf8",
  });
  const token = issued.stdout.trim();
  return {
    url,
    token,
    ask: (method, route, body, as = token) => ask(url, as, method, route, body),
    /** Sends SIGTERM; gives the exit status and what was logged. */
    async stop() {
      child.kill("SIGTERM");
      const [status] = await exited;
      return { status, text: said };
    },
  };
}

export const jobEnded = (asked, id) =>
  until("the job has ended", async () => {
    const { body } = await asked("GET", `/bulk_inference/${id}`);
    // Whose database is starting answers with an error, which has no such field
    return typeof body.finished_at === "string" && body;
  });
