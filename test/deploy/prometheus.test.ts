/**
 * The alert rules: Prometheus loads them, they fire when they should, and every name in them is one
 * that a server gives.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { gatewayPlace } from "../support/gateway.js";
import { root, startServer } from "../support/server.js";

const folder = path.join(root, "deploy/prometheus");
const promtool = (...words: string[]) =>
  spawnSync("promtool", words, { cwd: folder, encoding: "utf8" });

t.setTimeout(300_000);

t.test(
  "Prometheus loads the rules, and each fires when it should",
  { skip: commandsAre("promtool") },
  (t) => {
    const checked = promtool("check", "rules", "radserve.rules.yml");
    t.equal(checked.status, 0, checked.stdout + checked.stderr);
    const tested = promtool(
      "test",
      "rules",
      path.join(root, "test/deploy/radserve.rules.test.yml"),
    );
    t.equal(tested.status, 0, tested.stdout + tested.stderr);
    t.end();
  },
);

t.test(
  "every metric of the rules is one of a server, and every rule has a test",
  { skip: needs(ADDON) },
  async (t) => {
    const destinations = { pacs: { type: "stow", url: "http://127.0.0.1:9" } };
    const server = await startServer(gatewayPlace(t, { destinations }).place);
    t.teardown(() => server.stop());
    const figures = await (await fetch(`${server.url}/metrics`)).text();
    const rules = readFileSync(path.join(folder, "radserve.rules.yml"), "utf8");
    const tests = readFileSync(path.join(root, "test/deploy/radserve.rules.test.yml"), "utf8");
    const expressions = [...rules.matchAll(/^ +expr: (.*)$/gm)].map((match) => match[1]!);
    const names = new Set(expressions.flatMap((text) => text.match(/radserve_\w+/g) ?? []));
    t.ok(names.size > 4);
    for (const name of names) t.match(figures, `# TYPE ${name} `, name);
    for (const [, alert = ""] of rules.matchAll(/alert: (\w+)/g))
      t.match(tests, new RegExp(`alertname: ${alert}\\n +exp_alerts:\\n`), alert);
  },
);
