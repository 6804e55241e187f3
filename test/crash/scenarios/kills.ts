/** kill -9 of anything at random: every item ends, every result is there once and whole. */
import { ServingNode } from "../lib/node.js";
import { killWhileRunning, processesOf, slayIf } from "../lib/killing.js";
import { Network, noNamespaces } from "../lib/network.js";
import { SharedPostgres } from "../lib/postgres.js";
import type { Options, Outcome, Scenario } from "../lib/scenario.js";

async function oneNode(options: Options): Promise<Outcome> {
  const node = await ServingNode.start();
  try {
    return await killWhileRunning(
      node,
      {
        ...processesOf(node),
        PostgreSQL: () => slayIf(node.postmaster()),
      },
      options,
    );
  } finally {
    await node.stop();
    await node.remove();
  }
}

/** A second node that works on the first one's queue, with its folders and its keys. */
export function secondNode(
  first: ServingNode,
  databaseUrl: string,
  more: Parameters<typeof ServingNode.start>[0] = {},
): Promise<ServingNode> {
  return ServingNode.start({
    role: "worker",
    ...more,
    settings: {
      DATABASE_URL: databaseUrl,
      RADSERVE_INPUT_ROOTS: first.input,
      RADSERVE_OUTPUT_ROOTS: first.output,
      RADSERVE_KEYS_DIR: `${first.place.directory}/state/keys`,
      ...more.settings,
    },
  });
}

async function twoNodes(options: Options): Promise<Outcome> {
  const postgres = await SharedPostgres.start();
  const first = await ServingNode.start({ settings: { DATABASE_URL: postgres.url } });
  const second = await secondNode(first, postgres.url);
  try {
    return await killWhileRunning(
      first,
      {
        ...processesOf(first, " of the first"),
        ...processesOf(second, " of the second"),
        PostgreSQL: () => postgres.kill(),
      },
      options,
    );
  } finally {
    await Promise.all([first.stop(), second.stop()]);
    await postgres.stop();
    for (const node of [second, first]) await node.remove();
  }
}

/**
 * Seconds that a cable stays out: longer than any lease, so that the items of the node behind it
 * run elsewhere.
 */
const OUT_MS = 45_000;

async function twoNetworks(options: Options): Promise<Outcome> {
  const network = new Network();
  const postgres = await SharedPostgres.start(network.address);
  const first = await ServingNode.start({
    space: network.add(),
    settings: { DATABASE_URL: postgres.url },
  });
  const space = network.add();
  const second = await secondNode(first, postgres.url, { space });
  let pulled: number | undefined;
  let plugging: NodeJS.Timeout | undefined;
  const pull = () => {
    if (pulled !== undefined) return false;
    pulled = performance.now();
    network.connect(space.name, false);
    plugging = setTimeout(() => network.connect(space.name, true), OUT_MS);
    return true;
  };
  const plug = () => {
    if (pulled === undefined || performance.now() - pulled < OUT_MS + 5_000) return false;
    pulled = undefined;
    return pull();
  };
  try {
    return await killWhileRunning(
      first,
      {
        "network of the second": () => pull() || plug(),
        "serving process of the first": () => slayIf(first.serving()),
        "serving process of the second": () => slayIf(second.serving()),
        PostgreSQL: () => postgres.kill(),
      },
      options,
    );
  } finally {
    clearTimeout(plugging);
    network.connect(space.name, true);
    await Promise.all([first.stop(), second.stop()]);
    await postgres.stop();
    for (const node of [second, first]) await node.remove();
    network.remove();
  }
}

export const kills: Record<string, Scenario> = {
  "kill-one-node": {
    description: "kill -9 of supervisor, serving process and the private PostgreSQL",
    run: oneNode,
  },
  "kill-two-nodes": {
    description: "kill -9 of both nodes' processes and of the PostgreSQL that they share",
    run: twoNodes,
  },
  "two-networks": {
    description:
      "two nodes in two network namespaces: kill -9, and a network cable pulled for longer than any lease",
    skip: noNamespaces,
    run: twoNetworks,
  },
};
