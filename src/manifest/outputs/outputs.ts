/** The table of the kinds of outputs. Whoever asks what an output is or can do asks it here. */
import { z } from "zod";
import { classification } from "./classification.js";
import { detection } from "./detection.js";
import { detectionTable } from "./detection-table.js";
import type { Label } from "./fields.js";
import type { AnyOutput } from "./graph-fit.js";
import { heatmap } from "./heatmap.js";
import { keypoints } from "./keypoints.js";
import type { Kind } from "./kind.js";
import { probabilityMap } from "./probability-map.js";
import { regression } from "./regression.js";
import { segmentation } from "./segmentation.js";
import { volumeDetection } from "./volume-detection.js";

const KINDS = [
  classification,
  regression,
  segmentation,
  detection,
  detectionTable,
  probabilityMap,
  heatmap,
  keypoints,
  volumeDetection,
];
const byName = new Map(
  KINDS.map((kind) => [kind.schema.shape.kind.value as string, kind as unknown]),
);

type Schema = (typeof KINDS)[number]["schema"];
const schemas = KINDS.map(({ schema }) => schema);

export const modelOutput = z.discriminatedUnion("kind", schemas as [Schema, ...Schema[]]);
export type ModelOutput = z.infer<typeof modelOutput>;

/** The stand-in for a kind that does not exist, beside other mistakes of a manifest. */
const UNKNOWN: Kind<AnyOutput> = {
  schema: z.object({ kind: z.literal("") }),
  ofVolumes: true,
  placed: false,
  laidBack: true,
  canBeEmpty: true,
  blends: true,
  hasMean: true,
  labels: () => [],
  names: () => [],
  needsThresholds: () => false,
  hasUnitScores: () => false,
  graphFaults: () => [],
};

export const kindOf = <Output extends ModelOutput>({ kind }: Output): Kind<Output> =>
  (byName.get(kind) ?? UNKNOWN) as Kind<Output>;

/** The labels of an output in the manifest's order; a regression has none. */
export const labelsOf = (output: ModelOutput): Label[] => kindOf(output).labels(output);

export const labelPath = (output: ModelOutput, index: number): (string | number)[] =>
  "labels" in output ? ["labels", index] : ["label"];

/** The abilities of the kinds that do not depend on an output. */
type Trait = "ofVolumes" | "laidBack" | "canBeEmpty" | "blends" | "hasMean";

/** The names of the kinds that can do something, for messages. */
export const kindsThat = (trait: Trait): string =>
  KINDS.flatMap((kind) => (kind[trait] ? [kind.schema.shape.kind.value] : [])).join(", ");
