/** `radserve bulk` and `radserve jobs` against a real server with a real queue. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { itemListSchema, jobListSchema, jobSchema } from "../../src/jobs/schema.js";
import { hold } from "../support/bulk.js";
import { ServingNode } from "../crash/lib/node.js";
import { writeImages } from "../crash/lib/images.js";
import { slay } from "../crash/lib/processes.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { issueToken, radserve, root, type Place, type Ran } from "../support/server.js";
import { until } from "../support/until.js";

const main = path.join(root, "dist/src/main.js");

const missing = needs(ADDON);
if (missing !== false) t.bailout(missing);
const node = await ServingNode.start({ settings: { RADSERVE_THREADS: "1" } });
t.teardown(async () => {
  await node.stop();
  await node.remove();
});
const client: Place = {
  ...node.place,
  environment: {
    ...node.place.environment,
    RADSERVE_URL: node.url,
    RADSERVE_TOKEN: await issueToken(node.place),
  },
};
const run = (...words: string[]): Promise<Ran> => radserve(client, ...words);

let folders = 0;
/** A new input folder with so many slices, and an output folder. */
function folder(count: number): { input: string; output: string } {
  const name = `case-${(folders += 1)}`;
  const input = path.join(node.input, name);
  writeImages(input, count, { first: folders * 1000 });
  return { input, output: path.join(node.output, name) };
}

/** Cuts the first slice of a folder off in its pixels; gives what makes it whole again. */
function breakSlice(input: string): () => void {
  const name = path.join("series-0", readdirSync(path.join(input, "series-0")).sort()[0]!);
  const file = path.join(input, name);
  const whole = readFileSync(file);
  writeFileSync(file, whole.subarray(0, whole.length / 2));
  return () => writeFileSync(file, whole);
}

/**
 * A folder whose job stands until it is let go, however long whoever orders something about it
 * takes.
 */
async function heldFolder(t: Test, count: number) {
  const { input, output } = folder(count);
  const release = await hold(
    t,
    path.join(output, "series-0"),
    readdirSync(path.join(input, "series-0")),
  );
  return { input, output, release };
}

/** Resolves with the match as soon as a program has said what fits. */
function said(child: ChildProcess, fits: RegExp): Promise<RegExpExecArray> {
  return new Promise((resolve, reject) => {
    let text = "";
    const hear = (chunk: Buffer) => {
      text += chunk.toString();
      const match = fits.exec(text);
      if (match !== null) resolve(match);
    };
    child.stdout?.on("data", hear);
    child.stderr?.on("data", hear);
    // Not its exit: what it said last may still be in the pipe then
    child.once("close", () => reject(new Error(`It ended before it said ${fits}: ${text}`)));
  });
}

const ended = (child: ChildProcess) =>
  new Promise<number | null>((resolve) => child.once("exit", resolve));
const jobOf = async (id: string) =>
  jobSchema.parse(JSON.parse((await run("jobs", "show", id, "--json")).stdout));

t.test("a folder to its end", async (t) => {
  const { input, output } = folder(3);
  writeFileSync(path.join(input, "notes.txt"), "no image");
  const good = await run("bulk", input, output, "--outputs", "json");
  t.equal(good.status, 0, "what was skipped is no failure");
  t.match(good.stderr, /^job [0-9a-f-]{36}$/m);
  t.match(good.stdout, /^completed: \d images in .*: 3 succeeded/m);
  t.notOk(good.stdout.includes("\u001b"), "no drawing where there is no terminal");

  breakSlice(input);
  const bad = await run("bulk", input, output, "--outputs", "json");
  t.equal(bad.status, 1);
  t.match(bad.stdout, /^ {2}failed: .*slice-.*\.dcm: The pixel data has .+/m, "with its reason");

  const json = await run("bulk", input, output, "--outputs", "json", "--json");
  t.equal(json.status, 1);
  t.match(JSON.parse(json.stdout), {
    state: "completed",
    counts: { succeeded: 2, failed: 1 },
    problems: [{ state: "failed", error: { error: "truncated_image" } }],
  });
});

