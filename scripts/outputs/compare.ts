/** Two recordings side by side. */
import { readFileSync } from "node:fs";
import type { Line } from "./record.js";

interface Recording {
  inputs: string;
  lines: Map<string, Line>;
}

function readRecording(file: string): Recording {
  const [head = "", ...rest] = readFileSync(file, "utf8").trimEnd().split("\n");
  const { inputs } = JSON.parse(head) as { inputs: string };
  const lines = rest.map((text) => JSON.parse(text) as Line);
  return { inputs, lines: new Map(lines.map((line) => [line.id, line])) };
}

/** Paths in two JSON values where they differ. */
function* differences(a: unknown, b: unknown, path: string): Generator<string> {
  if (JSON.stringify(a) === JSON.stringify(b)) return;
  const bothHaveParts = [a, b].every((one) => typeof one === "object" && one !== null);
  if (!bothHaveParts) {
    yield `${path}: ${JSON.stringify(a)} became ${JSON.stringify(b)}`;
    return;
  }
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = [...new Set([...Object.keys(left), ...Object.keys(right)])];
  let found = 0;
  for (const key of keys)
    for (const difference of differences(left[key], right[key], `${path}.${key}`)) {
      found++;
      yield difference;
    }
  if (found === 0) yield `${path}: the same fields in another order`;
}

/** Prints each difference and the number of equal cases; true if there is no difference. */
export function compare(fileA: string, fileB: string): boolean {
  const [a, b] = [readRecording(fileA), readRecording(fileB)];
  if (a.inputs !== b.inputs) throw new Error("The recordings are of different inputs, models or cases.");
  const ids = [...new Set([...a.lines.keys(), ...b.lines.keys()])];
  let equal = 0;
  for (const id of ids) {
    const found = [...differences(a.lines.get(id), b.lines.get(id), "")];
    if (found.length === 0) equal++;
    else console.log([id, ...found.map((text) => `  ${text.slice(1, 400)}`)].join("\n"));
  }
  const files = [...a.lines.values()].reduce((sum, line) => sum + Object.keys(line.files).length, 0);
  console.log(`${equal} of ${ids.length} cases are equal (${files} files).`);
  return equal === ids.length;
}
