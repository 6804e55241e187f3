/** The table of what becomes of each kind of output. */
import type { EngineOutput } from "../../engine/types.js";
import type { ModelOutput } from "../../manifest/outputs/outputs.js";
import { boxes } from "./boxes.js";
import { classification } from "./classification.js";
import { heatmap } from "./heatmap.js";
import { keypoints } from "./keypoints.js";
import type { ResultKind } from "./kind.js";
import { regression } from "./regression.js";
import { segmentation } from "./segmentation.js";

const KINDS = {
  classification,
  regression,
  segmentation,
  detection: boxes,
  detection_table: boxes,
  probability_map: boxes,
  heatmap,
  keypoints,
  volume_detection: boxes,
} satisfies {
  [Name in ModelOutput["kind"]]: ResultKind<Extract<ModelOutput, { kind: Name }>, never>;
};

const byGiven = new Map<string, unknown>(Object.values(KINDS).map((kind) => [kind.gives, kind]));

export const resultKindOf = ({ kind }: ModelOutput): ResultKind<ModelOutput, EngineOutput> =>
  KINDS[kind] as ResultKind<ModelOutput, EngineOutput>;

/** The same for what the engine gave. */
export const kindOfGiven = ({ kind }: EngineOutput): ResultKind<ModelOutput, EngineOutput> =>
  byGiven.get(kind) as ResultKind<ModelOutput, EngineOutput>;
