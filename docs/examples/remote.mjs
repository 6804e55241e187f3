/**
 * One image through Radserve without a shared folder, with Node.js alone:
 *
 *     RADSERVE_URL=http://HOST:8500 RADSERVE_TOKEN=... node remote.mjs IMAGE INPUT_FOLDER OUTPUT_FOLDER HERE
 *
 * Sends IMAGE into the server's INPUT_FOLDER, has it analysed, and fetches the results from
 * OUTPUT_FOLDER into HERE. The server has to allow it: RADSERVE_FILES_BY_HTTP=upload,download.
 */
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { argv, env, exit } from "node:process";
import { URLSearchParams } from "node:url";

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const files = (query) => `/files?${new URLSearchParams(query)}`;

/** An answer that is no error. Throws an Error with the server's own code and message. */
async function call(method, page, body, headers = {}) {
  const answer = await fetch((env.RADSERVE_URL ?? "http://127.0.0.1:8500") + page, {
    method,
    body,
    headers: { Authorization: env.RADSERVE_TOKEN ?? "", ...headers },
  });
  if (answer.ok) return answer;
  const { error, message, request_id } = await answer.json();
  throw new Error(`${error}: ${message} (${request_id})`);
}

const [image, inputFolder, outputFolder, here] = argv.slice(2);
try {
  const path = `${inputFolder}/${basename(image)}`;
  const bytes = readFileSync(image);
  // With its hash, so that what arrived is what was sent
  await call("PUT", files({ path, sha256: sha256(bytes) }), bytes);
  const request = JSON.stringify({ input_image_path: path, output_folder_path: outputFolder });
  const json = { "Content-Type": "application/json" };
  const answer = await (await call("POST", "/single_inference", request, json)).json();
  const outputs = answer.models.flatMap((model) => model.outputs);
  for (const output of [...outputs, { path: answer.receipt_path }]) {
    const result = Buffer.from(
      await (await call("GET", files({ path: output.path }))).arrayBuffer(),
    );
    if (output.sha256 !== undefined && output.sha256 !== sha256(result))
      throw new Error(`${output.path} changed on its way`);
    writeFileSync(join(here, basename(output.path)), result);
    console.log(basename(output.path));
  }
} catch (error) {
  console.error(error.message);
  exit(1);
}
