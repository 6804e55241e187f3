/** What nodes are told of one another, from what each has written into the database. */
import t from "tap";
import type { ModelIdentity } from "../../src/models/identity.js";
import {
  fleetConditions,
  fleetWarnings,
  lackingHere,
  type FleetNode,
} from "../../src/server/fleet.js";

const model = (version: string): ModelIdentity => ({
  version,
  sha256: version.padEnd(64, "0"),
  thresholds: null,
  state: "ready",
});
const output = (mark: string | null, usable = true): FleetNode["roots"][number] => ({
  side: "output",
  number: 1,
  mark,
  empty: false,
  usable,
});

let entered = 0;
function node(name: string, changes: Partial<FleetNode> = {}): FleetNode {
  entered += 1;
  return {
    name,
    id: name,
    instance: `${name}-run`,
    address: `http://${name}:8500`,
    release: "0.7.0",
    alive: true,
    works: true,
    ready: true,
    seen_at: "2026-01-01T00:00:00.000Z",
    entered_at: new Date(Date.UTC(2026, 0, 1) + entered * 1000).toISOString(),
    clock_offset_ms: 0,
    models: { ct: model("1.0.0") },
    keys: ["k1"],
    result_keys: ["r1"],
    roots: [output("aaaaaaaa-1")],
    settings: { RADSERVE_SEGMENTATION_TYPE: "binary", RADSERVE_OUTPUTS: "not set" },
    ...changes,
  };
}

const told = (nodes: FleetNode[]) =>
  fleetConditions(nodes).map(({ condition, where }) => `${condition}: ${where}`);

t.test("nodes that are the same are not told of", (t) => {
  t.strictSame(told([node("a"), node("b"), node("c")]), []);
  t.end();
});

t.test("each difference of live nodes is one condition that says who has what", (t) => {
  const nodes = [
    node("a"),
    node("b"),
    node("c", {
      release: "0.7.1",
      models: { ct: model("1.1.0"), more: model("2.0.0") },
      keys: ["k2"],
      result_keys: [],
      roots: [output(null)],
    }),
  ];
  t.strictSame(told(nodes), [
    "nodes_differ: release",
    "nodes_differ: model ct",
    "nodes_differ: model more",
    "nodes_differ: keys of tokens",
    "nodes_differ: keys of results",
    "nodes_differ: output root 1",
  ]);
  const [release, ct, , , , root] = fleetConditions(nodes);
  t.equal(release?.message, "The nodes differ in the release: a, b: 0.7.0; c: 0.7.1.");
  t.equal(
    ct?.message,
    "The nodes differ in the model ct: a, b: 1.0.0 (1.0.0000); c: 1.1.0 (1.1.0000).",
  );
  t.equal(
    root?.message,
    "The nodes differ in the output root 1: a, b: mark aaaaaaaa; c: without a mark.",
  );
  t.strictSame(told([node("a"), node("b", { alive: false, release: "0.1" })]), []);
  t.end();
});

t.test("thresholds of the site, and a model that was not loaded, are differences", (t) => {
  const with_ = (changes: Partial<ModelIdentity>) =>
    node("b", { models: { ct: { ...model("1.0.0"), ...changes } } });
  t.strictSame(told([node("a"), with_({ thresholds: "cd".repeat(32) })]), [
    "nodes_differ: model ct",
  ]);
  t.strictSame(told([node("a"), with_({ state: "failed" })]), ["nodes_differ: model ct"]);
  t.strictSame(
    told([node("a"), node("b", { ready: false, models: {} })]),
    [],
    "one that loads its models has none yet",
  );
  t.end();
});

t.test("settings that decide the form of results are compared, with what each node has", (t) => {
  const other = { RADSERVE_SEGMENTATION_TYPE: "labelmap", RADSERVE_OUTPUTS: "not set" };
  const [found, ...more] = fleetConditions([node("a"), node("b"), node("c", { settings: other })]);
  t.match(found, {
    condition: "nodes_differ",
    where: "setting RADSERVE_SEGMENTATION_TYPE",
    message:
      "The nodes differ in the setting RADSERVE_SEGMENTATION_TYPE: a, b: binary; c: labelmap.",
  });
  t.strictSame(more, []);
  t.strictSame(
    told([node("a"), node("b", { settings: {} })]),
    [],
    "one that has not told them yet",
  );
  t.end();
});

