/**
 * The nginx configuration of docs/operations.md, as it stands there: a path below a host, and large
 * bodies.
 */
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { blocksOf } from "../support/pages.js";
import { databaseUrl } from "../support/postgres.js";
import { until } from "../support/until.js";
import { freePort, makePlace, PNG, radserve, startServer } from "../support/server.js";

const page = "docs/operations.md";
const format = blocksOf(page).find(({ lines }) => lines[0]?.startsWith("log_format "));
const location = blocksOf(page).find(({ lines }) => lines[0]?.startsWith("location /radserve/"));

t.setTimeout(300_000);

t.test("below a path of nginx", { skip: needs(ADDON) || commandsAre("nginx") }, async (t) => {
  const server = await startServer(
    makePlace({
      RADSERVE_FILES_BY_HTTP: "upload,download",
      RADSERVE_MINIMUM_FREE_DISK: "0",
      RADSERVE_TRUSTED_PROXIES: "127.0.0.1",
      DATABASE_URL: databaseUrl(t),
    }),
  );
  t.teardown(() => server.stop());
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-nginx-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const port = await freePort();
  const file = path.join(folder, "nginx.conf");
  const written =
    location?.lines
      .join("\n")
      .replace("127.0.0.1:8500", `127.0.0.1:${server.port}`)
      .replace("/var/log/nginx", folder) ?? "";
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  writeFileSync(
    file,
    `pid ${folder}/pid; error_log ${folder}/error.log; events {}
http { ${format?.lines.join("\n") ?? ""} access_log off; ${temporary.join(" ")} server { listen 127.0.0.1:${port}; ${written} } }`,
  );
  const nginx = (...words: string[]) =>
    spawnSync("nginx", ["-p", folder, "-c", file, ...words], { encoding: "utf8" });
  // It goes into the background when it listens
  const begun = nginx();
  t.equal(begun.status, 0, begun.stderr);
  t.teardown(() => nginx("-s", "stop"));
  const url = `http://127.0.0.1:${port}/radserve`;
  const headers = { Authorization: server.token };

  await fetch(`${url}/results/list?patient=SECRET-4711&text=Doe`, { headers });
  const logged = () => readFileSync(path.join(folder, "radserve.log"), "utf8");
  await until("nginx logs a line", () => logged().includes("/results/list"));
  t.notMatch(logged(), /SECRET|Doe|\?/, "its log has no query");

  const shown = await fetch(url);
  t.equal(shown.url, `${url}/`, "a slash is put behind the path");
  const parts = [...(await shown.text()).matchAll(/(?:href|src)="([^"]+)"/g)].map(
    ([, part = ""]) => part,
  );
  t.ok(parts.length >= 3);
  for (const part of parts) t.equal((await fetch(new URL(part, shown.url))).status, 200, part);

  await until("it is ready", async () => (await fetch(`${url}/health/ready`)).status === 200);
  const status = await radserve(
    { ...server.place, environment: { ...server.place.environment, RADSERVE_URL: url } },
    "status",
  );
  t.match(status, { status: 0, stdout: `${url}: ready` });

  const job = await fetch(`${url}/bulk_inference`, {
    method: "POST",
    body: JSON.stringify({
      input_folder_path: server.place.input,
      output_folder_path: server.place.output,
    }),
    headers: { ...headers, "Content-Type": "application/json" },
  });
  const { status_url: at } = (await job.json()) as { status_url: string };
  t.equal(new URL(job.headers.get("Location") ?? "", url).href, url + at);
  t.equal((await fetch(url + at, { headers })).status, 200, "a job is found below the path");

  const bytes = Buffer.concat([PNG.subarray(0, 8), randomBytes(8 * 2 ** 20)]);
  const files = (at: string) => `${url}/files?${new URLSearchParams({ path: at }).toString()}`;
  const sent = await fetch(files(path.join(server.place.input, "large.png")), {
    method: "PUT",
    body: bytes,
    headers,
  });
  t.equal(sent.status, 201, await sent.text());
  const result = path.join(server.place.output, "large.json");
  writeFileSync(result, bytes);
  const given = await fetch(files(result), { headers });
  t.ok(Buffer.from(await given.arrayBuffer()).equals(bytes), "a download is whole");
});
