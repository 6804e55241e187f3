/** The table of the kinds of DICOM objects, in the order in which receipts list them. */
import type { DicomKind, OutputKind } from "../../../manifest/manifest.js";
import type { ObjectKind } from "./kind.js";
import { rtstruct } from "./rtstruct.js";
import { sc } from "./sc.js";
import { seg } from "./seg.js";
import { sr } from "./sr.js";

export const OBJECTS = { seg, rtstruct, sc, sr } satisfies Record<DicomKind, ObjectKind>;

export const isOfMasks = (kind: OutputKind): boolean =>
  kind !== "json" && kind !== "png" && OBJECTS[kind].ofMasks;
