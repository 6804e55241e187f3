/**
 * Content items of structured reports (PS3.3 C.17.3), each a function of its concept, its value and
 * its children.
 */
import { groupsOf } from "../../base/groups.js";
import type { Vector } from "../../images/vectors.js";
import type { Code } from "../../manifest/texts.js";
import type { SourcePoint } from "../kinds/kind.js";
import { codeItem } from "./codes.js";
import type { Dataset } from "./elements.js";
import { referenced, type SourceFrame } from "./source.js";
import { decimalString, freeText } from "./values.js";

export type Relationship =
  | "CONTAINS"
  | "HAS CONCEPT MOD"
  | "HAS OBS CONTEXT"
  | "SELECTED FROM"
  | "INFERRED FROM"
  | "HAS PROPERTIES";

function item(
  relationship: Relationship | undefined,
  type: string,
  name: Code | undefined,
  value: Dataset,
  children: readonly Dataset[] = [],
): Dataset {
  return {
    ...(relationship === undefined ? {} : { RelationshipType: relationship }),
    ValueType: type,
    ...(name === undefined ? {} : { ConceptNameCodeSequence: [codeItem(name)] }),
    ...value,
    ...(children.length === 0 ? {} : { ContentSequence: children }),
  };
}

/** @param template of DCMR; undefined if the container has none of its own */
export function container(
  relationship: Relationship | undefined,
  name: Code,
  template: string | undefined,
  children: readonly Dataset[],
): Dataset {
  const from = { MappingResource: "DCMR", TemplateIdentifier: template ?? "" };
  return item(
    relationship,
    "CONTAINER",
    name,
    {
      ContinuityOfContent: "SEPARATE",
      ...(template === undefined ? {} : { ContentTemplateSequence: [from] }),
    },
    children,
  );
}

export function coded(
  relationship: Relationship,
  name: Code,
  value: Code,
  children: readonly Dataset[] = [],
): Dataset {
  return item(relationship, "CODE", name, { ConceptCodeSequence: [codeItem(value)] }, children);
}

export function text(relationship: Relationship, name: Code, value: string): Dataset {
  return item(relationship, "TEXT", name, { TextValue: freeText(value) });
}

export function uidRef(relationship: Relationship, name: Code, uid: string): Dataset {
  return item(relationship, "UIDREF", name, { UID: uid });
}

/**
 * A number with its unit; if the decimal string is not exact, the double stands beside it (PS3.3
 * C.18.1).
 */
export function num(
  name: Code,
  value: number,
  unit: Code,
  relationship: Relationship = "CONTAINS",
  children: readonly Dataset[] = [],
): Dataset {
  const decimal = decimalString(value);
  const measured = {
    MeasuredValueSequence: [
      {
        NumericValue: decimal,
        ...(Number(decimal) === value ? {} : { FloatingPointValue: value }),
        MeasurementUnitsCodeSequence: [codeItem(unit)],
      },
    ],
  };
  return item(relationship, "NUM", name, measured, children);
}

/** Frames that one item names: an Integer String has room for no more (PS3.5 section 7.1.2). */
const MOST_FRAMES = 5000;

/** Content items for each object that the frames belong to. */
export function images(
  relationship: Relationship,
  name: Code | undefined,
  frames: readonly SourceFrame[],
): Dataset[] {
  return [...groupsOf(frames, MOST_FRAMES)].flatMap((some) =>
    referenced(some).map((reference) =>
      item(relationship, "IMAGE", name, { ReferencedSOPSequence: [reference] }),
    ),
  );
}

/** A segment, or its frames, of a segmentation. */
export function segmentReference(name: Code, reference: Dataset): Dataset {
  return item("CONTAINS", "IMAGE", name, { ReferencedSOPSequence: [reference] });
}

/**
 * A point, or a line through several, in a frame's pixels: the first one's upper left corner is 0\0
 * and its middle 0.5\0.5 (PS3.3 C.18.6). A line that goes back to its first point is closed.
 * @param isTile the frame is a part of a larger image, whose pixels could be meant
 */
export function spatialCoordinates(
  relationship: Relationship,
  name: Code,
  points: readonly SourcePoint[],
  frame: SourceFrame,
  isTile: boolean,
): Dataset {
  const graphic = {
    GraphicType: points.length > 1 ? "POLYLINE" : "POINT",
    GraphicData: points.flatMap(({ x, y }) => [x, y]),
    ...(isTile ? { PixelOriginInterpretation: "FRAME" } : {}),
  };
  return item(relationship, "SCOORD", name, graphic, images("SELECTED FROM", undefined, [frame]));
}

/**
 * The surface of a body as flat polygons, one item each, in the patient's millimetres (PS3.3
 * C.18.9).
 * @param frameOfReference of the positions
 */
export function volumeSurface(
  name: Code,
  polygons: readonly (readonly Readonly<Vector>[])[],
  frameOfReference: Dataset[string],
): Dataset[] {
  return polygons.map((polygon) =>
    item("CONTAINS", "SCOORD3D", name, {
      GraphicType: "POLYGON",
      GraphicData: [...polygon, ...polygon.slice(0, 1)].flat(),
      ReferencedFrameOfReferenceUID: frameOfReference,
    }),
  );
}
