/**
 * The nodes of one database, compared by what each has written there: in what they differ, which of
 * them are copies, whose clock is wrong, and what this node lacks.
 */
import { groupsBy } from "../base/groups.js";
import { shownModel } from "../models/identity.js";
import type { NodeState } from "../jobs/schema.js";
import { conditionsFrom, type Condition } from "./condition.js";

export type FleetNode = Omit<NodeState, "running">;

/** A clock that is so far off the database's is a condition, and so far, a warning. */
const CLOCK_WRONG_MS = 60_000;
const CLOCK_OFF_MS = 5_000;

export const FLEET_REMEDIES = {
  nodes_differ:
    "While a model or a release is rolled out this passes. Otherwise give all nodes the same: radserve status --fleet shows what each has.",
  node_copied:
    "Give each node a state directory of its own: stop the copy, remove node-id from its state directory, and start it again.",
  node_name_twice:
    "Give each node a name of its own (RADSERVE_NODE_NAME; it is the host name where that is not set), and restart it.",
  clock_differs: "Set the clock of the node, and keep it by NTP or PTP (chronyc tracking).",
} as const;
const of = conditionsFrom(FLEET_REMEDIES);

const isLive = ({ alive }: FleetNode): boolean => alive;

/** Names of nodes, with their addresses where two have one name. */
function namesOf(nodes: readonly FleetNode[]): (node: FleetNode) => string {
  const names = nodes.map(({ name }) => name);
  const isOne = (name: string) => names.indexOf(name) === names.lastIndexOf(name);
  return ({ name, address }) => (isOne(name) ? name : `${name} (${address})`);
}

/** "a, b: 1.0.0; c: 1.1.0"; undefined where all have the same. */
function apart(nodes: readonly FleetNode[], text: (node: FleetNode) => string): string | undefined {
  const nameOf = namesOf(nodes);
  const groups = groupsBy(nodes, text);
  if (groups.size < 2) return undefined;
  return [...groups].map(([has, some]) => `${some.map(nameOf).join(", ")}: ${has}`).join("; ");
}

const modelNames = (nodes: readonly FleetNode[]): string[] =>
  [...new Set(nodes.flatMap(({ models }) => Object.keys(models)))].sort();

const settingNames = (nodes: readonly FleetNode[]): string[] =>
  [...new Set(nodes.flatMap(({ settings }) => Object.keys(settings)))].sort();

const rootNames = (nodes: readonly FleetNode[]): string[] =>
  [
    ...new Set(nodes.flatMap(({ roots }) => roots.map(({ side, number }) => `${side} ${number}`))),
  ].sort();

function rootText({ roots }: FleetNode, wanted: string): string {
  const root = roots.find(({ side, number }) => `${side} ${number}` === wanted);
  if (root === undefined) return "none";
  if (!root.usable) return "cannot be used";
  return root.mark === null ? "without a mark" : `mark ${root.mark.slice(0, 8)}`;
}

/** What nodes have that live, thing by thing, where it is not the same. */
export function differences(all: readonly FleetNode[]): Condition[] {
  const nodes = all.filter(isLive);
  const loaded = nodes.filter(({ ready }) => ready);
  const looked = nodes.filter(({ roots }) => roots.length > 0);
  const set = nodes.filter(({ settings }) => Object.keys(settings).length > 0);
  const ids = (some: readonly string[]) =>
    some.length === 0 ? "none" : [...some].sort().join(" ");
  const things: [what: string, of: FleetNode[], text: (node: FleetNode) => string][] = [
    ["release", nodes, ({ release }) => release || "0.6 or earlier"],
    ...modelNames(loaded).map((name): (typeof things)[number] => [
      `model ${name}`,
      loaded,
      ({ models }) => {
        const model = models[name];
        return model === undefined ? "none" : shownModel(model);
      },
    ]),
    ["keys of tokens", looked, ({ keys }) => ids(keys)],
    ["keys of results", looked, ({ result_keys }) => ids(result_keys)],
    ...rootNames(looked).map((name): (typeof things)[number] => [
      name.replace(" ", " root "),
      looked,
      (node) => rootText(node, name),
    ]),
    ...settingNames(set).map((name): (typeof things)[number] => [
      `setting ${name}`,
      set,
      ({ settings }) => settings[name] ?? "unknown",
    ]),
  ];
  return things.flatMap(([what, compared, text]) => {
    const found = apart(compared, text);
    return found === undefined
      ? []
      : of("nodes_differ", what, `The nodes differ in the ${what}: ${found}.`);
  });
}

