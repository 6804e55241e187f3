/** Two recordings side by side. */
import { readFileSync } from "node:fs";
import type { Expected } from "./expected.js";
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

interface Difference {
  path: string;
  text: string;
}

/** Where two JSON values differ. */
function* differences(a: unknown, b: unknown, path: string): Generator<Difference> {
  if (JSON.stringify(a) === JSON.stringify(b)) return;
  const bothHaveParts = [a, b].every((one) => typeof one === "object" && one !== null);
  if (!bothHaveParts) {
    yield { path, text: `${JSON.stringify(a)} became ${JSON.stringify(b)}` };
    return;
  }
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = [...new Set([...Object.keys(left), ...Object.keys(right)])];
  let found = 0;
  for (const key of keys)
    for (const difference of differences(
      left[key],
      right[key],
      path === "" ? key : `${path}.${key}`,
    )) {
      found++;
      yield difference;
    }
  if (found === 0) yield { path, text: "the same fields in another order" };
}

/**
 * Prints each difference that is not expected, how often each reason was met, and the number of
 * equal cases.
 * @returns true if there is no other difference, and each expected one is there
 */
export function compare(fileA: string, fileB: string, expected: readonly Expected[]): boolean {
  const [a, b] = [readRecording(fileA), readRecording(fileB)];
  if (a.inputs !== b.inputs)
    throw new Error("The recordings are of different inputs, models or cases.");
  const ids = [...new Set([...a.lines.keys(), ...b.lines.keys()])];
  const met = new Map(expected.map((entry) => [entry, 0]));
  const isExpected = (id: string, path: string) => {
    const entries = expected.filter((entry) => entry.cases.test(id) && entry.path.test(path));
    for (const entry of entries) met.set(entry, (met.get(entry) ?? 0) + 1);
    return entries.length > 0;
  };
  let [equal, asExpected] = [0, 0];
  for (const id of ids) {
    const found = [...differences(a.lines.get(id), b.lines.get(id), "")];
    const others = found.filter(({ path }) => !isExpected(id, path));
    if (found.length === 0) equal++;
    else if (others.length === 0) asExpected++;
    else
      console.log(
        [id, ...others.map(({ path, text }) => `  ${path}: ${text}`.slice(0, 400))].join("\n"),
      );
  }
  for (const [{ cases, path, reason }, times] of met)
    console.log(`${times === 0 ? "Never met" : `Met ${times} times`}: ${cases} ${path}: ${reason}`);
  const files = [...a.lines.values()].reduce(
    (sum, line) => sum + Object.keys(line.files).length,
    0,
  );
  const meant = asExpected === 0 ? "" : `, ${asExpected} differ as expected`;
  console.log(`${equal} of ${ids.length} cases are equal${meant} (${files} files).`);
  return equal + asExpected === ids.length && [...met.values()].every((times) => times > 0);
}
