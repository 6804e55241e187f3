/**
 * A volume of more planes than any scanner makes: nothing on the way to it is bounded by the stack.
 */
import t from "tap";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import { readImage } from "../../../src/images/read-image.js";
import { stack } from "../../support/stack.js";

t.test("more planes than a function takes arguments are one volume", async (t) => {
  const { frames, geometry } = volumeOf(await readImage(stack(130_000)));
  t.equal(frames.length, 130_000);
  t.match(geometry, { sliceSpacing: 1 });
});
