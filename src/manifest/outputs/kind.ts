/**
 * A kind of output: its fields, its abilities, its rules, and how it fits a graph. Each kind is one
 * file beside this one, and one line in the table of outputs.ts; its namesake in
 * native/postprocess/kinds reads the same fields.
 */
import type { z } from "zod";
import type { Label } from "./fields.js";
import type { AnyOutput, Fault, GraphSide } from "./graph-fit.js";

/** Reports a mistake at a path below the output. */
export type Report = (path: (string | number)[], message: string) => void;

/** The facts of a model that its outputs have to know. */
export interface Around {
  outputs: readonly AnyOutput[];
  volume: boolean;
  /** Whether the graph takes windows. */
  tiled: boolean;
  /** Whether the model's stage is final. */
  final: boolean;
}

/** A name that findings or measurements are told apart by, and where the manifest has it. */
export interface UniqueName {
  what: "label" | "value";
  name: string;
  at: (string | number)[];
}

/** A step of decoding, for the receipt. */
export interface DecodingStep {
  step: string;
  [parameter: string]: unknown;
}

export interface Kind<Output extends AnyOutput> {
  schema: z.ZodObject<{ kind: z.ZodLiteral<string> }>;
  /** Volumes can have it. */
  ofVolumes: boolean;
  /** False where single images cannot have it. */
  ofImages?: false;
  /** It lies in an image, on the grid of an input. */
  placed: boolean;
  /** Its output for a part of an image can be laid back into the whole. */
  laidBack: boolean;
  /** It can say that nothing is there without having looked. */
  canBeEmpty: boolean;
  /** Windows of it can be blended. */
  blends: boolean;
  /** What windows of it find is merged, instead of blended. */
  mergesWindows?: true;
  /** It has a mean over several graphs: its numbers stand for the same in each. */
  hasMean: boolean;
  /**
   * Its tensor holds numbers of labels, or prototypes of masks: neither can be blended or has a
   * mean.
   */
  holdsLabels?: (output: Output) => boolean;
  /** Why there is no mean of what its activation gives; undefined if there is one. */
  noMeanAfterActivation?: (output: Output) => string | undefined;
  /** Its labels, in the manifest's order. */
  labels: (output: Output) => Label[];
  /**
   * The names by which its findings and measurements are told apart; none where they are those of
   * another output.
   */
  names: (output: Output) => UniqueName[];
  /** Each label needs a threshold, from which on it is present. */
  needsThresholds: (output: Output) => boolean;
  /** All its scores lie from 0 to 1. */
  hasUnitScores: (output: Output) => boolean;
  /** Its scores are probabilities: the manifest says how they were calibrated. */
  givesProbabilities?: (output: Output) => boolean;
  /** The number of its first column that may be ignored; none may where this is absent. */
  ignoresFrom?: (output: Output) => number | undefined;
  /** Its places are pixels of the source, whatever the input's preparation did. */
  inSource?: (output: Output) => boolean;
  /** Rules of the kind that hold in a manifest with other mistakes too. */
  check?: (output: Output, around: Around, issue: Report) => void;
  /** Rules of the kind that look into fields which may be missing beside other mistakes. */
  checkWhole?: (output: Output, around: Around, issue: Report) => void;
  /** The fault that keeps the graph from giving it. */
  graphFaults: (output: Output, graph: GraphSide) => Fault[];
  /**
   * The ordered steps from tensors to what is found, in words and numbers.
   * @param thresholds by label, site.json applied
   */
  decoding?: (output: Output, thresholds: Readonly<Record<string, number>>) => DecodingStep[];
}

/** How many columns of scores the tensor of an output has: of its labels, and those ignored. */
export const columnsOf = (output: {
  labels: readonly Label[];
  ignored?: readonly number[] | undefined;
}): number => output.labels.length + (output.ignored?.length ?? 0);

/** Why there is no softmax where an output has one column. */
export const SOFTMAX_OF_ONE =
  'The softmax of a single score is always 1. Expected "sigmoid" for a logit, "none" for a probability, or the column of the other class in ignored';

/** The names of labels, where a manifest has them in a list or by itself. */
export const labelNames = (list: readonly Label[], single = false): UniqueName[] =>
  list.map(({ label: name }, i) => ({
    what: "label",
    name,
    at: single ? ["label", "label"] : ["labels", i, "label"],
  }));
