/** Clients that others generate from openapi.yaml, compiled and run against a real server. */
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { servingFeatures } from "../../src/features.js";
import { contractOf, routesOf } from "../../src/server/routes.js";
import { bulkPlace, writeSlice } from "../support/bulk.js";
import { ADDON, needs, PYTHON, pythonHas } from "../support/needs.js";
import { root, startServer, type TestServer } from "../support/server.js";
import { LONGEST_WAIT_MS, until } from "../support/until.js";

const run = (program: string, words: string[], options: { env?: NodeJS.ProcessEnv } = {}) =>
  promisify(execFile)(program, words, { ...options, timeout: LONGEST_WAIT_MS });
const CONTRACT = path.join(root, "openapi.yaml");
const features = await servingFeatures();
const PUBLISHED = contractOf(features, routesOf(features));

t.setTimeout(240_000);

/** A server with the model ct-tissue, and one slice for it. */
async function served(
  t: Parameters<typeof bulkPlace>[0],
): Promise<{ server: TestServer; given: string[] }> {
  const place = bulkPlace(t);
  writeSlice(path.join(place.input, "ct", "slice.dcm"));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  await server.logged(({ msg }) => msg === "models loaded");
  // The programs ask once, and what other nodes see may be known a moment after a job has ended
  await until(
    "the server is ready",
    async () => (await fetch(`${server.url}/health/ready`)).status === 200,
  );
  return { server, given: [server.url, server.token, place.input, place.output] };
}

/**
 * What a programmer writes over the generated types; it does not compile where the contract
 * promises too little.
 */
const PROGRAM = `import createClient from "openapi-fetch";
import type { components, paths } from "./contract.js";

const [url = "", token = "", input = "", output = ""] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: token } });
const fail = (error: components["schemas"]["Error"]): never => {
  throw new Error(\`\${error.error}: \${error.message} (\${error.request_id})\`);
};

const single = await client.POST("/single_inference", {
  body: { input_image_path: \`\${input}/ct/slice.dcm\`, output_folder_path: \`\${output}/single\`, priority: "stat" },
});
const answer: components["schemas"]["Answer"] = single.data ?? fail(single.error);
const models = answer.models.map(({ name, status, outputs }) => ({ name, status, outputs: outputs.length }));

const submitted = await client.POST("/bulk_inference", {
  body: { input_folder_path: \`\${input}/ct\`, output_folder_path: \`\${output}/bulk\`, idempotency_key: "one" },
});
const { job_id: id } = submitted.data ?? fail(submitted.error);
const again = await client.POST("/bulk_inference", {
  body: { input_folder_path: \`\${input}/ct\`, output_folder_path: \`\${output}/bulk\`, idempotency_key: "one" },
});
for (;;) {
  const job = await client.GET("/bulk_inference/{id}", { params: { path: { id } } });
  const { state } = job.data ?? fail(job.error);
  if (state === "completed") break;
  await new Promise((resolve) => setTimeout(resolve, 100));
}
const items = await client.GET("/bulk_inference/{id}/items", { params: { path: { id }, query: { limit: 10 } } });
const missing = await client.POST("/single_inference", {
  body: { input_image_path: \`\${input}/none.dcm\`, output_folder_path: output },
});
const code: components["schemas"]["ErrorCode"] | undefined = missing.error?.error;
const ready = await client.GET("/health/ready");
console.log(
  JSON.stringify({
    models,
    again: [again.response.status, again.data?.job_id === id],
    items: items.data?.items.map(({ state, index }) => [index, state]),
    code,
    ready: ready.data?.status,
  }),
);
`;

const EXPECTED = {
  models: [{ name: "ct-tissue", status: "succeeded" }],
  again: [200, true],
  items: [[0, "succeeded"]],
  code: "input_not_found",
  ready: "ready",
};

