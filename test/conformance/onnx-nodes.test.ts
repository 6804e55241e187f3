/**
 * The node cases of the onnx package, every operator in every type, through the engine of graphs:
 * equal to onnxruntime-node, which has the same runtime, within 1e-6; what that has no tensors of,
 * to the cases themselves.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { installOrt } from "../../bench/lib/node-rival.js";
import type { DataType, TensorData } from "../../src/graph/data-types.js";
import { createEngine, EngineError, type Feeds, type Outputs } from "../../src/graph/index.js";
import { PYTHON, pythonHas } from "../support/needs.js";
import { arrayOf, type NodeCase } from "./onnx-cases.js";

const TOLERANCE = 1e-6;

interface Rival {
  type: string;
  dims: number[];
  texts?: string[];
  base64?: string;
}
type RivalAnswer = Record<string, Rival> | { error: string };

const isFailure = (answer: RivalAnswer | undefined): answer is { error: string } =>
  typeof answer?.["error"] === "string";

/** Bits of the types that are compared as numbers; others have to be the same bits. */
function numbersOf(dtype: DataType, data: TensorData): ArrayLike<number | bigint | string> {
  // Several bits are no number
  if (dtype === "float8e5m2")
    return Array.from(data as Uint8Array, (bits) => ((bits & 0x7f) > 0x7c ? NaN : bits));
  if (dtype !== "float16" && dtype !== "bfloat16") return data;
  const view = new DataView(new ArrayBuffer(4));
  return Array.from(data as Uint16Array, (bits) => {
    if (dtype === "float16") return halfOf(bits);
    view.setUint16(0, bits);
    view.setUint16(2, 0);
    return view.getFloat32(0);
  });
}

function halfOf(bits: number): number {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return exponent === 0
    ? sign * fraction * 2 ** -24
    : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The first place where two tensors differ; undefined if there is none. */
function difference(
  dtype: DataType,
  found: TensorData,
  expected: TensorData,
  [rtol, atol]: readonly [number, number],
): string | undefined {
  const [ours, theirs] = [numbersOf(dtype, found), numbersOf(dtype, expected)];
  if (ours.length !== theirs.length) return `${ours.length} elements, expected ${theirs.length}`;
  for (let i = 0; i < ours.length; i++) {
    const [a, b] = [ours[i], theirs[i]];
    if (Object.is(a, b) || a === b) continue;
    const near =
      typeof a === "number" &&
      typeof b === "number" &&
      Math.abs(a - b) <= atol + rtol * Math.abs(b);
    if (!near) return `${String(a)} at ${i}, expected ${String(b)}`;
  }
  return undefined;
}

/** What a case of another process is, against ours. */
function againstRival(outputs: Outputs, rival: Record<string, Rival>): string | undefined {
  for (const [name, { dtype, shape, data }] of Object.entries(outputs)) {
    const { dims, texts, base64 = "" } = rival[name] ?? { dims: [] };
    if (shape.join() !== dims.join())
      return `${name}: [${shape.join()}], expected [${dims.join()}]`;
    const bytes = Buffer.from(base64, "base64");
    const expected = arrayOf(
      { name, type: dtype, shape, ...(texts ? { texts } : {}), bytes: bytes.length },
      bytes,
    );
    const fault = difference(dtype, data, expected, [TOLERANCE, TOLERANCE]);
    if (fault !== undefined) return `${name}: ${fault}`;
  }
  return undefined;
}

function againstCase(outputs: Outputs, one: NodeCase, bytes: Buffer): string | undefined {
  for (const expected of one.outputs ?? []) {
    const found = outputs[expected.name];
    if (found === undefined) return `${expected.name} is missing`;
    const fault = difference(found.dtype, found.data, arrayOf(expected, bytes), [
      one.rtol,
      one.atol,
    ]);
    if (fault !== undefined) return `${expected.name}: ${fault}`;
  }
  return undefined;
}

function rivalAnswers(folder: string): Map<string, RivalAnswer> {
  const script = fileURLToPath(import.meta.resolve("./onnx-rival.js"));
  const words = [script, folder, installOrt(join(folder, "ort"))];
  const { status } = spawnSync(process.execPath, words, { stdio: ["ignore", "ignore", "inherit"] });
  if (status !== 0) throw new Error(`onnxruntime-node ended with ${status}`);
  const lines = readFileSync(join(folder, "answers.jsonl"), "utf8").split("\n");
  const answers = lines.map((line) => JSON.parse(line) as { name: string; answer: RivalAnswer });
  return new Map(answers.map(({ name, answer }) => [name, answer]));
}

/** What a tensor of a wrong type or length is refused with: never for a case. */
const BY_TYPE = /Unexpected input data type|not enough space|expected .*, found/;
t.setTimeout(600_000);

/** Cases whose answers are random. */
const RANDOM = /^test_(bernoulli|training_dropout)/;

t.test("the node cases of onnx", { skip: pythonHas("onnx"), timeout: 600_000 }, async (t) => {
  const folder = t.testdir();
  const script = join(import.meta.dirname, "../../../test/conformance/onnx_nodes.py");
  const made = spawnSync(PYTHON, [script, folder], { encoding: "utf8" });
  t.equal(made.status, 0, made.stderr);
  const cases = JSON.parse(readFileSync(join(folder, "cases.json"), "utf8")) as NodeCase[];
  const bytes = readFileSync(join(folder, "data.bin"));
  const rivals = rivalAnswers(folder);
  const engine = createEngine({ threads: 2 });
  t.teardown(() => engine.close());
  const counts = { equal: 0, expected: 0, both_refuse: 0, no_tensors: 0, random: 0 };
  for (const one of cases) {
    const rival = rivals.get(one.name);
    const result = await (async () => {
      await using model = await engine.load(join(folder, one.model));
      const feeds = (one.inputs ?? []).map((input) => [
        input.name,
        { dtype: input.type, shape: input.shape, data: arrayOf(input, bytes) },
      ]);
      return await model.run(Object.fromEntries(feeds) as Feeds);
    })().catch((error: unknown) => error);
    if (one.other !== null) {
      // An output that is no tensor is left out, and an input of such a kind refuses the model
      counts.no_tensors++;
      continue;
    }
    if (result instanceof Error) {
      t.type(result, EngineError, one.name);
      if (isFailure(rival) && !BY_TYPE.test(result.message)) counts.both_refuse++;
      else t.fail(`${one.name}: ${result.message}`);
      continue;
    }
    const outputs = result as Outputs;
    if (RANDOM.test(one.name)) counts.random++;
    else if (rival !== undefined && !isFailure(rival)) {
      const fault = againstRival(outputs, rival);
      if (fault === undefined) counts.equal++;
      else t.fail(`${one.name}: ${fault}`);
    } else {
      const fault = againstCase(outputs, one, bytes);
      if (fault === undefined) counts.expected++;
      else t.fail(`${one.name}, as the case itself says: ${fault}`);
    }
  }
  t.comment(JSON.stringify(counts));
  t.ok(counts.equal > 1000, `most are compared: ${JSON.stringify(counts)}`);
});
