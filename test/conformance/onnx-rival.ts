/**
 * A process that runs the node cases of onnx through onnxruntime-node, and writes answers.jsonl:
 * for each case its outputs by name, their bytes in base64, or why there are none.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireOrt } from "../../bench/lib/node-rival.js";
import { arrayOf, type NodeCase } from "./onnx-cases.js";

interface Value {
  type: string;
  dims: readonly number[];
  data: Float32Array | readonly string[];
}
interface AnyOrt {
  InferenceSession: {
    create(
      path: string,
      options: object,
    ): Promise<{ run(feeds: object): Promise<Record<string, Value>> }>;
  };
  Tensor: new (type: string, data: unknown, dims: readonly number[]) => unknown;
}

const [, , folder = "", ortFolder = ""] = process.argv;
// Where it is there, the package wants half floats in it, and then finds no bytes (Node.js 24)
Reflect.deleteProperty(globalThis, "Float16Array");
const ort = requireOrt(ortFolder) as unknown as AnyOrt;
const bytes = readFileSync(join(folder, "data.bin"));
const cases = JSON.parse(readFileSync(join(folder, "cases.json"), "utf8")) as NodeCase[];

async function run({ model, inputs = [] }: NodeCase): Promise<object> {
  const options = { intraOpNumThreads: 1, interOpNumThreads: 1, logSeverityLevel: 4 };
  const session = await ort.InferenceSession.create(join(folder, model), options);
  const feeds = inputs.map((input) => {
    const data = arrayOf(input, bytes);
    return [input.name, new ort.Tensor(input.type, data, input.shape)];
  });
  const outputs = await session.run(Object.fromEntries(feeds) as object);
  const answers: Record<string, object> = {};
  for (const [name, { type, dims, data }] of Object.entries(outputs)) {
    if (type === "string") {
      answers[name] = { type, dims, texts: data };
      continue;
    }
    const { buffer, byteOffset, byteLength } = data as Float32Array;
    const base64 = Buffer.from(buffer, byteOffset, byteLength).toString("base64");
    answers[name] = { type, dims, base64 };
  }
  return answers;
}

const lines: string[] = [];
for (const one of cases) {
  if (one.other !== null) continue;
  const answer = await run(one).catch((error: unknown) => ({ error: String(error) }));
  lines.push(JSON.stringify({ name: one.name, answer }));
}
writeFileSync(join(folder, "answers.jsonl"), lines.join("\n"));
