/**
 * Real World Value Mapping (PS3.3 C.7.6.16.2.11): what stored values are beside their modality
 * transform.
 */
import { cachedWith } from "../../base/cached.js";
import type { RealWorldMapping, Warning } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";
import { functionalGroups } from "./functional-groups.js";

/**
 * The mappings of a frame (from 0): those of its functional group, else those that all frames
 * share, else those at the top of the data set. Items without a range are left out, because it is
 * unknown which values they map.
 */
export function readRealWorld(
  attributes: DataSetAttributes,
  frame: number,
  warnings: Warning[],
): readonly RealWorldMapping[] {
  const keyword = "RealWorldValueMappingSequence";
  return mappingsOf(
    functionalGroups(attributes, frame, keyword, warnings) ?? attributes.sequence(keyword) ?? NONE,
  );
}

const NONE: readonly DataSetAttributes[] = [];

/** Each frame asks for what all share, and there may be very many. */
const mappingsOf = cachedWith((items: readonly DataSetAttributes[]) =>
  items.flatMap((item) => mappingOf(item) ?? []),
);

function mappingOf(item: DataSetAttributes): RealWorldMapping | undefined {
  const first =
    item.number("DoubleFloatRealWorldValueFirstValueMapped") ??
    item.number("RealWorldValueFirstValueMapped");
  const last =
    item.number("DoubleFloatRealWorldValueLastValueMapped") ??
    item.number("RealWorldValueLastValueMapped");
  if (first === undefined || last === undefined) return undefined;
  const slope = item.number("RealWorldValueSlope");
  const intercept = item.number("RealWorldValueIntercept");
  const usable = slope !== undefined && intercept !== undefined && slope !== 0;
  return {
    units: item.sequence("MeasurementUnitsCodeSequence")?.[0]?.string("CodeValue"),
    label: item.string("LUTLabel"),
    first: Math.min(first, last),
    last: Math.max(first, last),
    linear:
      usable && Number.isFinite(slope) && Number.isFinite(intercept)
        ? { slope, intercept }
        : undefined,
  };
}
