/**
 * `npm run trial -- upgrade FOLDER [IMAGES]`: the state of an older version, whose built clone is
 * in FOLDER, is taken over by this one in the middle of a job, given back, and taken over again.
 * Prints what was looked at, and ends with 1 if anything is not as it should be.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { VERSION } from "../../src/base/version.js";
import { databaseFolders } from "../../src/features/local-postgres/folders.js";
import type { Job } from "../../src/jobs/schema.js";
import { hasEnded } from "../../src/commands/job-text.js";
import { receiptSchema, type Receipt } from "../../src/results/receipt/receipt.js";
import { writeImages, type TestImage } from "../crash/lib/images.js";
import { descendants, slay } from "../crash/lib/processes.js";
import { verify } from "../crash/lib/verify.js";
import { linesOf } from "../support/audit.js";
import { filesBelow } from "../support/gateway.js";
import { removePlace } from "../support/private-postgres.js";
import { makePlace, radserve, type Place } from "../support/server.js";
import { webPacs } from "../support/web-pacs.js";

const ITEMS = Number(process.argv[3] ?? 300);
/** Beside the receipt: PNG, SR, SEG, SC. */
const OUTPUTS = ["json", "png", "sr", "seg", "sc"];
const LONGEST_MS = 600_000;
/** Until a token that was revoked is refused. */
const LONGEST_REVOKING_MS = 30_000;
/** With a server that has not opened its database yet. */
const PATIENCE_MS = 240_000;

const older = path.resolve(process.argv[2] ?? "");
const olderMain = path.join(older, "dist/src/main.js");
if (!existsSync(olderMain))
  throw new Error(`Expected the built clone of an older version; found no ${olderMain}.`);

let faults = 0;
function check(what: string, holds: boolean, otherwise: unknown = ""): void {
  if (!holds) faults += 1;
  console.log(`${holds ? "ok    " : "FAILED"} ${what}`);
  const text = typeof otherwise === "string" ? otherwise : JSON.stringify(otherwise);
  if (!holds) console.log(`       ${text.slice(0, 2_000)}`);
}

/** What jobs of both versions have. */
type JobSeen = Pick<Job, "job_id" | "state" | "counts">;

/** A server of one of the versions. All that is written to its state is written by that version. */
class Server {
  private constructor(
    private readonly process: ChildProcess,
    private readonly url: string,
    readonly place: Place,
  ) {}

  static async start(place: Place): Promise<Server> {
    const child = spawn(process.execPath, [place.main ?? "dist/src/main.js", "serve"], {
      env: place.environment,
      stdio: ["ignore", "pipe", "inherit"],
    });
    for await (const line of createInterface(child.stdout)) {
      const { msg, port } = JSON.parse(line) as { msg: string; port: number };
      if (msg !== "serving") continue;
      child.stdout.resume();
      const server = new Server(child, `http://127.0.0.1:${port}`, place);
      while (!(await fetch(`${server.url}/health/ready`)).ok) await delay(100);
      return server;
    }
    throw new Error(`It ended with ${child.exitCode}.`);
  }

