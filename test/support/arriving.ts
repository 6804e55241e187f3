/** Objects on their way into a spool. */
import { Reception } from "../../src/features/gateway/receive/reception.js";
import type { Arriving, SeriesPlace, Spool } from "../../src/features/gateway/receive/spool.js";
import { CT, CT_SLICE, dicomFile, EXPLICIT, imageAttributes, type Attributes } from "./dicom.js";

const ROOT = "1.2.826.0.1.3680043.8.498";

/**
 * The object with a number, of one study and series.
 * @param bytes of its pixels
 */
export function arrivingOf(
  n: number,
  bytes: number,
  { cut = false, attributes = {} }: { cut?: boolean; attributes?: Attributes } = {},
): Arriving {
  const sopInstanceUid = `${ROOT}.1.${n}`;
  const columns = 100;
  const file = dicomFile({
    transferSyntax: EXPLICIT,
    preamble: false,
    meta: false,
    pixels: Buffer.alloc(bytes, n),
    attributes: imageAttributes({
      ...CT_SLICE,
      SOPClassUID: CT,
      SOPInstanceUID: sopInstanceUid,
      StudyInstanceUID: `${ROOT}.2`,
      SeriesInstanceUID: `${ROOT}.3`,
      Rows: bytes / 2 / columns,
      Columns: columns,
      BitsAllocated: 16,
      BitsStored: 16,
      HighBit: 15,
      ...attributes,
    }),
  });
  async function* dataSet() {
    const end = cut ? file.length - bytes / 2 : file.length;
    for (let at = 0; at < end; at += 65_536)
      yield await Promise.resolve(file.subarray(at, Math.min(end, at + 65_536)));
  }
  return { sopClassUid: CT, sopInstanceUid, transferSyntax: EXPLICIT, dataSet: dataSet() };
}

/** How series come into a spool. */
export const receptionIn = (
  folder: string,
  spool: Pick<Spool, "within">,
  interrupted: (place: SeriesPlace) => void = () => undefined,
  closed: (place: SeriesPlace) => void = () => undefined,
): Reception =>
  new Reception({
    folder,
    within: (names, work) => spool.within(names, work),
    node: Promise.resolve("node"),
    interrupted,
    closed,
  });
