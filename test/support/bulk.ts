/** A server with one model and a database, its bulk pages, and images for it. */
import {
  closeSync,
  cpSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import { ZodError } from "zod";
import {
  itemListSchema,
  jobDetailsSchema,
  reconciliationSchema,
  type Item,
  type JobDetails,
  type Reconciliation,
} from "../../src/jobs/schema.js";
import { slice } from "./series.js";
import { attributesOf, CT_SLICE, dicomFile, picture, type Attributes } from "./dicom.js";
import { isMarkName } from "../../src/files/folder-mark.js";
import { NameLock } from "../../src/files/name-lock.js";
import { databaseUrl } from "./postgres.js";
import { makePlace, root, startServer, type Place, type TestServer } from "./server.js";
import { until as untilHolds, Wait } from "./until.js";

/** Folders with the model ct-tissue alone, and a fresh database unless `extra` names one. */
export function bulkPlace(t: Test, extra: Record<string, string> = {}): Place {
  return ctPlace({ ...extra, DATABASE_URL: extra["DATABASE_URL"] ?? databaseUrl(t) });
}

export function ctPlace(extra: Record<string, string>): Place {
  // What lies in output folders is compared by name; report.test.ts tests the reports
  const place = makePlace({ RADSERVE_THREADS: "2", RADSERVE_JOB_REPORTS: "off", ...extra });
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  cpSync(path.join(root, "models/ct-tissue"), path.join(models, "ct-tissue"), { recursive: true });
  return place;
}

/** A CT slice of 4 x 6 pixels, as a file. */
export function writeSlice(file: string, z = 1, attributes: Attributes = {}): void {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, slice({ z, attributes }));
}

/**
 * The same CT slice under many names, large so that a job takes some seconds. @param side rows and
 * columns
 */
export function writeMany(folder: string, count: number, side = 512): void {
  mkdirSync(folder, { recursive: true });
  const raw = picture({
    rows: side,
    columns: side,
    samples: 1,
    bitsAllocated: 16,
    bitsStored: 12,
    signed: false,
  });
  const first = path.join(folder, nameOf(0));
  writeFileSync(first, dicomFile({ attributes: attributesOf(raw, CT_SLICE), pixels: raw.data }));
  for (let i = 1; i < count; i++) linkSync(first, path.join(folder, nameOf(i)));
}

/** Small CT slices under the names of `nameOf`. @returns these names */
export function writeSlices(folder: string, count: number): string[] {
  const names = Array.from({ length: count }, (_, i) => nameOf(i));
  for (const [i, name] of names.entries()) writeSlice(path.join(folder, name), i);
  return names;
}

/**
 * Holds the results of some images of a folder: their job stops when it comes to them, until they
 * are let go. So a test does in the middle of a job what it has to, however fast or slow the
 * machine is.
 * @param output the folder of the results, which is made; it may be renamed or unmounted meanwhile
 * @returns lets them go
 */
export async function hold(
  t: Test,
  output: string,
  names: readonly string[],
): Promise<() => Promise<void>> {
  mkdirSync(output, { recursive: true });
  const fd = openSync(output, "r");
  const locks = await Promise.all(names.map((name) => NameLock.take(`/proc/self/fd/${fd}`, name)));
  let open = true;
  const release = async () => {
    if (!open) return;
    open = false;
    await Promise.all(locks.map((lock) => lock.release()));
    closeSync(fd);
  };
  t.teardown(release);
  return release;
}

/** A job that is cancelled when some of its images are done. */
export async function cancelledJob(t: Test, bulk: Bulk, input: string, output: string) {
  const images = 24;
  const done = 4;
  const names = writeSlices(input, images);
  const release = await hold(t, output, names.slice(done));
  const id = await bulk.submit({ input_folder_path: input, output_folder_path: output });
  await bulk.until(id, ({ counts }) => counts.succeeded > 0);
  t.match(await bulk.send("DELETE", `/bulk_inference/${id}`), { status: 200 });
  await release();
  return { id, job: await bulk.ended(id) };
}

/** What a client asks and orders about a job, below its page. */
export const JOB_PAGES: readonly [method: string, page: string][] = [
  ["GET", ""],
  ["GET", "/items"],
  ["DELETE", ""],
  ["POST", "/retry"],
  ["POST", "/pause"],
  ["POST", "/resume"],
  ["POST", "/reconcile"],
  ["POST", "/purge"],
];

/** What lies in an output folder, without the marks of jobs that have not ended. */
export const resultsIn = (folder: string): string[] =>
  readdirSync(folder).filter((name) => !isMarkName(name));

/** The marks of a job go soon after its end. */
export const unmarked = (folder: string): Promise<unknown> =>
  untilHolds(
    "the marks of jobs have gone",
    () => !readdirSync(folder).some((name) => name.startsWith(".radserve-job-")),
  );

export const nameOf = (i: number) => `${String(i).padStart(5, "0")}.dcm`;

/** What a server says where the machine stood still while it waited for its database's answer. */
const LATE = /\((?:Query read timeout|timeout e[^)]*)\)/;

/** Nothing comes of it that the same request again would double. */
const isRepeatable = (method: string, page: string): boolean =>
  method === "GET" || method === "DELETE" || /\/(?:pause|resume)$/.test(page);

type Send = (
  method: string,
  page: string,
  body?: unknown,
  token?: string,
) => Promise<{
  status: number;
  headers: Headers;
  body: Record<string, unknown> & { message?: string };
}>;

