/**
 * `npm run test:schemathesis -- [--examples N] [--seed N]`: the published contract against a running
 * server, by Schemathesis with all its checks and a valid token. The interpreter is that of RADSERVE_PYTHON.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { z } from "zod";
import { acceptedSchema } from "../../src/bulk/schema.js";
import { PYTHON, pythonHas } from "../support/needs.js";
import { writeImages } from "../crash/lib/images.js";
import { makePlace, root, startServer, type TestServer } from "../support/server.js";

const { values } = parseArgs({
  options: {
    examples: { type: "string", default: "100" },
    seed: { type: "string", default: "1" },
  },
});

/** Parts of at most 63 characters: a file system allows 255 bytes, and a character of UTF-8 may take four. */
const ABSOLUTE = "^(/[^/\\u0000]{1,63})+$";

/**
 * What Schemathesis is told beside the contract: a job that there is, so that its pages do more than say 404, and that
 * 413 refuses a body as well as 400 does.
 */
function configuration(job: string): string {
  return [
    `parameters = { "path.id" = "${job}" }`,
    "[checks.negative_data_rejection]",
    'expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]',
    "",
  ].join("\n");
}

async function submitJob(server: TestServer): Promise<string> {
  writeImages(server.place.input, 3);
  const { input, output } = server.place;
  const answer = await server.post("/bulk_inference", {
    input_folder_path: input,
    output_folder_path: output,
  });
  return acceptedSchema.parse(await answer.json()).job_id;
}

/** The contract as far as settings of this server bound it: without `path_map`, only absolute paths are valid. */
async function contractOf(server: TestServer): Promise<string> {
  const contract: unknown = await (await fetch(`${server.url}/openapi.json`)).json();
  return JSON.stringify(contract, (key, value: unknown) =>
    /^(input_image|input_folder|output_folder)_path$/.test(key) && typeof value === "object"
      ? { ...value, pattern: ABSOLUTE }
      : value,
  );
}

async function attack(server: TestServer): Promise<number> {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-schemathesis-"));
  try {
    const settings = path.join(folder, "schemathesis.toml");
    writeFileSync(settings, configuration(await submitJob(server)));
    const contract = path.join(folder, "openapi.json");
    writeFileSync(contract, await contractOf(server));
    const child = spawn(
      PYTHON,
      [
        ...["-m", "schemathesis.cli", "--config-file", settings, "run", contract],
        ...["--url", server.url, "--header", `Authorization: ${server.token}`],
        ...["--checks", "all", "--continue-on-failure", "--no-color"],
        ...["--seed", values.seed, "--max-examples", values.examples, "--generation-deterministic"],
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
  const server = await startServer(makePlace({ RADSERVE_MODELS_DIR: path.join(root, "models") }));
  try {
    process.exitCode = await attack(server);
    const { status } = spawnSync("curl", ["-sf", `${server.url}/health/live`]);
    if (status !== 0) throw new Error("The server does not answer any more.");
  } finally {
    await server.stop();
  }
}
