/**
 * Programs over onnxruntime-node (test/drop-in-project), once over that and once over the package
 * that npm puts in its place, both from the registry of npm: whether they give the same.
 */
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { smallCnn } from "../dist/bench/lib/models.js";
import { writeTinyTransformer } from "../dist/test/support/tiny-transformer.js";
import { runProgram } from "./run.mjs";
import { check } from "./trial.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
/** What both sides install. */
const TRANSFORMERS = "4.3.2";
const MOST_DIFFERENCE = 1e-6;

const runIn = (cwd, program, parameters) =>
  runProgram(program, parameters, { cwd, timeout: 600_000 });

/** A project of its own, in which `inPlace` has the name onnxruntime-node. */
function install(folder, name, inPlace, dependencies = {}) {
  const project = path.join(folder, name);
  cpSync(path.join(root, "test/drop-in-project"), project, { recursive: true });
  const file = path.join(project, "package.json");
  const described = {
    ...JSON.parse(readFileSync(file, "utf8")),
    dependencies: { "@huggingface/transformers": TRANSFORMERS, ...dependencies },
    overrides: { "onnxruntime-node": inPlace },
  };
  writeFileSync(file, JSON.stringify(described));
  runIn(project, "npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund"]);
  return project;
}

/** The largest difference between outputs that are alike in all but their numbers. */
function differenceOf(ours, theirs) {
  const shape = (outputs) =>
    JSON.stringify(outputs.map(({ data, ...more }) => [more, data.length]));
  if (shape(ours) !== shape(theirs)) return Infinity;
  return Math.max(
    ...ours.map(({ data }, at) =>
      data.reduce((most, value, i) => {
        const other = theirs[at].data[i];
        return Math.max(most, Math.abs(value - other) / Math.max(1, Math.abs(other)));
      }, 0),
    ),
  );
}

/**
 * @param folder what is made lies there
 * @param tarballs those of packEngine
 */
export function compareDropIn(folder, { engine, dropIn }) {
  const { version } = JSON.parse(
    readFileSync(path.join(root, "node_modules/onnxruntime-common/package.json"), "utf8"),
  );
  const ours = install(folder, "over-engine", `file:${dropIn}`, {
    "radserve-engine": `file:${engine}`,
  });
  const theirs = install(folder, "over-onnxruntime-node", version);
  const network = path.join(folder, "network.onnx");
  writeFileSync(network, smallCnn());
  writeTinyTransformer(folder);
  for (const [program, model] of [
    ["sessions.mjs", network],
    ["transformers.mjs", folder],
  ]) {
    const [our, their] = [ours, theirs].map((project) =>
      JSON.parse(runIn(project, process.execPath, [program, model])),
    );
    const difference = differenceOf(our.outputs, their.outputs);
    check(
      `${program}: what it gives is at most ${difference} from what it gives over onnxruntime-node`,
      difference <= MOST_DIFFERENCE && JSON.stringify(our.found) === JSON.stringify(their.found),
      JSON.stringify([our.found, their.found]),
    );
  }
}