export interface Bulk {
  server: TestServer;
  place: Place;
  /** Sends a request and gives the answer's status and body. */
  once: Send;
  /**
   * The same again, as long as the database is being made or started, and what may be asked twice
   * where its answer came too late.
   */
  send: Send;
  /** Submits a job and gives its id; the request must be taken. */
  submit: (body: object, token?: string) => Promise<string>;
  job: (id: string, token?: string) => Promise<JobDetails>;
  /** The job once it fits. */
  until: (id: string, fits: (job: JobDetails) => boolean) => Promise<JobDetails>;
  /** The job once nothing of it waits or runs. */
  ended: (id: string) => Promise<JobDetails>;
  items: (id: string, query?: string) => Promise<Item[]>;
  /** What `reconcile` finds on all its pages. */
  differences: (id: string) => Promise<Reconciliation["differences"]>;
}

export function bulkOf(server: TestServer): Bulk {
  const once: Send = async (method, page, body, token = server.token) => {
    const response = await fetch(server.url + page, {
      method,
      headers: {
        Authorization: token,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      ...(body === undefined
        ? {}
        : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
    return {
      status: response.status,
      headers: response.headers,
      body: (await response.json()) as Record<string, unknown>,
    };
  };
  const send: Send = async (...question) => {
    const wait = new Wait("the database answers");
    for (;;) {
      const answer = await once(...question);
      const message = String(answer.body["message"]);
      const isLate = LATE.test(message) && isRepeatable(question[0], question[1]);
      if (!isLate && !/is being made or started/.test(message)) return answer;
      wait.check();
      await delay(wait.pauseMs);
    }
  };
  const job: Bulk["job"] = async (id, token) => {
    const { status, body } = await send("GET", `/bulk_inference/${id}`, undefined, token);
    if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`);
    return jobDetailsSchema.strict().parse(body);
  };
  const until: Bulk["until"] = async (id, fits) => {
    const wait = new Wait(`job ${id} is ${String(fits)}`);
    for (let seen = ""; ;) {
      let now: string;
      try {
        const found = await job(id);
        if (fits(found)) return found;
        now = JSON.stringify([found.state, found.counts, found.progress]);
      } catch (error) {
        // A server that is not there now may come back
        if (error instanceof ZodError) throw error;
        now = String(error);
      }
      // A job may go on for long
      if (now !== seen) wait.goesOn();
      seen = now;
      wait.check(`It is ${now}`);
      await delay(wait.pauseMs);
    }
  };
  return {
    server,
    place: server.place,
    once,
    send,
    job,
    until,
    ended: (id) => until(id, ({ finished_at }) => finished_at !== null),
    async submit(body, token) {
      const { status, body: answer } = await send("POST", "/bulk_inference", body, token);
      if (status !== 202) throw new Error(`${status}: ${JSON.stringify(answer)}`);
      return answer["job_id"] as string;
    },
    async items(id, query = "") {
      const found: Item[] = [];
      let cursor: string | null = "";
      while (cursor !== null) {
        const page: string = `?limit=500${cursor === "" ? "" : `&cursor=${cursor}`}${query}`;
        const { status, body } = await send("GET", `/bulk_inference/${id}/items${page}`);
        if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`);
        const list = itemListSchema.strict().parse(body);
        found.push(...list.items);
        cursor = list.next_cursor;
      }
      return found;
    },
    async differences(id) {
      const found: Reconciliation["differences"] = [];
      for (let cursor: string | null = ""; cursor !== null;) {
        const page = `/bulk_inference/${id}/reconcile${cursor === "" ? "" : `?cursor=${cursor}`}`;
        const { status, body } = await send("POST", page);
        if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`);
        const compared = reconciliationSchema.strict().parse(body);
        found.push(...compared.differences);
        cursor = compared.next_cursor;
      }
      return found;
    },
  };
}

/** A place for a node beside another: with its database, folders and keys. */
export function placeBeside(
  t: Test,
  { environment, input, output }: Place,
  extra: Record<string, string> = {},
): Place {
  return bulkPlace(t, {
    DATABASE_URL: environment["DATABASE_URL"]!,
    RADSERVE_INPUT_ROOTS: input,
    RADSERVE_OUTPUT_ROOTS: output,
    RADSERVE_KEYS_DIR: path.join(environment["RADSERVE_STATE_DIR"]!, "keys"),
    ...extra,
  });
}

/**
 * A node that works on the jobs which another takes, with the same database, folders and lengths of
 * time.
 */
export async function startWorker(
  t: Test,
  { environment, input, output }: Place,
  extra: Record<string, string> = {},
): Promise<TestServer> {
  const durations = Object.entries(environment).filter(([name]) =>
    /^(NODE_OPTIONS|TEST_DURATIONS)$/.test(name),
  );
  const worker = await startServer(
    bulkPlace(t, {
      ...Object.fromEntries(durations),
      ...extra,
      DATABASE_URL: environment["DATABASE_URL"]!,
      RADSERVE_ROLE: "worker",
      RADSERVE_INPUT_ROOTS: input,
      RADSERVE_OUTPUT_ROOTS: output,
      // Nodes with one share trust each other's results
      RADSERVE_KEYS_DIR:
        environment["RADSERVE_KEYS_DIR"] ?? path.join(environment["RADSERVE_STATE_DIR"]!, "keys"),
    }),
  );
  t.teardown(() => worker.stop());
  return worker;
}

/** A server that stops when the test ends. */
export async function startBulk(t: Test, place: Place): Promise<Bulk> {
  const server = await startServer(place);
  t.teardown(() => server.stop());
  return bulkOf(server);
}
