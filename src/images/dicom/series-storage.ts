/**
 * Slices that are stored with different bits or signs, kept as one format that holds the values of
 * all.
 */
import { errors } from "../../base/errors.js";
import type { Image, Interpretation, PixelFormat, TransformStep, Warning } from "../image.js";
import { commonFormat, isStoredAlike, storedAs } from "../stored-values.js";
import { seriesInvalid } from "./series-fault.js";

type StoredSlice = Pick<Image, "format">;

/** The format in which the values of all slices are kept. */
export function storageOf(files: readonly StoredSlice[]): PixelFormat {
  const format = commonFormat(files.map((file) => file.format));
  if (format !== undefined) return format;
  throw seriesInvalid(
    "mixed_format",
    "Expected slices that are stored alike, or grey whole numbers of at most 32 bits together; found several forms of colours, of real numbers, or of more bits. Leave out files that are not slices of this volume.",
  );
}

/**
 * The warning about slices that are stored in another format than they are kept in; undefined if
 * there are none.
 */
export function mixedStorage(
  files: readonly StoredSlice[],
  kept: PixelFormat,
): { step: TransformStep; warning: Warning } | undefined {
  if (files.every(({ format }) => isStoredAlike(format, kept))) return undefined;
  const { bitsStored, signed } = kept;
  const message =
    "The slices are stored with different bits or signs; each was read by its own attributes, and all are kept as " +
    `${signed ? "signed" : "unsigned"} numbers of ${bitsStored} bits.`;
  return {
    step: { step: "store_alike", bits_stored: bitsStored, signed },
    warning: { code: "mixed_storage", message },
  };
}

/** The bits of a slice's own file; undefined where they are those that all are kept in. */
export function ownBitsOf(
  { format: { bitsStored, signed } }: StoredSlice,
  kept: PixelFormat,
): Interpretation["ownBits"] {
  const isKept = bitsStored === kept.bitsStored && signed === kept.signed;
  return isKept ? undefined : { bitsStored, signed };
}

/**
 * The values of a frame in the format in which they are kept. Throws decode_suspect where the
 * file's sign is doubtful.
 */
export function storedAlike(
  data: Uint8Array,
  { format, warnings }: StoredSlice & Pick<Image, "warnings">,
  kept: PixelFormat,
): Uint8Array {
  if (isStoredAlike(format, kept)) return data;
  if (!format.signed && warnings.some(({ code }) => code === "sign_mismatch"))
    throw errors.decode_suspect(
      "Expected the stored values of a slice as PixelRepresentation says, unsigned; they are signed, as those of other slices are. Correct the attribute at the source.",
      { reason: "sign_mismatch" },
    );
  return storedAs(data, format, kept);
}
