/**
 * The files that a result may have. They stand apart from the manifest, whose schema takes a moment
 * to be made: settings name them too.
 */
import { z } from "zod";

export const outputKindSchema = z.enum(["json", "png", "sr", "seg", "rtstruct", "sc"]);
export type OutputKind = z.infer<typeof outputKindSchema>;
export type DicomKind = Exclude<OutputKind, "json" | "png">;
export const isDicomKind = (kind: OutputKind): kind is DicomKind =>
  kind !== "json" && kind !== "png";