t.test("what a job warns of is told at its end", async (t) => {
  const { input, output } = folder(0);
  mkdirSync(input);
  writeFileSync(path.join(input, "notes.txt"), "no image");
  const { stdout } = await run("bulk", input, output);
  t.match(stdout, /^ {2}Warning: No image of the job was analysed/m);
});

t.test("what is refused", async (t) => {
  const { input, output } = folder(1);
  const elsewhere = await run("bulk", "/etc", output);
  t.equal(elsewhere.status, 2);
  t.match(elsewhere.stderr, /^Expected input paths inside .+ \(path_not_allowed\)$/m);
  const share = await run("bulk", "smb://pacs/in", output);
  t.equal(share.status, 2);
  t.match(share.stderr, /RADSERVE_PATH_MAP translates; found an address/, "as it was given");
  const unknown = await run("bulk", input, output, "--model", "ct-tisue", "--json");
  t.equal(unknown.status, 2);
  t.match(JSON.parse(unknown.stdout), { message: /the nearest is "ct-tissue"/ });
  t.match(await run("bulk", input), { status: 2 });

  const strange = { ...client, environment: { ...client.environment, RADSERVE_TOKEN: "x" } };
  const refused = await radserve(strange, "jobs", "list");
  t.equal(refused.status, 1);
  t.match(refused.stderr, /Invalid token.*radserve token issue/);
  const without = { ...client, environment: { ...client.environment, RADSERVE_TOKEN: "" } };
  t.match(await radserve(without, "jobs", "list"), {
    status: 2,
    stderr: /^RADSERVE_TOKEN: expected/,
  });
  const nobody = {
    ...client,
    environment: { ...client.environment, RADSERVE_URL: "http://127.0.0.1:2" },
  };
  t.match(await radserve(nobody, "jobs", "list"), {
    status: 1,
    stderr: /none answers \(ECONNREFUSED\).*RADSERVE_URL/,
  });
});

t.test("jobs: pages, states and what can be done to one", async (t) => {
  const { input, output } = folder(2);
  const key = ["--idempotency-key", "once"];
  const first = await run("bulk", input, output, "--outputs", "json", "--detach", ...key);
  const id = first.stdout.trim();
  t.match(first, { status: 0, stdout: /^[0-9a-f-]{36}\n$/ });
  t.equal(
    (await run("bulk", input, output, "--outputs", "json", "--detach", ...key)).stdout.trim(),
    id,
  );
  t.match(await run("bulk", input, output, ...key), { status: 2, stderr: /idempotency_conflict/ });

  t.equal(
    (await run("bulk", input, output, "--outputs", "json", ...key)).status,
    0,
    "followed to its end",
  );
  t.match(await run("jobs", "show", id), { status: 0, stdout: /^state +completed$/m });
  const { jobs } = jobListSchema
    .extend({ next_cursor: jobListSchema.shape.next_cursor.optional() })
    .parse(JSON.parse((await run("jobs", "list", "--state", "completed", "--json")).stdout));
  t.ok(jobs.some((job) => job.job_id === id));
  t.match(await run("jobs", "list", "--limit", "1"), {
    stdout: /^JOB .*\n[0-9a-f-]{36} .*\n$/,
    stderr: /more/,
  });
  const { items } = itemListSchema
    .extend({ next_cursor: itemListSchema.shape.next_cursor.optional() })
    .parse(JSON.parse((await run("jobs", "items", id, "--json")).stdout));
  t.strictSame(
    items.map(({ index, state }) => [index, state]),
    [
      [0, "succeeded"],
      [1, "succeeded"],
    ],
  );
  t.match(await run("jobs", "items", id, "--state", "failed"), {
    status: 0,
    stdout: "",
    stderr: /No such/,
  });
  t.match(await run("jobs", "items", id, "--state", "lost"), {
    status: 2,
    stderr: /--state: expected one of/,
  });
  t.match(await run("jobs", "show", "0b6d8f2e-6a0a-4f0e-9a8e-1b2c3d4e5f60"), {
    status: 1,
    stderr: /job_not_found/,
  });
  t.equal((await run("jobs", "purge", id)).status, 0);
  t.match(await run("jobs", "show", id), { status: 1, stderr: /job_not_found/ });
});