t.test("two nodes of one identity are named", (t) => {
  const nodes = [
    node("same", { id: "1", instance: "x", address: "http://one" }),
    node("same", { id: "1", instance: "y", address: "http://two" }),
  ];
  t.match(fleetConditions(nodes), [
    {
      condition: "node_copied",
      where: "node same",
      message:
        /Two nodes have the identity 1, .*: same \(http:\/\/one\) since .*, and same \(http:\/\/two\) since .* The younger takes no images\./,
    },
  ]);
  t.end();
});

t.test("a name that two nodes have is told, with where each is", (t) => {
  const nodes = [
    node("ct-1", { id: "1", address: "http://one:8500" }),
    node("ct-1", { id: "2", address: "http://two:8500" }),
    node("ct-2"),
  ];
  t.strictSame(told(nodes), ["node_name_twice: node ct-1"]);
  t.equal(
    fleetConditions(nodes)[0]?.message,
    "2 nodes have the name ct-1: http://one:8500, http://two:8500.",
  );
  const [first, second] = nodes as [FleetNode, FleetNode];
  t.strictSame(told([first, { ...second, alive: false }]), []);
  t.strictSame(
    told([first, { ...second, id: first.id }]),
    ["node_copied: node ct-1"],
    "a copy has the name, too",
  );
  t.end();
});

t.test("a clock: 5 s are a warning, and a minute is a condition", (t) => {
  const off = (ms: number) => [node("a"), node("b", { clock_offset_ms: ms })];
  t.strictSame([told(off(4_900)), fleetWarnings(off(4_900))], [[], []]);
  t.strictSame(told(off(-6_000)), []);
  t.match(fleetWarnings(off(-6_000)), [
    { condition: "clock_differs", message: "The clock of node b is 6 s behind the database's." },
  ]);
  t.strictSame(told(off(3 * 3_600_000)), ["clock_differs: node b"]);
  t.strictSame(fleetWarnings(off(61_000)), []);
  t.end();
});

t.test("what this node lacks of what most others have", (t) => {
  const lacks = (self: FleetNode, ...others: FleetNode[]) =>
    lackingHere([self, ...others], self.instance, self);
  const two = { models: { ct: model("1"), more: model("2") } };
  t.strictSame(lacks(node("a"), node("b", two)), ["the model more"]);
  t.strictSame(lacks(node("b", two), node("a")), [], "the node that has more goes on");
  t.strictSame(
    lacks(node("a"), node("b"), node("c", two)),
    [],
    "the first of three in which a model is rolled out takes out none",
  );
  t.strictSame(lacks(node("a"), node("b", two), node("c", two)), ["the model more"]);
  t.strictSame(lacks(node("a", { models: {} }), node("b")), ["the model ct"]);
  t.strictSame(
    lacks(node("a", { models: { old: model("1") } }), node("b", { models: { new: model("1") } })),
    [],
    "where every node lacks something nobody knows which is right",
  );
  t.strictSame(lacks(node("a", { roots: [output("b")] }), node("b"), node("c")), [
    "an output root (mark aaaaaaaa)",
  ]);
  const other = { keys: ["k2"] };
  t.strictSame(lacks(node("a", other), node("b"), node("c")), ["the keys of tokens"]);
  t.strictSame(lacks(node("a"), node("b", other), node("c")), []);
  t.strictSame(lacks(node("a", other), node("b")), [], "of two nobody knows which is right");
  t.strictSame(
    lacks(node("a"), node("b", { keys: ["k1", "k2"] }), node("c", { keys: ["k1", "k2"] })),
    [],
    "while keys are rotated, tokens of the old one are good",
  );
  t.strictSame(lacks(node("a", { models: {} }), node("b", { alive: false })), []);
  t.strictSame(lackingHere([node("b")], null, node("a", { models: {} })), []);
  t.end();
});
