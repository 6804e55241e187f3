/** The goals of bench engine, and what a run found beside each. */

export interface AgainstRaw {
  tensors: { throughput: number; lone_call_more_ms: number };
  images: { throughput: number };
}

interface Row {
  goal: string;
  found: number;
  wanted: string;
  met: boolean;
}

/** Of the rate of the plain loop when all cores are busy. */
const LEAST = { tensors: 0.97, images: 0.93 };
/** Milliseconds that a call may take more than one of the plain loop. */
const LONE_CALL_MS = 0.15;

const row = (goal: string, found: number, bound: number, least: boolean): Row => ({
  goal,
  found: Number(found.toFixed(3)),
  wanted: `at ${least ? "least" : "most"} ${bound}`,
  met: least ? found >= bound : found <= bound,
});

/**
 * @param node what the tensors of each network reach of onnxruntime-node's rate, one call at a time
 */
export function engineGoals(
  raw: Readonly<Record<string, AgainstRaw>>,
  node: Readonly<Record<string, number>>,
): Row[] {
  return [
    ...Object.entries(raw).flatMap(([network, { tensors, images }]) => [
      row(
        `${network}, saturated, tensors, of the plain loop`,
        tensors.throughput,
        LEAST.tensors,
        true,
      ),
      row(
        `${network}, saturated, images, of the plain loop`,
        images.throughput,
        LEAST.images,
        true,
      ),
      row(
        `${network}, a lone call, ms more than a plain one`,
        tensors.lone_call_more_ms,
        LONE_CALL_MS,
        false,
      ),
    ]),
    ...Object.entries(node).map(([network, found]) =>
      row(`${network}, one at a time, tensors, of onnxruntime-node`, found, LEAST.tensors, true),
    ),
  ];
}
