/**
 * `npm run trial -- crash [SCENARIO...] [--items N] [--kills N] [--seed N] [--quick]`: bulk work
 * under faults, with real servers, real PostgreSQL and real signals. Each scenario prints one line;
 * --quick is for every run of the checks.
 */
import { parseArgs } from "node:util";
import type { Options, Scenario } from "./lib/scenario.js";
import { cancel } from "./scenarios/cancel.js";
import { deliveries } from "./scenarios/deliveries.js";
import { gateway } from "./scenarios/gateway.js";
import { gatewayMixed } from "./scenarios/gateway-mixed.js";
import { gatewayNodes } from "./scenarios/gateway-nodes.js";
import { engineCrash } from "./scenarios/engine-crash.js";
import { fleet } from "./scenarios/fleet.js";
import { fullDisk } from "./scenarios/full-disk.js";
import { kills } from "./scenarios/kills.js";
import { nodes } from "./scenarios/nodes.js";
import { stopping } from "./scenarios/stops.js";

const SCENARIOS: Record<string, Scenario> = {
  ...kills,
  ...cancel,
  ...fullDisk,
  ...gateway,
  ...deliveries,
  ...gatewayNodes,
  ...gatewayMixed,
  ...engineCrash,
  ...nodes,
  ...fleet,
  ...stopping,
};

/**
 * Items of each scenario, in full and in the short form; those without a short form are left out of
 * it.
 */
const SIZES: Record<string, { full: number; quick?: number; kills?: number }> = {
  "kill-one-node": { full: 10_000, quick: 300 },
  "kill-two-nodes": { full: 10_000 },
  "two-networks": { full: 10_000 },
  cancel: { full: 10_000, quick: 300 },
  gateway: { full: 1_000, quick: 60 },
  deliveries: { full: 1_000, quick: 60 },
  "deliveries-two-nodes": { full: 1_000 },
  "gateway-two-nodes": { full: 600, quick: 24 },
  /** Studies, with twenty kills. */
  "gateway-mixed": { full: 1_000, quick: 40, kills: 20 },
  "full-disk": { full: 2_000, quick: 120 },
  "engine-crash": { full: 1_000, quick: 60 },
  "two-nodes": { full: 300 },
  fleet: { full: 20_000 },
  "fleet-upgrade": { full: 8_000 },
  "fleet-restore": { full: 2_000 },
  /** Stops. */
  stops: { full: 100, quick: 4 },
};
const KILLS = { full: 30, quick: 4 };
const MOST_FAULTS = 20;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    items: { type: "string" },
    kills: { type: "string" },
    seed: { type: "string", default: String(Date.now() % 100_000) },
    quick: { type: "boolean", default: false },
  },
});

function chosen(): string[] {
  const unknown = positionals.find((name) => !(name in SCENARIOS));
  if (unknown !== undefined)
    throw new Error(
      `No scenario "${unknown}". There are:\n${Object.entries(SCENARIOS)
        .map(([name, { description }]) => `  ${name.padEnd(16)}${description}`)
        .join("\n")}`,
    );
  if (positionals.length > 0) return positionals;
  return Object.keys(SCENARIOS).filter((name) => !values.quick || SIZES[name]?.quick !== undefined);
}

function optionsOf(name: string): Options {
  const { full, quick, kills = KILLS.full } = SIZES[name]!;
  const items = values.items ?? (values.quick ? (quick ?? full) : full);
  const killed = values.kills ?? (values.quick ? KILLS.quick : kills);
  const say = (text: string) => console.error(`       ${name}: ${text}`);
  return { items: Number(items), kills: Number(killed), seed: Number(values.seed), say };
}

/** One line, and what was wrong. True where the promise was kept. */
async function runOne(name: string): Promise<boolean> {
  const scenario = SCENARIOS[name]!;
  const why = scenario.skip?.() ?? false;
  if (why !== false) {
    console.log(`skip   ${name}: ${why}`);
    return true;
  }
  const { summary, faults } = await scenario.run(optionsOf(name)).catch((error: unknown) => ({
    summary: "it ended early",
    faults: [error instanceof Error ? (error.stack ?? error.message) : String(error)],
  }));
  console.log(`${faults.length === 0 ? "ok    " : "FAILED"} ${name}: ${summary}`);
  for (const fault of faults.slice(0, MOST_FAULTS)) console.log(`       ${fault}`);
  if (faults.length > MOST_FAULTS) console.log(`       and ${faults.length - MOST_FAULTS} more`);
  return faults.length === 0;
}

try {
  console.log(`seed ${values.seed}`);
  let kept = true;
  for (const name of chosen()) kept = (await runOne(name)) && kept;
  process.exitCode = kept ? 0 : 1;
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 2;
}