t.test("jobs: pause, resume, cancel, retry", async (t) => {
  const { input, output, release } = await heldFolder(t, 60);
  const id = (await run("bulk", input, output, "--detach")).stdout.trim();
  t.match(JSON.parse((await run("jobs", "pause", id, "--json")).stdout), {
    state: "paused",
    paused_reason: { code: "paused_by_request" },
  });
  t.equal((await run("jobs", "resume", id)).status, 0);
  t.notMatch(await jobOf(id), { state: "paused" });
  t.match(await run("jobs", "cancel", id), { status: 0, stdout: /cancelled/ });
  const { counts } = await jobOf(id);
  t.ok(counts.cancelled > 0);
  await release();

  const few = folder(2);
  const mend = breakSlice(few.input);
  const json = await run("bulk", few.input, few.output, "--outputs", "json", "--json");
  t.equal(json.status, 1);
  const { job_id } = jobSchema.parse(JSON.parse(json.stdout));
  mend();
  t.equal((await run("jobs", "retry", job_id)).status, 0);
  await until("the job has ended", async () => (await jobOf(job_id)).state === "completed");
  t.match((await jobOf(job_id)).counts, { succeeded: 2, failed: 0 });
});

t.test("it waits for a server that starts again", async (t) => {
  const { input, output } = folder(60);
  const child = spawn(process.execPath, [main, "bulk", input, output, "--outputs", "json"], {
    env: client.environment,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const exit = ended(child);
  await said(child, /^job /m);
  slay(node.supervisor()!);
  t.equal(await exit, 0);
});

t.test("Ctrl-C without a terminal leaves the job alone", async (t) => {
  const { input, output, release } = await heldFolder(t, 60);
  const child = spawn(process.execPath, [main, "bulk", input, output], {
    env: client.environment,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const exit = ended(child);
  const [, id = ""] = await said(child, /^job (.*)$/m);
  await run("jobs", "pause", id);
  child.kill("SIGINT");
  t.equal(await exit, 130);
  t.match(await jobOf(id), { state: "paused" });
  await run("jobs", "cancel", id);
  await release();
});

t.test(
  "Ctrl-C on a terminal leaves the job alone, too",
  { skip: commandsAre("script") },
  async (t) => {
    const { input, output, release } = await heldFolder(t, 60);
    // exec: a shell in between would end by the signal too, and its status be told
    const words = [process.execPath, main, "bulk", input, output].map((word) => `'${word}'`);
    const child = spawn("script", ["-qec", ["exec", ...words].join(" "), "/dev/null"], {
      env: client.environment,
      stdio: ["pipe", "pipe", "pipe"],
    });
    const exit = ended(child);
    const [, id = ""] = await said(child, /^job ([0-9a-f-]{36})/m);
    await run("jobs", "pause", id);
    const heard = said(child, /Detached: the job continues/);
    child.stdin.write("\u0003");
    await heard;
    t.equal(await exit, 130);
    t.match(await jobOf(id), { state: "paused" });
    await run("jobs", "cancel", id);
    await release();
  },
);

t.test("help says the exit statuses", async (t) => {
  const help = await new Promise<string>((resolve) => {
    execFile(process.execPath, [main, "bulk", "--help"], (_, stdout) => resolve(stdout));
  });
  t.match(help, /130 {2}detached/);
});
