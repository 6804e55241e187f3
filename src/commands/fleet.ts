/** `radserve status --fleet`: the nodes of one database beside each other. */
import { z } from "zod";
import { table } from "../base/table.js";
import type { Config } from "../config.js";
import { nodeSchema } from "../jobs/schema.js";
import { shownModel } from "../models/identity.js";
import { conditionSchema } from "../server/condition.js";
import { FLEET_REMEDIES } from "../server/fleet.js";
import { clientWithToken } from "./client.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

const fleetSchema = z.object({
  nodes: z.array(nodeSchema.omit({ running: true })),
  conditions: z.array(conditionSchema),
  warnings: z.array(conditionSchema),
});
type Fleet = z.infer<typeof fleetSchema>;
type Node = Fleet["nodes"][number];

const isOfFleet = ({ condition }: z.infer<typeof conditionSchema>): boolean =>
  condition in FLEET_REMEDIES || condition === "node_silent";

function stateOf({ alive, works, ready, seen_at }: Node): string {
  if (!alive) return `silent since ${seen_at}`;
  if (!ready) return "not ready for jobs";
  return works ? "runs jobs" : "runs no jobs";
}

const clockOf = ({ clock_offset_ms: offset }: Node): string =>
  offset === null ? "?" : `${offset < 0 ? "-" : "+"}${(Math.abs(offset) / 1000).toFixed(1)} s`;

function nodesTable(nodes: readonly Node[]): string {
  const rows = nodes.map((node) => [
    node.name,
    node.address,
    node.release || "?",
    stateOf(node),
    clockOf(node),
    node.keys.join(" ") || "none",
  ]);
  return table([["NODE", "ADDRESS", "RELEASE", "STATE", "CLOCK", "KEYS"], ...rows], [4]);
}

const rootOf = ({ side, number, mark, usable, empty }: Node["roots"][number]): string =>
  `${side} root ${number}: ${!usable ? "cannot be used" : mark !== null ? `mark ${mark}` : empty ? "empty" : "without a mark"}`;

/** What one node has, a line for each model, root and setting. */
function ofNode({ name, models, roots, settings }: Node): string[] {
  return [
    ...Object.entries(models).map(([model, of]) => `${name}\tmodel ${model}\t${shownModel(of)}`),
    ...roots.map((root) => `${name}\t${rootOf(root)}`),
    ...Object.entries(settings).map(([setting, value]) => `${name}\tsetting ${setting}\t${value}`),
  ];
}

/** Status 1 where the nodes differ, or one of them is a copy, silent, or has a wrong clock. */
export async function fleetStatus(config: Config, { json }: JsonOption): Promise<ExitStatus> {
  const client = clientWithToken(config);
  const found = await client.call(fleetSchema, "GET", "/overview");
  const conditions = found.conditions.filter(isOfFleet);
  const status = conditions.length === 0 ? 0 : 1;
  const { nodes, warnings } = found;
  if (json === true) {
    print(JSON.stringify({ nodes, conditions, warnings }, null, 2));
    return status;
  }
  if (nodes.length === 0) {
    remark("No node is known: the server has no database of jobs, or it rests.");
    return status;
  }
  print(nodesTable(nodes));
  for (const line of nodes.flatMap(ofNode)) print(line);
  for (const { condition, message, remedy } of conditions)
    print(`wrong\t${condition}\t${message} ${remedy}`);
  for (const { condition, message, remedy } of warnings)
    print(`warning\t${condition}\t${message} ${remedy}`);
  return status;
}
