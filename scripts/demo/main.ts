/**
 * `npm run demo`: a server on loopback with a throw-away key, two sample images sent to it by HTTP,
 * one by one and as a bulk job, and the results to look at. `--exit` ends after that; without it
 * the server stays until Ctrl-C.
 */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as delay } from "node:timers/promises";
import { table } from "../../src/base/table.js";
import { databaseFolders } from "../../src/features/local-postgres/folders.js";
import { acceptedSchema, itemListSchema, jobSchema } from "../../src/jobs/schema.js";
import { Client } from "../../src/commands/client.js";
import { hasEnded, summaryText, whyOf } from "../../src/commands/job-text.js";
import { answerSchema, type Answer } from "../../src/results/receipt/receipt.js";
import { demoSeries, samples, type Samples } from "./samples.js";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const cli = join(root, "bin/radserve");

/** RADSERVE_PORT, otherwise 8500; a free one where that is taken. */
async function choosePort(): Promise<number> {
  const wanted = Number(process.env["RADSERVE_PORT"] ?? 8500);
  for (const port of [wanted, 0]) {
    const probe = createServer();
    const free = await new Promise<boolean>((resolve) => {
      probe.once("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!free) continue;
    const address = probe.address();
    await new Promise((resolve) => probe.close(resolve));
    if (address !== null && typeof address !== "string") {
      if (address.port !== wanted)
        console.log(`Port ${wanted} is taken: this demo uses ${address.port}.\n`);
      return address.port;
    }
  }
  throw new Error("No free port on 127.0.0.1.");
}

interface Demo {
  url: string;
  token: string;
  output: string;
  server: ChildProcess;
}

const LONGEST_START_S = 180;

async function untilReady(url: string, server: ChildProcess): Promise<void> {
  // A busy machine may take a minute for what takes a second
  const end = Date.now() + 1000 * LONGEST_START_S;
  while (Date.now() < end) {
    if (server.exitCode !== null)
      throw new Error(`The server ended with status ${server.exitCode}; its log is above.`);
    const answer = await fetch(`${url}/health/ready`).catch(() => undefined);
    if (answer?.ok) return;
    await delay(100);
  }
  throw new Error(`The server was not ready within ${LONGEST_START_S} s.`);
}

async function start(folder: string, state: string, logs: string): Promise<Demo> {
  const port = await choosePort();
  const env = {
    ...process.env,
    RADSERVE_HOST: "127.0.0.1",
    RADSERVE_PORT: String(port),
    RADSERVE_STATE_DIR: state,
    RADSERVE_INPUT_ROOTS: join(folder, "input"),
    RADSERVE_OUTPUT_ROOTS: join(folder, "output"),
    RADSERVE_FILES_BY_HTTP: "view,download",
    RADSERVE_LOG_LEVEL: "warn",
  };
  execFileSync(cli, ["init"], { env, cwd: state, stdio: ["ignore", "ignore", "inherit"] });
  const server = spawn(cli, ["serve"], { env, cwd: state, stdio: ["ignore", "ignore", "inherit"] });
  const url = `http://127.0.0.1:${port}`;
  await untilReady(url, server);
  const token = execFileSync(cli, ["token", "issue", "--subject", "demo", "--expires", "1d"], {
    env,
    cwd: state,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  }).trim();
  writeFileSync(logs, `${token}\n`, { mode: 0o600 });
  return { url, token, output: join(folder, "output"), server };
}

async function send(demo: Demo, input: string): Promise<Answer> {
  const body = { input_image_path: input, output_folder_path: demo.output };
  console.log(`POST ${demo.url}/single_inference\n${JSON.stringify(body, null, 2)}`);
  const began = performance.now();
  const response = await fetch(`${demo.url}/single_inference`, {
    method: "POST",
    headers: { Authorization: demo.token, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer: unknown = await response.json();
  console.log(`\n${response.status} in ${Math.round(performance.now() - began)} ms`);
  if (!response.ok) throw new Error(JSON.stringify(answer, null, 2));
  return answerSchema.parse(answer);
}

function report(answer: Answer): void {
  console.log(
    `status ${answer.status}${answer.reused ? " (reused)" : ""}, receipt ${answer.receipt_path}`,
  );
  for (const model of answer.models) {
    console.log(`  ${model.name} ${model.version}: ${model.status}`);
    for (const reason of model.reasons ?? []) console.log(`    - ${reason.message}`);
    for (const output of model.outputs) console.log(`    ${output.media_type}  ${output.path}`);
  }
  const timings = Object.entries(answer.timings_ms).map(([step, ms]) => `${step} ${ms.toFixed(1)}`);
  console.log(`  milliseconds: ${timings.join(", ")}`);
}

/** The folder as one bulk job, to its end; the queue's database is started by it. */
async function sendFolder(demo: Demo, input: string): Promise<void> {
  const body = { input_folder_path: input, output_folder_path: join(demo.output, "bulk") };
  console.log(`\nPOST ${demo.url}/bulk_inference\n${JSON.stringify(body, null, 2)}`);
  const client = new Client(demo.url, demo.token);
  const accepted = await client.call(acceptedSchema, "POST", "/bulk_inference", body);
  console.log(`\n202, job ${accepted.job_id}`);
  const page = `/bulk_inference/${accepted.job_id}`;
  let job = await client.call(jobSchema, "GET", page);
  for (; !hasEnded(job); job = await client.call(jobSchema, "GET", page)) await delay(100);
  console.log(summaryText(job));
  const { items } = await client.call(itemListSchema, "GET", `${page}/items`);
  for (const item of items) {
    console.log(`  ${item.state}: ${item.input_image_path} ${whyOf(item)}`.trimEnd());
    if (item.receipt_path !== undefined) console.log(`    ${item.receipt_path}`);
  }
}

function compareWithTruth(answer: Answer, truth: Samples["truth"]): void {
  const measured = answer.models.find((model) => model.name === "ct-tissue")?.measurements ?? [];
  const rows = Object.values(truth).map((area, i) => {
    const m = measured[i];
    return [
      m?.label ?? m?.name ?? "?",
      `${area.toFixed(2)} cm2`,
      `${(m?.value ?? NaN).toFixed(2)} cm2`,
    ];
  });
  console.log(
    `\n${table([["tissue", "painted", "measured"], ...rows], [1, 2]).replace(/^/gm, "  ")}`,
  );
  console.log();
}

async function main(): Promise<void> {
  if (!existsSync(join(root, "build/Release/addon.node")))
    throw new Error("The addon is not built. Run: npm ci");
  const folder = resolve("demo-output");
  const state = mkdtempSync(join(tmpdir(), "radserve-demo-"));
  const database = databaseFolders(state);
  process.on("exit", () => {
    for (const own of [state, database.base, database.run])
      rmSync(own, { recursive: true, force: true });
  });
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "input"), { recursive: true });
  mkdirSync(join(folder, "output"));
  mkdirSync(join(folder, "series"));

  console.log("Radserve demo: drawing two sample images and starting a server on loopback.\n");
  const drawn = await samples();
  const ct = join(folder, "input", "ct-phantom.dcm");
  const ultrasound = join(folder, "input", "ultrasound-burned-in.dcm");
  writeFileSync(ct, drawn.ct);
  writeFileSync(ultrasound, drawn.ultrasound);
  for (const [i, slice] of demoSeries().entries())
    writeFileSync(join(folder, "series", `${i + 1}.dcm`), slice);

  const tokenFile = join(folder, "token");
  const demo = await start(folder, state, tokenFile);
  const stop = async () => {
    demo.server.kill("SIGTERM");
    if (demo.server.exitCode === null) await once(demo.server, "exit");
  };
  process.once("SIGINT", () => {
    void stop();
  });
  try {
    const answer = await send(demo, ct);
    report(answer);
    compareWithTruth(answer, drawn.truth);
    report(await send(demo, ultrasound));
    await sendFolder(demo, join(folder, "input"));
    console.log(`\nOpen the pictures in ${demo.output}`);
    if (process.argv.includes("--exit")) {
      await stop();
      return;
    }
    console.log(`\nThe server is up until Ctrl-C. Its page shows these results: open ${demo.url}/#/results and paste this token:\n
${demo.token}\n
Or send an image again:\n
curl -s ${demo.url}/single_inference \\
  -H "Authorization: $(cat ${tokenFile})" -H 'Content-Type: application/json' \\
  -d '${JSON.stringify({ input_image_path: ct, output_folder_path: demo.output })}'\n`);
    await once(demo.server, "exit");
  } catch (error) {
    await stop();
    throw error;
  }
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
});
