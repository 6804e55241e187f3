/**
 * Transfer syntaxes (PS3.5 annex A, PS3.6 table A-1): how the data set and the pixels are encoded.
 */
import { errors } from "../../base/errors.js";
import { ownValue } from "../../base/own-value.js";
import type { Codestream } from "./codestream.js";
import type { Encoding } from "./headers.js";

/** The codec of the frames; `encapsulated` picks it by the bytes. */
export type PixelCoding = "native" | "rle" | "deflated-frames" | "codec";

export interface TransferSyntax extends Encoding {
  uid: string;
  name: string;
  coding: PixelCoding;
  codestream?: Codestream;
  deflated: boolean;
}

const BASE = "1.2.840.10008.1.2";
const J = `${BASE}.4`;

export const IMPLICIT_VR_LITTLE_ENDIAN = BASE;
export const EXPLICIT_VR_LITTLE_ENDIAN = `${BASE}.1`;
export const ENCAPSULATED_UNCOMPRESSED = `${BASE}.1.98`;
export const DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN = `${BASE}.1.99`;
export const EXPLICIT_VR_BIG_ENDIAN = `${BASE}.2`;
export const RLE_LOSSLESS = `${BASE}.5`;

interface SyntaxRow {
  name: string;
  coding: PixelCoding;
  codestream?: Codestream;
}

const codec = (codestream: Codestream, name: string): SyntaxRow => ({
  name,
  coding: "codec",
  codestream,
});
const native = (name: string): SyntaxRow => ({ name, coding: "native" });

const SUPPORTED: Readonly<Record<string, SyntaxRow>> = {
  [IMPLICIT_VR_LITTLE_ENDIAN]: native("Implicit VR Little Endian"),
  [EXPLICIT_VR_LITTLE_ENDIAN]: native("Explicit VR Little Endian"),
  [ENCAPSULATED_UNCOMPRESSED]: native("Encapsulated Uncompressed Explicit VR Little Endian"),
  [DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN]: native("Deflated Explicit VR Little Endian"),
  [EXPLICIT_VR_BIG_ENDIAN]: native("Explicit VR Big Endian"),
  [RLE_LOSSLESS]: { name: "RLE Lossless", coding: "rle" },
  [`${BASE}.8.1`]: { name: "Deflated Image Frame Compression", coding: "deflated-frames" },
  [`${J}.50`]: codec("jpeg", "JPEG Baseline (Process 1)"),
  [`${J}.51`]: codec("jpeg", "JPEG Extended (Process 2 and 4)"),
  [`${J}.52`]: codec("jpeg", "JPEG Extended (Process 3 and 5) (Retired)"),
  [`${J}.53`]: codec("jpeg", "JPEG Spectral Selection (Process 6 and 8) (Retired)"),
  [`${J}.54`]: codec("jpeg", "JPEG Spectral Selection (Process 7 and 9) (Retired)"),
  [`${J}.55`]: codec("jpeg", "JPEG Full Progression (Process 10 and 12) (Retired)"),
  [`${J}.56`]: codec("jpeg", "JPEG Full Progression (Process 11 and 13) (Retired)"),
  [`${J}.57`]: codec("jpeg", "JPEG Lossless (Process 14)"),
  [`${J}.58`]: codec("jpeg", "JPEG Lossless (Process 15) (Retired)"),
  [`${J}.70`]: codec(
    "jpeg",
    "JPEG Lossless, First-Order Prediction (Process 14, Selection Value 1)",
  ),
  [`${J}.80`]: codec("jpeg-ls", "JPEG-LS Lossless"),
  [`${J}.81`]: codec("jpeg-ls", "JPEG-LS Lossy (Near-Lossless)"),
  [`${J}.90`]: codec("jpeg2000", "JPEG 2000 (Lossless Only)"),
  [`${J}.91`]: codec("jpeg2000", "JPEG 2000"),
  [`${J}.92`]: codec("jpeg2000", "JPEG 2000 Part 2 Multi-component (Lossless Only)"),
  [`${J}.93`]: codec("jpeg2000", "JPEG 2000 Part 2 Multi-component"),
  [`${J}.201`]: codec("htj2k", "High-Throughput JPEG 2000 (Lossless Only)"),
  [`${J}.202`]: codec("htj2k", "High-Throughput JPEG 2000 with RPCL Options (Lossless Only)"),
  [`${J}.203`]: codec("htj2k", "High-Throughput JPEG 2000"),
  [`${J}.110`]: codec("jpeg-xl", "JPEG XL Lossless"),
  [`${J}.111`]: codec("jpeg-xl", "JPEG XL JPEG Recompression"),
  [`${J}.112`]: codec("jpeg-xl", "JPEG XL"),
};