t.test("openapi-typescript with openapi-fetch", { skip: needs(ADDON) }, async (t) => {
  // Below the repository, where the packages are found.
  const folder = t.testdir({
    "package.json": '{ "type": "module" }',
    "client.ts": PROGRAM,
    "tsconfig.json": JSON.stringify({
      compilerOptions: {
        target: "ES2022",
        module: "NodeNext",
        moduleResolution: "NodeNext",
        strict: true,
        noUncheckedIndexedAccess: true,
        exactOptionalPropertyTypes: true,
        skipLibCheck: true,
        types: ["node"],
      },
    }),
  });
  const bin = (name: string) => path.join(root, "node_modules/.bin", name);
  await run(bin("openapi-typescript"), [CONTRACT, "-o", path.join(folder, "contract.ts")]);
  const compiled = await run(bin("tsgo"), ["-p", folder, "--checkers", "1"]).catch(
    (error: unknown) => error as { stdout: string },
  );
  t.equal(compiled.stdout, "");
  const { given } = await served(t);
  const { stdout } = await run(process.execPath, [path.join(folder, "client.js"), ...given]);
  t.match(JSON.parse(stdout), EXPECTED);
});

const PYTHON_PROGRAM = `
import json, sys, time
from radserve_client import AuthenticatedClient
from radserve_client.api.inference import single_inference
from radserve_client.api.jobs import get_job, list_items, submit_job
from radserve_client.api.operations import get_ready
from radserve_client.models import Answer, BulkFolderRequest, Error, SingleRequest, SingleRequestPriority


url, token, given, output = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token, prefix="")

def single(name):
    return single_inference.sync(client=client, body=SingleRequest(
        input_image_path=f"{given}/{name}", output_folder_path=f"{output}/python", priority=SingleRequestPriority.STAT))

answer = single("ct/slice.dcm")
assert isinstance(answer, Answer), answer
missing = single("none.dcm")
assert isinstance(missing, Error)
body = BulkFolderRequest(
    input_folder_path=f"{given}/ct", output_folder_path=f"{output}/python-bulk", idempotency_key="two")
job = submit_job.sync(client=client, body=body)
again = submit_job.sync_detailed(client=client, body=body)
while get_job.sync(job.job_id, client=client).state.value != "completed":
    time.sleep(0.1)
items = list_items.sync(job.job_id, client=client, limit=10)
print(json.dumps({
    "models": [{"name": m.name, "status": m.status.value, "outputs": len(m.outputs)} for m in answer.models],
    "again": [again.status_code.value, again.parsed.job_id == job.job_id],
    "items": [[item.index, item.state.value] for item in items.items],
    "code": missing.error.value,
    "ready": get_ready.sync(client=client).status,
}))
`;

t.test(
  "openapi-python-client",
  { skip: needs(ADDON) || pythonHas("openapi_python_client") },
  async (t) => {
    const folder = t.testdir({
      "config.yaml":
        "project_name_override: radserve-client\npackage_name_override: radserve_client\npost_hooks: []\n",
      "client.py": PYTHON_PROGRAM,
    });
    const target = path.join(folder, "radserve_client");
    // It has no multipart/related: objects are sent by a client of DICOM
    const document = JSON.parse(PUBLISHED.plain.toString()) as { paths: Record<string, unknown> };
    delete document.paths["/dicomweb/studies"];
    writeFileSync(path.join(folder, "contract.json"), JSON.stringify(document));
    const made = await run(PYTHON, [
      "-c",
      "from openapi_python_client.cli import app; app()",
      "generate",
      "--path",
      path.join(folder, "contract.json"),
      "--config",
      path.join(folder, "config.yaml"),
      "--output-path",
      target,
      "--overwrite",
      "--meta",
      "none",
      "--fail-on-warning",
    ]).catch((error: unknown) => error as { stdout: string; stderr: string });
    t.notMatch(made.stdout + made.stderr, /WARNING|ERROR|Error/);
    const { given } = await served(t);
    const { stdout } = await run(PYTHON, [path.join(folder, "client.py"), ...given], {
      env: { ...process.env, PYTHONPATH: folder },
    });
    t.match(JSON.parse(stdout), EXPECTED);
  },
);