  async ask(token: string, method: string, page: string, body?: unknown) {
    const response = await fetch(this.url + page, {
      method,
      headers: { Authorization: token, "Content-Type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  }

  /** The answer, as this version or the older one gives it, once the database is open. */
  async #answer(token: string, method: string, page: string, body?: unknown) {
    for (const end = Date.now() + PATIENCE_MS; ;) {
      const answer = await this.ask(token, method, page, body);
      if (answer.status < 300) return answer.body;
      if (answer.status !== 503 || Date.now() > end)
        throw new Error(`${method} ${page}: ${answer.status} ${JSON.stringify(answer.body)}`);
      await delay(500);
    }
  }

  async submit(token: string, body: object): Promise<string> {
    return String((await this.#answer(token, "POST", "/bulk_inference", body))["job_id"]);
  }

  async until(token: string, id: string, fits: (job: JobSeen) => boolean): Promise<JobSeen> {
    for (const end = Date.now() + LONGEST_MS; ;) {
      const answer: unknown = await this.#answer(token, "GET", `/bulk_inference/${id}`);
      const job = answer as JobSeen;
      if (fits(job)) return job;
      if (Date.now() > end) throw new Error(`The job does not end: ${JSON.stringify(job)}`);
      await delay(50);
    }
  }

  async stop(): Promise<void> {
    this.process.kill("SIGTERM");
    const [status] = (await once(this.process, "exit")) as [number | null];
    check("SIGTERM ends it with status 0", status === 0, String(status));
  }

  /** Everything but its PostgreSQL at once, which goes on as an orphan. */
  async kill(): Promise<void> {
    const { pid = 0 } = this.process;
    const ended = once(this.process, "exit");
    for (const one of [pid, ...descendants(pid)]) if (isOurs(one)) slay(one);
    await ended;
  }
}

const isOurs = (pid: number): boolean => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith(process.execPath);
  } catch {
    return false;
  }
};

async function command(place: Place, ...words: string[]): Promise<string> {
  const { status, stdout, stderr } = await radserve(place, ...words);
  if (status !== 0) throw new Error(`${words.join(" ")}: ${status} ${stdout}${stderr}`);
  return stdout.trim();
}

const jtiOf = (token: string): string =>
  (JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString()) as { jti: string })
    .jti;

const receiptsIn = (folder: string): Receipt[] =>
  filesBelow(folder)
    .filter((name) => name.endsWith(".dcm.json"))
    .map((name) => receiptSchema.parse(JSON.parse(readFileSync(path.join(folder, name), "utf8"))));

const count = (values: readonly string[]): string =>
  [...new Set(values)].map((one) => `${one} ${values.filter((v) => v === one).length}`).join(", ");

/** The folders of one job, and what must be in them at its end. */
class JobFolders {
  readonly images: TestImage[];
  readonly request: Record<string, unknown>;

  constructor(
    private readonly place: Place,
    private readonly name: string,
    number: number,
    more: object = {},
  ) {
    this.images = writeImages(this.input, ITEMS, { first: number * ITEMS });
    this.request = {
      input_folder_path: this.input,
      output_folder_path: this.output,
      outputs: OUTPUTS,
      models: ["ct-tissue"],
      idempotency_key: name,
      ...more,
    };
  }

  get input(): string {
    return path.join(this.place.input, this.name);
  }

  get output(): string {
    return path.join(this.place.output, this.name);
  }

  check(job: JobSeen): void {
    const { counts, state } = job;
    check(`${this.name}: completed`, state === "completed" && counts.succeeded === ITEMS, job);
    const { faults: wrong } = verify(this.images, this.input, this.output, {
      files: OUTPUTS.length - 1,
    });
    check(
      `${this.name}: every result there once, whole, right, and nothing else`,
      wrong.length === 0,
      wrong,
    );
    const uids = receiptsIn(this.output).flatMap(({ models }) =>
      models.flatMap(({ outputs }) => outputs.flatMap((one) => one.sop_instance_uid ?? [])),
    );
    check(
      `${this.name}: no SOPInstanceUID twice`,
      new Set(uids).size === uids.length && uids.length > 0,
    );
    const decided = linesOf(this.place).filter(
      ({ kind, job_id: id, outcome }) =>
        kind === "item" && id === job.job_id && outcome === "completed",
    );
    const twice = decided.length - new Set(decided.map(({ item }) => item)).size;
    console.log(
      `       versions: ${count(receiptsIn(this.output).map((one) => one.radserve_version))}`,
    );
    console.log(
      `       lines of the audit for items: ${decided.length}, of these ${twice} for a second try`,
    );
  }
}

const some = ({ counts }: JobSeen) => counts.succeeded >= ITEMS / 6;

async function verifiedAudit(place: Place, by: string): Promise<void> {
  const { status, stdout } = await radserve(place, "audit", "verify", "--json");
  check(`the audit verifies by ${by}`, status === 0, stdout.slice(0, 2_000));
}

/** Tokens that hold and tokens that do not. */
async function tokens(
  server: Server,
  good: readonly string[],
  revoked: readonly string[],
): Promise<void> {
  const statuses = async (all: readonly string[]) =>
    (await Promise.all(all.map((token) => server.ask(token, "GET", "/models")))).map(
      (one) => one.status,
    );
  check(
    `${good.length} tokens hold`,
    (await statuses(good)).every((one) => one === 200),
  );
  let seen: number[];
  // A server that stood still goes by what it knows for a moment
  for (const end = Date.now() + LONGEST_REVOKING_MS; ;) {
    seen = await statuses(revoked);
    if (seen.every((one) => one === 401) || Date.now() > end) break;
    await delay(100);
  }
  check(
    `${revoked.length} revoked ones do not`,
    seen.every((one) => one === 401),
    seen,
  );
}

async function main(): Promise<void> {
  const ends: (() => Promise<void>)[] = [];
  const pacs = await webPacs({ teardown: (end) => void ends.push(end) });
  const place = makePlace({ RADSERVE_THREADS: "2", RADSERVE_LOG_LEVEL: "info" });
  const before: Place = { ...place, main: olderMain };
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  for (const name of readdirSync(path.join(older, "models")))
    if (existsSync(path.join(older, "models", name, "model.json")))
      cpSync(path.join(older, "models", name), path.join(models, name), { recursive: true });
  const support = pathToFileURL(path.join(older, "dist/test/support/reach-models.js")).href;
  const { writeReachModel } = (await import(support)) as {
    writeReachModel: (folder: string, name: string) => string;
  };
  const cwd = process.cwd();
  process.chdir(older);
  const together = writeReachModel(models, "together");
  process.chdir(cwd);
  const site = path.join(models, "ct-tissue", "site.json");
  writeFileSync(site, JSON.stringify({ thresholds: {} }));
  const study = path.join(place.input, "case");
  cpSync(path.join(older, "test/reference/roles/brain"), study, { recursive: true });

  try {
    console.log(`--- ${await command(before, "--version")}`);
    await command(before, "init");
    await command(before, "models", "canary", together, study);
    const issue = (by: Place, ...more: string[]) =>
      command(by, "token", "issue", "--subject", "pacs", "--expires", "30d", ...more);
    const first = await issue(before);
    await command(before, "key", "new");
    const second = await issue(before, "--admin");
    const gone = await issue(before);
    let server = await Server.start(before);
    await command(before, "token", "revoke", jtiOf(gone));
    await tokens(server, [first, second], [gone]);
    const single = async (input: string, folder: string, more: object = {}) => {
      const body = {
        input_image_path: input,
        output_folder_path: path.join(place.output, folder),
        ...more,
      };
      const answer = await server.ask(second, "POST", "/single_inference", body);
      check(`a request for ${folder}: ${answer.status}`, answer.status === 200, answer.body);
      return answer.body as { reused?: boolean; receipt_path: string };
    };
    const jobA = new JobFolders(place, "a", 0);
    const image = path.join(jobA.input, jobA.images[0]!.relative);
    const old = [
      await single(image, "single", { outputs: OUTPUTS }),
      await single(study, "case", { outputs: ["json", "sr", "seg"], models: ["together"] }),
    ];
    let id = await server.submit(first, jobA.request);
    await server.until(first, id, some);
    await server.kill();

    console.log(`--- ${VERSION} over it, after SIGKILL`);
    server = await Server.start(place);
    await tokens(server, [first, second], [gone]);
    const listed = await server.ask(first, "GET", "/models");
    const ready = listed.body["models"] as { name: string; health: string }[];
    for (const name of ["burned-in-text", "ct-tissue", "together"])
      check(
        `model ${name} of before is ready`,
        ready.some((one) => one.name === name && one.health === "ready"),
        listed.body["problems"],
      );
    jobA.check(await server.until(first, id, hasEnded));
    const same = await server.submit(first, jobA.request);
    check("the same idempotency key is the same job", same === id);
    await verifiedAudit(place, VERSION);
    for (const { receipt_path: receipt } of old) {
      const input = receipt.includes("/case") ? study : image;
      const { status, stdout } = await radserve(
        place,
        "verify",
        receipt,
        "--input",
        input,
        "--json",
      );
      const { checks } = JSON.parse(stdout) as { checks: { verdict: string }[] };
      console.log(
        `       ${path.basename(receipt)}: status ${status}, ${count(checks.map((c) => c.verdict))}`,
      );
      check(
        "an old result is unchanged",
        !checks.some(({ verdict }) => verdict === "differs"),
        stdout,
      );
    }
    const again = await single(image, "single", { outputs: OUTPUTS });
    check("what the older version wrote is not taken as done", again.reused === false);
    const jobB = new JobFolders(place, "b", 1);
    id = await server.submit(first, jobB.request);
    await server.until(first, id, some);
    await server.stop();

    console.log("--- back, after SIGTERM");
    server = await Server.start(before);
    await tokens(server, [first, second], [gone]);
    await verifiedAudit(before, "the older version");
    const bulk = await server.ask(first, "GET", "/bulk_inference");
    console.log(
      `       GET /bulk_inference: ${bulk.status} ${JSON.stringify(bulk.body).slice(0, 300)}`,
    );
    await single(image, "single-back", { outputs: OUTPUTS });
    const refused = bulk.status === 503;
    const { base } = databaseFolders(place.environment["RADSERVE_STATE_DIR"]!);
    if (refused) {
      await server.stop();
      renameSync(base, `${base}-newer`);
      server = await Server.start(before);
    }
    const jobC = new JobFolders(place, "c", 2);
    const idC = await server.submit(second, jobC.request);
    await server.until(second, idC, some);
    await command(before, "token", "revoke", jtiOf(second));
    await tokens(server, [first], [gone, second]);
    await server.kill();

    console.log(`--- ${VERSION} again, after SIGKILL`);
    server = await Server.start(place);
    await tokens(server, [first], [gone, second]);
    const third = await issue(place);
    if (refused) {
      jobC.check(await server.until(await issue(place, "--admin"), idC, hasEnded));
      await server.stop();
      renameSync(base, `${base}-of-the-way-back`);
      renameSync(`${base}-newer`, base);
      server = await Server.start(place);
    } else jobC.check(await server.until(await issue(place, "--admin"), idC, hasEnded));
    jobB.check(await server.until(first, id, hasEnded));
    await verifiedAudit(place, VERSION);
    await server.stop();

    console.log("--- with destinations, killed, back, and forward");
    const gateway = path.join(place.directory, "gateway.json");
    mkdirSync(path.join(place.input, "spool"));
    const destinations = { pacs: { type: "stow", url: pacs.url, timeout: "60s" } };
    writeFileSync(
      gateway,
      JSON.stringify({ spool: path.join(place.input, "spool"), destinations }),
    );
    place.environment["RADSERVE_DOORS"] = gateway;
    await pacs.stop();
    server = await Server.start(place);
    const jobD = new JobFolders(place, "d", 3, { destinations: ["pacs"], outputs: ["json", "sr"] });
    const idD = await server.submit(third, jobD.request);
    await server.until(third, idD, some);
    await server.kill();
    console.log(
      `       the audit ended with ${linesOf(place)
        .slice(-3)
        .map(({ kind }) => kind)
        .join(", ")}`,
    );
    server = await Server.start(before);
    const seen = await server.ask(third, "GET", `/bulk_inference/${idD}`);
    console.log(
      `       the older version: ${seen.status} ${JSON.stringify(seen.body).slice(0, 300)}`,
    );
    await delay(3_000);
    await server.stop();
    await pacs.start();
    server = await Server.start(place);
    const ended = await server.until(third, idD, hasEnded);
    check("d: completed", ended.counts.succeeded === ITEMS, ended);
    // What the older version noted of its tries to send has no MAC
    console.log((await command(place, "adopt", "--without-replay")).replaceAll(/^/gm, "       "));
    for (const end = Date.now() + LONGEST_MS; pacs.kept.size < ITEMS && Date.now() < end;)
      await delay(100);
    check(`d: ${pacs.kept.size} reports in the PACS of ${ITEMS}`, pacs.kept.size === ITEMS);
    check("d: each sent once", pacs.sent.length === ITEMS, `${pacs.sent.length} times`);
    await server.stop();
    await verifiedAudit(place, VERSION);
  } finally {
    for (const end of ends) await end();
    const folders = databaseFolders(place.environment["RADSERVE_STATE_DIR"]!);
    await removePlace(folders);
    if (process.env["RADSERVE_UPGRADE_KEEP"] === undefined) place.remove();
    else console.log(place.directory);
  }
}

await main();
process.exitCode = faults === 0 ? 0 : 1;
