/**
 * The results of a kind of output: findings, rows and marks of the picture, and the output on
 * another grid. Each kind is one file beside this one, and one line in the table of kinds.ts.
 */
import type { PanelLayers } from "../../addon/picture.js";
import type { EngineOutput } from "../../engine/types.js";
import type { ModelOutput } from "../../manifest/outputs/outputs.js";
import type { ColourRange, Rgb } from "../colour.js";
import type { Finding } from "../receipt/receipt.js";
import type { GroupGeometry, Interpreted, FindingScope } from "./finding.js";
import type { LegendRow, LegendScope } from "./legend-row.js";

export type OutputOfKind<Name extends EngineOutput["kind"]> = Extract<EngineOutput, { kind: Name }>;

/** In pixels and slices of the whole, from 0; an image of one frame has one slice. */
export interface Cuboid {
  slice: number;
  slices: number;
  top: number;
  rows: number;
  left: number;
  columns: number;
}

/** The sides of the image or volume in which a cuboid lies. */
export type Sides = Pick<Cuboid, "slices" | "rows" | "columns">;

/** A point of the source, in pixels from its upper left corner. */
export interface SourcePoint {
  x: number;
  y: number;
}

/** The part of an output that a panel of the picture shows, beside the drawing over it. */
export type PanelMarks = PanelLayers["marks"][number];

/**
 * `Output` is what the manifest says of it, `Result` what the engine gave. Only what a kind has is
 * there: an output that marks nothing has no marks, and one that holds no pixels is the same on
 * every grid.
 */
export interface ResultKind<Output extends ModelOutput, Result extends EngineOutput> {
  gives: EngineOutput["kind"];
  /** Whether presence is told by a mask or by a score; undefined if nothing is judged. */
  judgedBy?: "mask" | "score";
  /**
   * Findings and measurements of a frame or a volume, in the order of labels.
   * @param thresholds those of its labels in order, site.json applied; NaN for a label without one
   * @throws RadserveError output_invalid for what is not a number, or not as many as the manifest
   * says
   */
  interpret: (
    output: Output,
    thresholds: readonly number[],
    result: Result,
    part: FindingScope,
  ) => Partial<Interpreted>;
  /**
   * Findings about all frames of an image, made of those of each frame.
   * @param thresholds as for `interpret`
   * @param group how the frames lie, if they are the slices of a group, for which labels have
   * totals
   */
  overFrames?: (
    output: Output,
    thresholds: readonly number[],
    findings: readonly Finding[],
    group: GroupGeometry | undefined,
  ) => Partial<Interpreted>;
  /** Whether a finding of one of its labels is of this kind, told by what it holds. */
  isOf: (finding: Finding) => boolean;
  /** A row of the legend for the findings of a label, at least one. */
  row?: (
    label: string,
    findings: readonly Finding[],
    colour: Rgb | undefined,
    scope: LegendScope,
  ) => LegendRow;
  /** Rows for an output that has no findings. */
  fixedRows?: (output: Output, scope: LegendScope) => LegendRow[];
  /** The layers over a panel. */
  marks?: (result: Result, colours: readonly Rgb[], heat: ColourRange) => PanelMarks;
  /** Its layers cover other pixels than masks do. */
  drawnOver?: boolean;
  /** Whether those layers show anything. */
  isMarked?: (result: Result) => boolean;
  /** The middle of what is marked of each label; undefined where nothing is. */
  middles?: (result: Result) => (SourcePoint | undefined)[];
  /**
   * Lays the output for a part into the whole: outside it nothing is marked. Memory of the part is
   * given back.
   */
  laidBack?: (result: Result, box: Cuboid, whole: Sides) => EngineOutput;
  /**
   * The output of a model that did not run because there was nothing to look at: nothing is there.
   */
  nothing?: (output: Output, whole: Sides, isVolume: boolean) => EngineOutput;
  /** The part of a volume's output that one slice shows. */
  inSlice?: (result: Result, slice: number) => EngineOutput;
  /** Numbers of the result, for people who try a model. */
  summary: (result: Result) => string;
  /** Gives back memory that the addon lent. */
  release?: (result: Result) => void;
}
