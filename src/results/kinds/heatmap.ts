/** A map over the picture, which finds nothing. */
import { release } from "../../addon/bytes.js";
import type { Heatmap } from "../../manifest/outputs/heatmap.js";
import { HEAT_COLOURS } from "../colour.js";
import type { OutputOfKind, ResultKind } from "./kind.js";
import { UNJUDGED } from "./legend-row.js";

export const heatmap: ResultKind<Heatmap, OutputOfKind<"heatmap">> = {
  gives: "heatmap",
  summary: ({ rows, columns }) => `${rows} x ${columns}`,
  drawnOver: true,
  interpret: () => ({}),
  isOf: () => false,
  fixedRows: ({ label: { label } }, { heat }) => [{ ...UNJUDGED, label, ramp: heat }],
  marks: ({ rows, columns, values }, _, heat) => ({
    masks: [],
    heat: [{ rows, columns, values, ...heat, colours: HEAT_COLOURS }],
  }),
  isMarked: () => true,
  release: ({ values }) => {
    release(values);
  },
};
