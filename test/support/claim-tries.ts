/** Each endpoint that needs a token, called with any: what a test of claims compares. */
import { mkdirSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { stowPeer } from "../../src/features/gateway/settings.js";
import { bulkOf, bulkPlace, writeSlice } from "./bulk.js";
import { deliveringPlace, listed } from "./deliveries.js";
import { object, STUDY } from "./gateway.js";
import { issueToken, PNG, startServer } from "./server.js";
import { bodyOf, STOW_TYPE } from "./stow.js";
import { until } from "./until.js";
import { webPacs } from "./web-pacs.js";

/** Whose job, deliveries and images the calls are about. */
export const SUBJECT = "tester";
/** What comes of a call with a token. */
export type Try = (token: string) => Promise<string>;

/**
 * A server with a job, a delivery that was refused and a received study, all of one subject.
 * @returns a token that may do everything, and by the id of an endpoint a call of it, which leaves
 * for the next what it needs itself
 */
export async function claimTries(t: Test) {
  const pacs = await webPacs(t);
  pacs.behave("refuse");
  const results = (place: { output: string }) => path.join(place.output, "received");
  const base = bulkPlace(t, { RADSERVE_FILES_BY_HTTP: "upload,download,view" });
  const rules = [
    {
      name: "mine",
      from: [stowPeer(SUBJECT)],
      quiet: "2h",
      output_folder: results(base),
      deliver: ["pacs"],
    },
  ];
  const place = deliveringPlace({ pacs }, { spool: true, rules }, base);
  for (const folder of ["other", "out"]) mkdirSync(path.join(place.input, folder));
  for (const folder of ["other", "jobs"]) mkdirSync(path.join(place.output, folder));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const { send, submit, ended, items } = bulkOf(server);
  const [at, out] = [place.input, place.output].map(
    (root) =>
      (...names: string[]) =>
        path.join(root, ...names),
  ) as [(...names: string[]) => string, (...names: string[]) => string];

  const full = await issueToken(place, "--subject", SUBJECT, "--admin");
  server.token = full;

  /** A job whose results wait for the PACS, which refuses them. */
  writeSlice(at("jobs", "1.dcm"));
  const jobAt = async (name: string) => {
    const id = await submit(
      { input_folder_path: at("jobs"), output_folder_path: out("jobs", name) },
      full,
    );
    await ended(id);
    return id;
  };
  const job = await jobAt("a");
  const [item] = await items(job);
  const deliveries = async () => listed({ url: server.url, token: full });
  /** The id of what the PACS has refused of a result. */
  const setAside = async (receipt: string | undefined) => {
    const { id } = await until("the PACS has refused", async () =>
      (await deliveries()).find(
        ({ receipt_path: at, destinations }) =>
          at === receipt && destinations["pacs"]?.every(({ state }) => state === "refused"),
      ),
    );
    return id;
  };
  const delivery = await setAside(item?.receipt_path);

  const asked = (page: string, query: Record<string, string>) =>
    `${page}?${new URLSearchParams(query).toString()}`;
  const call =
    (method: string, page: string, body?: object, show: (body: never) => unknown = () => ""): Try =>
    async (token) => {
      const answer = await send(method, page, body, token);
      const told = answer.status < 400 ? JSON.stringify(show(answer.body as never)) : "";
      return `${answer.status} ${told}`;
    };
  const bytes =
    (method: string, page: string, body?: Buffer, type = "application/octet-stream"): Try =>
    async (token) => {
      const headers = { Authorization: token, "Content-Type": type };
      const answer = await fetch(server.url + page, {
        method,
        headers,
        ...(body === undefined ? {} : { body }),
      });
      await answer.arrayBuffer();
      // A second upload of the same bytes is 200
      return `${Math.floor(answer.status / 100)}xx ${answer.ok ? "" : answer.status}`;
    };
  const shown = { path: item?.receipt_path ?? "", input_path: at("jobs", "1.dcm") };
  const ofJob = (page: string): Try => call("POST", `/bulk_inference/${job}/${page}`);
  const both =
    (first: Try, second: Try): Try =>
    async (token) =>
      `${await first(token)} ${await second(token)}`;
  const stowed = bodyOf([object(1).file]);
  const other = bodyOf([object(1, { StudyInstanceUID: "1.2.4" }).file]);
  const single = { input_image_path: at("image.dcm"), output_folder_path: out("single") };
  const bulkBody = { input_folder_path: at("jobs"), output_folder_path: out("jobs", "a") };

  await call("POST", "/single_inference", { ...single, input_image_path: at("nothing.dcm") })(full);

  let drops = 0;
  const tries: Record<string, Try> = {
    singleInference: call("POST", "/single_inference", {
      ...single,
      outputs: ["sr"],
      destinations: ["pacs"],
    }),
    listFailedRequests: call(
      "GET",
      "/failed_requests",
      undefined,
      (body: { failed: { input_image_path: string }[] }) =>
        body.failed.some(({ input_image_path: of }) => of === at("nothing.dcm")),
    ),
    submitJob: call("POST", "/bulk_inference", { ...bulkBody, destinations: ["pacs"] }),
    listJobs: call("GET", "/bulk_inference", undefined, (body: { jobs: { job_id: string }[] }) =>
      body.jobs.some(({ job_id }) => job_id === job),
    ),
    getJob: call("GET", `/bulk_inference/${job}`),
    listItems: call("GET", `/bulk_inference/${job}/items`),
    cancelJob: call("DELETE", `/bulk_inference/${job}`),
    retryJob: ofJob("retry"),
    pauseJob: ofJob("pause"),
    resumeJob: ofJob("resume"),
    reconcileJob: ofJob("reconcile?retry=true"),
    purgeJob: async (token) => call("POST", `/bulk_inference/${await jobAt("b")}/purge`)(token),
    uploadFile: bytes("PUT", asked("/files", { path: at("out", "up.png") }), PNG),
    downloadFile: bytes("GET", asked("/files", { path: shown.path })),
    listModels: call("GET", "/models"),
    getOverview: call("GET", "/overview", undefined, ({ disks }: { disks: { folder: string }[] }) =>
      disks.map(({ folder }) => folder),
    ),
    storeInstances: bytes("POST", "/dicomweb/studies", stowed, STOW_TYPE),
    completeStudy: call(
      "POST",
      `/gateway/received/${STUDY}/complete`,
      undefined,
      // Others may have sent it too
      (body: { received: { rule: string | null }[] }) =>
        body.received.some(({ rule }) => rule === "mine"),
    ),
    listReceived: call(
      "GET",
      "/gateway/received?limit=1000",
      undefined,
      ({ received }: { received: unknown[] }) => received.length > 0,
    ),
    listSenders: call(
      "GET",
      "/gateway/senders",
      undefined,
      ({ senders }: { senders: unknown[] }) => senders.length > 0,
    ),
    showReceived: call("GET", `/gateway/received/${STUDY}`),
    replaceReceived: call("POST", `/gateway/received/${STUDY}/replace`),
    removeReceived: async (token) => {
      // What was removed is not there for the next token
      await bytes("POST", "/dicomweb/studies", other, STOW_TYPE)(full);
      return call("POST", "/gateway/received/1.2.4/remove")(token);
    },
    listDeliveries: call(
      "GET",
      "/deliveries",
      undefined,
      (body: { deliveries: { id: string }[] }) => body.deliveries.some(({ id }) => id === delivery),
    ),
    retryDeliveries: async (token) => {
      const id = await setAside(item?.receipt_path);
      return call(
        "POST",
        `/deliveries/retry?id=${id}&destination=pacs`,
        undefined,
        ({ retried }: { retried: number }) => retried > 0,
      )(token);
    },
    dropDeliveries: async (token) => {
      // What is given up is not there for the next token
      const [dropped] = await items(await jobAt(`drop-${(drops += 1)}`));
      const id = await setAside(dropped?.receipt_path);
      return call(
        "POST",
        `/deliveries/drop?id=${id}&destination=pacs`,
        undefined,
        (body: { dropped: number }) => body.dropped > 0,
      )(token);
    },
    getResult: call(
      "GET",
      asked("/results", { path: shown.path }),
      undefined,
      ({ deliveries }: { deliveries?: object }) => deliveries !== undefined,
    ),
    listResults: call("GET", "/results/list", undefined, (body: { results: unknown[] }) =>
      body.results.length > 0 ? "some" : "none",
    ),
    searchResults: call(
      "POST",
      "/results/search",
      { text: "jobs" },
      (body: { results: unknown[] }) => body.results.length > 0,
    ),
    findResult: call("POST", "/results/find", { receipt_path: shown.path }),
    getResultPicture: bytes("GET", asked("/results/picture", shown)),
    getResultFrame: call("GET", asked("/results/frame", shown)),
    getResultMarks: call(
      "GET",
      asked("/results/marks", { ...shown, model: "ct-tissue", across: "row" }),
    ),
    getResultNifti: bytes("GET", asked("/results/nifti", shown)),
    verifyResult: call(
      "GET",
      asked("/results/verification", shown),
      undefined,
      ({ equal }: { equal: boolean }) => equal,
    ),
    listPaths: both(
      call("GET", "/paths?side=input", undefined, (body: object) => body),
      call("GET", "/paths?side=output", undefined, (body: object) => body),
    ),
    completePath: both(
      call("POST", "/paths", { side: "input" }, (body: object) => body),
      call("POST", "/paths", { side: "output" }, (body: object) => body),
    ),
    getDrift: call(
      "GET",
      "/drift",
      undefined,
      ({ lines }: { lines: unknown[] }) => lines.length > 0,
    ),
  };
  // The objects of the study that is said to be complete
  await tries["storeInstances"]!(full);
  return { place, full, tries, input: at, output: out };
}
