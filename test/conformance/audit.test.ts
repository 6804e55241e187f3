/**
 * AuditEvents of every kind of line, read by another program's model of FHIR R4 (fhir.resources).
 */
import { spawnSync } from "node:child_process";
import path from "node:path";
import t from "tap";
import { auditEvent } from "../../src/features/fhir-audit/fhir.js";
import { servingFeatures } from "../../src/features.js";
import { interactionsOf, routesOf } from "../../src/server/routes.js";
import { SAMPLES } from "../support/audit-lines.js";
import { PYTHON, pythonHas } from "../support/needs.js";
import { root } from "../support/server.js";

const interactionOf = interactionsOf(routesOf(await servingFeatures()));

t.test("AuditEvents are FHIR", { skip: pythonHas("fhir.resources") }, (t) => {
  const events = SAMPLES.map(({ facts }, i) =>
    auditEvent(
      { ...facts, seq: i + 1, host: "box", time: "2026-01-01T10:00:00.123Z" },
      interactionOf,
    ),
  ).filter((event) => event !== undefined);
  const script = path.join(root, "test/conformance/audit_events.py");
  const input = events.map((event) => `${JSON.stringify(event)}\n`).join("");
  const { stdout, stderr } = spawnSync(PYTHON, [script], { input, encoding: "utf8" });
  t.equal(stdout.trim(), String(events.length), stderr);
  t.end();
});