/** Nodes with one number that live: all but one are copies of its state directory. */
export function copies(all: readonly FleetNode[]): Condition[] {
  const nodes = all.filter(isLive);
  const nameOf = namesOf(nodes);
  const shown = (node: FleetNode) => `${nameOf(node)} since ${node.entered_at}`;
  return [...groupsBy(nodes, ({ id }) => id)].flatMap(([id, same]) => {
    const [first, ...younger] = same.sort((a, b) => (a.entered_at < b.entered_at ? -1 : 1));
    if (first === undefined || younger.length === 0) return [];
    return of(
      "node_copied",
      `node ${first.name}`,
      `Two nodes have the identity ${id}, as after a copy of a state directory: ${shown(first)}, and ${younger.map(shown).join(", ")}. The younger takes no images.`,
    );
  });
}

/** Names that several nodes have that live: what a job or a log says of a node is then unclear. */
export function namesakes(all: readonly FleetNode[]): Condition[] {
  return [...groupsBy(all.filter(isLive), ({ name }) => name)].flatMap(([name, same]) => {
    // Copies have one name, and are told of by themselves
    const nodes = [...groupsBy(same, ({ id }) => id).values()];
    if (nodes.length < 2) return [];
    const addresses = nodes.map((copies) => copies.map(({ address }) => address).join(" and "));
    return of(
      "node_name_twice",
      `node ${name}`,
      `${nodes.length} nodes have the name ${name}: ${addresses.sort().join(", ")}.`,
    );
  });
}

function ofClocks(all: readonly FleetNode[], from: number, to: number): Condition[] {
  const nodes = all.filter(isLive);
  const nameOf = namesOf(nodes);
  return nodes.flatMap((node) => {
    const offset = node.clock_offset_ms ?? 0;
    if (Math.abs(offset) < from || Math.abs(offset) >= to) return [];
    const seconds = Math.round(Math.abs(offset) / 1000);
    return of(
      "clock_differs",
      `node ${nameOf(node)}`,
      `The clock of node ${nameOf(node)} is ${seconds} s ${offset > 0 ? "ahead of" : "behind"} the database's.`,
    );
  });
}

/** What is wrong with the nodes of the database. */
export const fleetConditions = (nodes: readonly FleetNode[]): Condition[] => [
  ...copies(nodes),
  ...namesakes(nodes),
  ...differences(nodes),
  ...ofClocks(nodes, CLOCK_WRONG_MS, Infinity),
];

/** What may become wrong with them. */
export const fleetWarnings = (nodes: readonly FleetNode[]): Condition[] =>
  ofClocks(nodes, CLOCK_OFF_MS, CLOCK_WRONG_MS);

const KEYS = "the keys of tokens";

/** The models and marks of roots that requests may need, by names that nodes share. */
const hasOf = ({ models, roots }: FleetNode): Set<string> =>
  new Set([
    ...Object.keys(models).map((name) => `the model ${name}`),
    ...roots.flatMap(({ side, mark }) =>
      mark === null ? [] : `an ${side} root (mark ${mark.slice(0, 8)})`,
    ),
  ]);

/** Whether no token can be good on both: as where one node has keys of another installation. */
const haveOtherKeys = (a: FleetNode, b: FleetNode): boolean =>
  a.keys.length > 0 && b.keys.length > 0 && !a.keys.some((id) => b.keys.includes(id));

/**
 * What most of the other nodes have and this one has not, so that requests for it would fail here
 * alone. Nothing where every node lacks something: then nobody can say which of them is right, and
 * none is taken out. What one node of many has, as the first in which a model is rolled out, takes
 * out none either.
 * @param now what this node has: the database may know it later
 */
export function lackingHere(
  all: readonly FleetNode[],
  self: string | null,
  now: Pick<FleetNode, "models" | "keys" | "roots">,
): string[] {
  const nodes = all
    .map((node) => (node.instance === self ? { ...node, ...now, ready: true } : node))
    .filter(({ alive, ready }) => alive && ready)
    .map((node) => ({ ...node, things: hasOf(node) }));
  type Node = (typeof nodes)[number];
  const lacking = (node: Node): string[] => {
    const others = nodes.filter(({ id }) => id !== node.id);
    const isOfMost = (holds: (other: Node) => boolean) =>
      others.filter(holds).length * 2 > others.length;
    const known = new Set(others.flatMap(({ things }) => [...things]));
    const lacks = [...known].filter(
      (thing) => !node.things.has(thing) && isOfMost(({ things }) => things.has(thing)),
    );
    return isOfMost((other) => haveOtherKeys(node, other)) ? [KEYS, ...lacks] : lacks;
  };
  const here = nodes.find(({ instance }) => instance === self);
  if (here === undefined) return [];
  const isSomeWhole = nodes.some((node) => node.id !== here.id && lacking(node).length === 0);
  return isSomeWhole ? lacking(here).sort() : [];
}

/** Nodes that live, beside this one. */
export const peersOf = (all: readonly FleetNode[], self: string | null): FleetNode[] =>
  all.filter(({ alive, instance }) => alive && instance !== self);