/** Named so that the refusal can say what the file is. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  [`${J}.94`]: "JPIP Referenced",
  [`${J}.95`]: "JPIP Referenced Deflate",
  [`${J}.204`]: "JPIP HTJ2K Referenced",
  [`${J}.205`]: "JPIP HTJ2K Referenced Deflate",
  [`${J}.100`]: "MPEG2 Main Profile / Main Level",
  [`${J}.101`]: "MPEG2 Main Profile / High Level",
  [`${J}.102`]: "MPEG-4 AVC/H.264 High Profile / Level 4.1",
  [`${J}.103`]: "MPEG-4 AVC/H.264 BD-compatible High Profile / Level 4.1",
  [`${J}.104`]: "MPEG-4 AVC/H.264 High Profile / Level 4.2 for 2D Video",
  [`${J}.105`]: "MPEG-4 AVC/H.264 High Profile / Level 4.2 for 3D Video",
  [`${J}.106`]: "MPEG-4 AVC/H.264 Stereo High Profile / Level 4.2",
  [`${J}.107`]: "HEVC/H.265 Main Profile / Level 5.1",
  [`${J}.108`]: "HEVC/H.265 Main 10 Profile / Level 5.1",
  [`${BASE}.7.1`]: "SMPTE ST 2110-20 Uncompressed Progressive Active Video",
  [`${BASE}.7.2`]: "SMPTE ST 2110-20 Uncompressed Interlaced Active Video",
  [`${BASE}.7.3`]: "SMPTE ST 2110-30 PCM Digital Audio",
  [`${BASE}.6.1`]: "RFC 2557 MIME encapsulation",
  [`${BASE}.6.2`]: "XML Encoding",
  "1.2.840.113619.5.2": "GE Private Implicit VR Big Endian",
  "1.2.840.10008.1.20": "Papyrus 3 Implicit VR Little Endian",
};

/** Transfer syntaxes whose pixels can be decoded, by UID. */
export const decodable = (): { uid: string; name: string }[] =>
  Object.entries(SUPPORTED).map(([uid, { name }]) => ({ uid, name }));

/**
 * Looks a UID up. Throws unsupported_transfer_syntax, naming it, if its pixels cannot be decoded.
 */
export function transferSyntax(uid: string): TransferSyntax {
  const row = ownValue(SUPPORTED, uid);
  if (row === undefined) {
    const fragmentable = /\.10[0-6]\.1$/.test(uid);
    const name = ownValue(UNSUPPORTED, fragmentable ? uid.slice(0, -2) : uid);
    const known =
      name === undefined ? uid : `${fragmentable ? "Fragmentable " : ""}${name} (${uid})`;
    throw errors.unsupported_transfer_syntax(
      `The transfer syntax ${known} cannot be decoded. ` +
        "Convert the object to Explicit VR Little Endian or to a still-image compression.",
      { transfer_syntax_uid: uid },
    );
  }
  return {
    ...row,
    uid,
    explicit: uid !== IMPLICIT_VR_LITTLE_ENDIAN,
    littleEndian: uid !== EXPLICIT_VR_BIG_ENDIAN,
    deflated: uid === DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN,
  };
}
