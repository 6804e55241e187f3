/**
 * `npm run trial -- schemathesis [--examples N] [--seed N]`: the published contract against a
 * running server, by Schemathesis with all its checks and a valid token. The interpreter is that of
 * RADSERVE_PYTHON.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { z } from "zod";
import { acceptedSchema } from "../../src/jobs/schema.js";
import { PYTHON, pythonHas } from "../support/needs.js";
import { writeImages } from "../crash/lib/images.js";
import { makePlace, root, startServer, type TestServer } from "../support/server.js";

const { values } = parseArgs({
  options: {
    examples: { type: "string", default: "100" },
    seed: { type: "string", default: "1" },
  },
});

const SETTINGS = {
  RADSERVE_MODELS_DIR: path.join(root, "models"),
  // The schema allows bodies of 10,000 items with the longest paths. One item more is to be said
  // so, and not a size.
  RADSERVE_BODY_LIMIT: "256MiB",
};

/**
 * What Schemathesis is told beside the contract: a job that there is, so that its pages do more
 * than say 404, and another one that may be forgotten; that DELETE cancels a job, which can be seen
 * afterwards (in a sequence of requests it takes for gone what was deleted), and that a job is
 * forgotten once; that paths in an address may be too long for one (431); and that 504 is the
 * answer to a `timeout_ms` of 1, and no fault of the server.
 */
async function configuration(server: TestServer): Promise<string> {
  return [
    `parameters = { "path.id" = "${await submitJob(server, "kept")}" }`,
    "[[operations]]",
    'include-name = "POST /bulk_inference/{id}/purge"',
    `parameters = { "path.id" = "${await submitJob(server, "forgotten")}" }`,
    "phases.stateful.enabled = false",
    "[[operations]]",
    'include-name = "DELETE /bulk_inference/{id}"',
    "phases.stateful.enabled = false",
    "[[operations]]",
    'include-path-regex = "^/(files|paths|results)"',
    `checks.negative_data_rejection.expected-statuses = [${REFUSALS}, 431]`,
    'checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 429, 431, "5xx"]',
    "[[operations]]",
    'include-name = "POST /single_inference"',
    'checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 504]',
    "",
  ].join("\n");
}

/** What Schemathesis takes for the refusal of a bad request by itself. */
const REFUSALS = '400, 401, 403, 404, 405, 406, 409, 415, 422, 428, 429, "5xx"';

async function submitJob(server: TestServer, folder: string): Promise<string> {
  const { input, output } = server.place;
  const answer = await server.post("/bulk_inference", {
    input_folder_path: input,
    output_folder_path: path.join(output, folder),
  });
  return acceptedSchema.parse(await answer.json()).job_id;
}

async function attack(server: TestServer): Promise<number> {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-schemathesis-"));
  try {
    const settings = path.join(folder, "schemathesis.toml");
    // Images that every request can be answered with: it finds their paths in answers, and sends
    // them
    rmSync(path.join(server.place.input, "image.png"));
    writeImages(server.place.input, 3);
    writeFileSync(settings, await configuration(server));
    const contract = path.join(root, "openapi.yaml");
    const child = spawn(
      PYTHON,
      [
        "-m",
        "schemathesis.cli",
        "--config-file",
        settings,
        "run",
        contract,
        "--url",
        server.url,
        "--header",
        `Authorization: ${server.token}`,
        "--checks",
        "all",
        "--continue-on-failure",
        "--no-color",
        // It cannot write multipart/related
        "--exclude-path",
        "/dicomweb/studies",
        "--seed",
        values.seed,
        "--max-examples",
        values.examples,
        "--generation-deterministic",
      ],
      { cwd: folder, stdio: "inherit" },
    );
    const [status] = z
      .tuple([z.number().nullable()])
      .rest(z.unknown())
      .parse(await once(child, "exit"));
    return status ?? 1;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const why = pythonHas("schemathesis");
if (why !== false) console.log(`skip   ${why}`);
else {
  const server = await startServer(makePlace(SETTINGS));
  try {
    process.exitCode = await attack(server);
    const { status } = spawnSync("curl", ["-sf", `${server.url}/health/live`]);
    if (status !== 0) throw new Error("The server does not answer any more.");
  } finally {
    await server.stop();
  }
}
