/** Images of very many frames that are read at once. */
import {
  CT_SLICE,
  dicomFile,
  encodeAttributes,
  encodeElement,
  imageAttributes,
  Typed,
  type Attributes,
} from "./dicom.js";

const explicit = { explicit: true, little: true };

/** An image whose frames are one pixel each, one behind the other. */
export function stack(frames: number): Buffer {
  const shared: Attributes = {
    FrameAnatomySequence: [{ FrameLaterality: "L" }],
    PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
    PixelMeasuresSequence: [{ PixelSpacing: "1\\1", SliceThickness: "1" }],
  };
  // One item's bytes for each frame, with its own number
  const own = encodeAttributes(
    { PlanePositionSequence: [{ ImagePositionPatient: "0\\0\\######" }] },
    explicit,
  );
  const head = encodeElement(
    0xfffee000,
    "",
    Buffer.alloc(0),
    { explicit: false, little: true },
    own.length,
  );
  const item = Buffer.concat([head, own]);
  const items = Buffer.alloc(frames * item.length, item);
  for (let frame = 0; frame < frames; frame++)
    items.write(
      String(frame).padStart(6, "0"),
      frame * item.length + item.indexOf("######"),
      "ascii",
    );
  return dicomFile({
    attributes: {
      ...imageAttributes({ ...CT_SLICE, Rows: 1, Columns: 1, NumberOfFrames: String(frames) }),
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.2.1",
      SharedFunctionalGroupsSequence: new Typed("SQ", [shared]),
    },
    trailing: Buffer.concat([
      encodeElement(0x52009230, "SQ", items, explicit),
      encodeElement(0x7fe00010, "OW", Buffer.alloc(2 * frames), explicit),
    ]),
  });
}
