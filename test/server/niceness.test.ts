/**
 * A server that an ordinary user starts with a lower priority, as `nice` and the Nice= of systemd
 * do.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import path from "node:path";
import t from "tap";
import { bulkPlace, writeSlice } from "../support/bulk.js";
import { ADDON, needs, reachedByAll } from "../support/needs.js";
import { isRoot } from "../support/postgres.js";
import { root } from "../support/server.js";
import { LONGEST_WAIT_MS } from "../support/until.js";

const NOBODY = "65534";
const main = path.join(root, "dist/src/main.js");

const skip = needs(ADDON) || (isRoot && reachedByAll());

t.test("images run, although nobody may raise a priority", { skip }, async (t) => {
  const place = bulkPlace(t);
  t.teardown(() => place.remove());
  const input = path.join(place.input, "1.dcm");
  writeSlice(input);
  // Root may do anything: another user is needed to see it
  const as = isRoot ? ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"] : [];
  if (isRoot) execFileSync("chown", ["-R", `${NOBODY}:${NOBODY}`, place.directory]);
  const words = (...more: string[]) => [...as.slice(1), process.execPath, main, ...more];
  const options = { env: place.environment, cwd: place.directory };
  const server = spawn("nice", ["-n", "5", ...as.slice(0, 1), ...words("serve")], {
    ...options,
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(async () => {
    server.kill("SIGTERM");
    if (server.exitCode === null) await once(server, "exit");
  });
  let port = 0;
  for await (const text of createInterface(server.stdout)) {
    const line = JSON.parse(text) as { msg: string; port?: number };
    port = line.port ?? port;
    if (line.msg === "models loaded") break;
  }
  const [program = "", ...rest] = [
    ...as.slice(0, 1),
    ...words("token", "issue", "--subject", "tester"),
  ];
  const token = execFileSync(program, rest, { ...options, encoding: "utf8" }).trim();
  const answer = await fetch(`http://127.0.0.1:${port}/single_inference`, {
    method: "POST",
    headers: { Authorization: token, "Content-Type": "application/json" },
    body: JSON.stringify({
      input_image_path: input,
      output_folder_path: place.output,
      timeout_ms: LONGEST_WAIT_MS,
    }),
  });
  t.match(await answer.json(), { status: "completed" });
});
