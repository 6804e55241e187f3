/** JPEG-LS is decoded by the CharLS that has the fix of GHSA-mqrg-gfc8-73ff, and by no other. */
import codecs from "dcmjs-codecs";
import t from "tap";
import { readImage } from "../../../src/images/read-image.js";
import { attributesOf, compress, dicomFile, picture, SYNTAXES } from "../../support/dicom.js";

t.test("the CharLS of dcmjs-codecs decodes nothing", async (t) => {
  const layout = { rows: 32, columns: 32, bitsAllocated: 16, bitsStored: 12 };
  const raw = picture({ ...layout, samples: 1 }, 1);
  const fragments = [await compress("jpeg-ls", raw), await compress("jpeg-ls", raw, 2)];
  const { NativeCodecs } = codecs;
  let asked = 0;
  const decodeJpegLs = NativeCodecs.decodeJpegLs.bind(NativeCodecs);
  t.teardown(() => Object.assign(NativeCodecs, { decodeJpegLs }));
  Object.assign(NativeCodecs, {
    decodeJpegLs: () => {
      asked += 1;
      throw new Error("It has no fix");
    },
  });
  for (const fragment of fragments) {
    const image = await readImage(
      dicomFile({
        transferSyntax: SYNTAXES["jpeg-ls"],
        attributes: attributesOf(raw),
        pixels: { fragments: [fragment] },
      }),
    );
    t.equal((await image.frame(0)).length, raw.data.length);
  }
  t.equal(asked, 0);
  // The library is the one that the product would ask
  const image = await readImage(
    dicomFile({
      transferSyntax: SYNTAXES["jpeg-lossless"],
      attributes: attributesOf(raw),
      pixels: { fragments: [await compress("jpeg-lossless", raw)] },
    }),
  );
  const decodeJpeg = NativeCodecs.decodeJpeg.bind(NativeCodecs);
  t.teardown(() => Object.assign(NativeCodecs, { decodeJpeg }));
  let asIs = 0;
  Object.assign(NativeCodecs, {
    decodeJpeg: (...args: Parameters<typeof decodeJpeg>) => {
      asIs += 1;
      return decodeJpeg(...args);
    },
  });
  t.same(Buffer.from(await image.frame(0)), Buffer.from(raw.data));
  t.equal(asIs, 1);
});
