/**
 * The dashboard for Grafana: each of its queries is asked of Debian's Prometheus, which scrapes a
 * real server at work.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { z } from "zod";
import { bulkOf, bulkPlace, writeSlice } from "../support/bulk.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { freePort, root, startServer, type TestServer } from "../support/server.js";

const target = z.object({ expr: z.string().min(1), legendFormat: z.string() });
const panel = z.object({
  id: z.int(),
  title: z.string().min(1),
  type: z.enum(["row", "stat", "timeseries"]),
  gridPos: z.object({ h: z.int(), w: z.int(), x: z.int(), y: z.int() }),
  targets: z.array(target).default([]),
});
const dashboard = z
  .object({ uid: z.literal("radserve"), panels: z.array(panel) })
  .parse(JSON.parse(readFileSync(path.join(root, "deploy/grafana/radserve.json"), "utf8")));

/**
 * What there is nothing of here, or should be nothing of: the names have to be right all the same.
 */
const NOTHING_HERE = /radserve_gpu_|radserve_certificate_|radserve_connections_refused_/;

const answered = z.object({
  status: z.literal("success"),
  data: z.object({ result: z.array(z.object({ metric: z.record(z.string(), z.string()) })) }),
});

t.setTimeout(300_000);

/** Prometheus with one server, until the test ends. @returns its address */
async function scraping(t: Test, server: TestServer): Promise<string> {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-prometheus-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const config = `scrape_configs: [{ job_name: radserve, scrape_interval: 1s, static_configs: [{ targets: ["127.0.0.1:${server.port}"] }] }]\n`;
  writeFileSync(path.join(folder, "prometheus.yml"), config);
  const port = await freePort();
  const child = spawn(
    "prometheus",
    [
      `--config.file=${folder}/prometheus.yml`,
      `--storage.tsdb.path=${folder}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: "ignore" },
  );
  t.teardown(async () => {
    child.kill();
    if (child.exitCode === null) await once(child, "exit");
  });
  return `http://127.0.0.1:${port}`;
}

async function ask(prometheus: string, query: string): Promise<Record<string, string>[] | string> {
  const response = await fetch(
    `${prometheus}/api/v1/query?${new URLSearchParams({ query }).toString()}`,
  ).catch(() => undefined);
  // While it starts it answers with a text
  if (response === undefined || response.status === 503) return "Prometheus does not answer";
  const body: unknown = await response.json();
  const parsed = answered.safeParse(body);
  return parsed.success
    ? parsed.data.data.result.map(({ metric }) => metric)
    : JSON.stringify(body);
}

/** A query as Grafana sends it. */
const filled = (expr: string) =>
  expr.replaceAll("$instance", ".*").replaceAll("$__rate_interval", "30s");

t.test("panels lie side by side, and have names of their own", (t) => {
  const { panels } = dashboard;
  t.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  for (const { title, gridPos } of panels) t.ok(gridPos.x + gridPos.w <= 24, title);
  t.ok(panels.flatMap(({ targets }) => targets).length > 20);
  t.end();
});

t.test(
  "each query has an answer while a server works",
  { skip: commandsAre("prometheus") || needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t);
    const server = await startServer(place);
    t.teardown(() => server.stop());
    const prometheus = await scraping(t, server);
    const bulk = bulkOf(server);
    mkdirSync(path.join(place.input, "job"));
    for (let z = 0; z < 40; z++) writeSlice(path.join(place.input, "job", `${z}.dcm`), z);
    const body = {
      input_image_path: path.join(place.input, "job/1.dcm"),
      output_folder_path: place.output,
    };
    const asked = dashboard.panels.flatMap(({ title, targets }) =>
      targets.map(({ expr, legendFormat }) => ({ title, expr, legendFormat })),
    );
    let open = asked.filter(({ expr }) => !NOTHING_HERE.test(expr));
    const end = Date.now() + 180_000;
    // Rates need two scrapes of each series, and something that goes on meanwhile
    for (let round = 0; open.length > 0 && Date.now() < end; round++) {
      await server.post("/single_inference", {
        ...body,
        output_folder_path: path.join(place.output, String(round)),
      });
      await server.post("/single_inference", { ...body, input_image_path: "/etc/passwd" });
      if (round % 5 === 0)
        await bulk.submit({
          input_folder_path: path.join(place.input, "job"),
          output_folder_path: path.join(place.output, `job-${round}`),
        });
      await delay(1_000);
      const left = [];
      for (const one of open) {
        const found = await ask(prometheus, filled(one.expr));
        if (typeof found === "string" || found.length === 0) left.push({ ...one, found });
        else
          for (const [, label = ""] of one.legendFormat.matchAll(/\{\{(\w+)\}\}/g))
            t.ok(
              found.every((metric) => label in metric),
              `${one.title}: ${label}`,
            );
      }
      open = left;
    }
    t.same(open, [], "every query has an answer");
    for (const { expr, title } of asked.filter((one) => NOTHING_HERE.test(one.expr)))
      t.type(await ask(prometheus, filled(expr)), Array, title);
    const figures = await (await fetch(`${server.url}/metrics`)).text();
    const names = new Set(asked.flatMap(({ expr }) => expr.match(/radserve_\w+/g) ?? []));
    for (const name of names)
      t.match(figures, `# TYPE ${name.replace(/_(bucket|sum|count)$/, "")} `, name);
  },
);
