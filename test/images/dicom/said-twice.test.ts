/** What a file says twice, or says half: taken as one reading, with a warning that names it. */
import t from "tap";
import type { Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import { patientAndStudy } from "../../../src/results/dicom/source.js";
import { edgesOf } from "../../../src/results/findings/edges.js";
import { dicomFile, imageAttributes, Typed, type Attributes } from "../../support/dicom.js";
import { failure, warned } from "../../support/expect.js";
import { folderOf, multiFrame, readFolder, slice } from "../../support/series.js";

const read = (attributes: Attributes, bytes = 16) =>
  readImage(dicomFile({ attributes: imageAttributes(attributes), pixels: Buffer.alloc(bytes) }));
const words = (...values: number[]) => new Typed("US", values);
const modality = (image: Image) => image.interpretation(0).modality;

t.test("values that come from a table and from a rescale", async (t) => {
  const table = (...entries: number[]): Attributes => ({
    LUTDescriptor: words(4, 0, 16),
    LUTData: words(...entries),
  });
  const rescale = { RescaleSlope: "2", RescaleIntercept: "-1000" };
  const both = await read({ ModalityLUTSequence: [table(0, 10, 20, 300)], ...rescale });
  t.match(modality(both), { kind: "lut" });
  t.strictSame(warned(both), ["rescale_ignored"]);
  const idle = { RescaleSlope: "1", RescaleIntercept: "0" };
  t.strictSame(warned(await read({ ModalityLUTSequence: [table(0, 10, 20, 300)], ...idle })), []);
  const two = await read({ ModalityLUTSequence: [table(0, 10, 20, 300), table(0, 10, 20, 301)] });
  t.match(modality(two), { lut: { entries: [0, 10, 20, 300] } });
  t.strictSame(warned(two), ["several_items"]);
  t.strictSame(
    warned(await read({ ModalityLUTSequence: [table(0, 10, 20, 300), table(0, 10, 20, 300)] })),
    [],
    "the same twice",
  );
  const packed = await read({ ModalityLUTSequence: [table(0x0a00, 0x1e14)] });
  t.match(modality(packed), { lut: { entries: [0, 10, 20, 30] } }, "two to a word");
  t.match(await failure(read({ ModalityLUTSequence: [table(0, 10, 20)] })), {
    code: "corrupt_image",
    message: /LUTData has 3 words where its descriptor says 4 entries/,
  });
});

t.test("windows, padding, palettes and planes that are said half", async (t) => {
  const window = (WindowCenter: string | undefined, WindowWidth: string) =>
    read({ WindowCenter, WindowWidth });
  const more = await window("40", "400\\1500");
  t.match(more.interpretation(0).voi, [{ center: 40, width: 400 }]);
  t.strictSame(warned(more), ["window_ignored"]);
  t.strictSame(warned(await window(undefined, "400")), ["window_ignored"]);
  const limit = await read({ PixelPaddingRangeLimit: words(5) });
  t.equal(limit.interpretation(0).padding, undefined);
  t.match(limit.warnings, [{ code: "missing_attribute", message: /PixelPaddingValue is absent/ }]);
  const coloured = await read({ RedPaletteColorLookupTableDescriptor: words(56, 200, 8) });
  t.match(coloured.warnings, [{ code: "palette_ignored", message: /from 200 on/ }]);
  const colour = {
    SamplesPerPixel: 3,
    PhotometricInterpretation: "RGB",
    PlanarConfiguration: undefined,
  };
  const planes = await read(colour, 48);
  t.match(planes.warnings, [
    { code: "missing_attribute", message: /^PlanarConfiguration is absent/ },
  ]);
  t.strictSame(warned(await read({ ...colour, PlanarConfiguration: 0 }, 48)), []);
  t.match(await failure(read({ ...colour, PlanarConfiguration: 0, PixelRepresentation: 1 }, 48)), {
    details: { attribute: "PixelRepresentation" },
  });
  const half = { ...colour, PhotometricInterpretation: "YBR_FULL_422", PlanarConfiguration: 1 };
  t.match(await failure(read(half, 32)), {
    code: "corrupt_image",
    message: /and PlanarConfiguration 0/,
  });
});

t.test("the shape of pixels", async (t) => {
  const shape = async (attributes: Attributes) => {
    const image = await read(attributes);
    return [image.pixelAspect(0), ...warned(image)];
  };
  t.strictSame(await shape({ PixelAspectRatio: "2\\1" }), [2]);
  t.strictSame(await shape({ PixelAspectRatio: "2\\1", PixelSpacing: "0.4\\0.2" }), [2]);
  t.strictSame(await shape({ PixelAspectRatio: "2\\1", PixelSpacing: "0.2\\0.2" }), [
    1,
    "aspect_mismatch",
  ]);
  t.strictSame(await shape({ PixelAspectRatio: "0\\0" }), [1, "value_ignored"]);
  t.match(await failure(read({ PixelAspectRatio: "1\\0" })), {
    code: "corrupt_image",
    details: { attribute: "PixelAspectRatio" },
  });
  const projected = await read({
    Modality: "DX",
    PixelSpacing: "0.2\\0.2",
    ImagerPixelSpacing: "0.20000001\\0.2",
  });
  t.match(
    projected.spacing(0),
    { source: "ImagerPixelSpacing", patient: false },
    "the same but for rounding",
  );
});

t.test("sides of the patient", async (t) => {
  const axial = {
    ImagePositionPatient: "0\\0\\0",
    ImageOrientationPatient: "1\\0\\0\\0\\0.8\\0.6",
  };
  const said = async (PatientOrientation: string, plane: Attributes = {}) => {
    const image = await read({ PatientOrientation, ...plane });
    return [
      edgesOf(image.plane(0), image.attributes?.strings("PatientOrientation"))?.right,
      ...warned(image),
    ];
  };
  t.strictSame(await said("L\\P"), ["L"]);
  t.strictSame(await said("L\\PH", axial), ["L"]);
  t.strictSame(await said("R\\P", axial), ["L", "orientation_mismatch"], "turned by half");
  t.strictSame(await said("L\\A", axial), ["L", "orientation_mismatch"]);
  t.strictSame(await said("P\\L", axial), ["L", "orientation_mismatch"], "rows for columns");
  t.strictSame(await said("L\\R"), [undefined, "orientation_mismatch"], "one axis for both");
  t.strictSame(await said("LE\\V"), [undefined], "an animal's");
});

t.test("functional groups", async (t) => {
  const top = await readImage(
    multiFrame([0, 2, 4], {
      PixelSpacing: "3\\3",
      ImagePositionPatient: "9\\9\\9",
      RescaleSlope: "5",
    }),
  );
  t.match([top.spacing(0), top.plane(1)], [{ row: 0.5, column: 0.8 }, { position: [0, 0, 2] }]);
  t.match(
    top.warnings.map(({ code, message }) => `${code} ${message.split(" ")[0]!}`).sort(),
    ["functional_group_twice ImagePositionPatient", "functional_group_twice PixelSpacing"],
    "a rescale that no group has is that of all frames",
  );
  t.equal(top.interpretation(0).modality.kind, "rescale");
  const same = await readImage(multiFrame([0, 2, 4], { PixelSpacing: "0.50\\0.80" }));
  t.strictSame(warned(same), []);
  const place = (z: number) => ({ ImagePositionPatient: `0\\0\\${z}` });
  const groups = (...items: Attributes[]) => ({ PerFrameFunctionalGroupsSequence: items });
  const several = await readImage(
    multiFrame(
      [0, 2],
      groups(
        { PlanePositionSequence: [place(0), place(7)] },
        { PlanePositionSequence: [place(2), place(2)] },
      ),
    ),
  );
  several.plane(1);
  t.strictSame(warned(several), ["several_items"]);
  const extra = await readImage(
    multiFrame([0], groups(...[0, 2].map((z) => ({ PlanePositionSequence: [place(z)] })))),
  );
  t.match(extra.warnings, [
    { code: "extra_frames", message: /describes 2 frames and NumberOfFrames says 1/ },
  ]);
});

t.test("slices of one series", async (t) => {
  const series = (...attributes: Attributes[]) =>
    readFolder(
      t,
      folderOf(
        t,
        attributes.map((more, i) => slice({ z: 2 * i, attributes: more })),
      ),
    );
  for (const [keyword, one, other] of [
    ["EchoTime", "10", "80"],
    ["DiffusionBValue", new Typed("FD", 0), new Typed("FD", 1000)],
    ["ConvolutionKernel", "B30f", "B70f"],
    ["Laterality", "L", "R"],
    ["PatientAge", "045Y", "046Y"],
  ] as const) {
    const mixed = await series({ [keyword]: one }, { [keyword]: other }, { [keyword]: one });
    t.match(mixed.warnings, [{ code: "mixed_acquisition", message: new RegExp(keyword) }], keyword);
  }
  t.strictSame(
    warned(await series({ EchoTime: "10" }, { EchoTime: "10.0" }, { EchoTime: "1e1" })),
    [],
  );
  t.match(await failure(series({}, { Modality: "OT" }, {})), {
    details: { reason: "mixed_format", modalities: ["CT", "OT"] },
  });
  t.match(await failure(series({}, { SOPInstanceUID: "1.2.9" }, { SOPInstanceUID: "1.2.9" })), {
    code: "series_invalid",
    details: { reason: "duplicate_instance", duplicates: 1 },
  });
});

t.test("character sets that stand alone, beside others", async (t) => {
  const nameOf = async (SpecificCharacterSet: string, name: string) => {
    const image = await read({ SpecificCharacterSet, PatientName: Buffer.from(name, "hex") });
    return [patientAndStudy(image.attributes!, "1.2.3")["PatientName"], ...warned(image)];
  };
  const [utf8, latin, chinese] = ["4dc3bc6c6c6572", "4dfc6c6c6572", "cdf55ed0a1b6ab3d"];
  const spelling = "character_set_spelling";
  t.strictSame(await nameOf("\\ISO_IR 192", `${utf8}20`), [["Müller"], spelling]);
  t.strictSame(await nameOf("ISO 2022 IR 100\\ISO_IR 192", `${utf8}20`), [["Müller"], spelling]);
  t.strictSame(await nameOf("ISO_IR 192\\ISO 2022 IR 87", `${utf8}20`), [["Müller"], spelling]);
  t.strictSame(
    await nameOf("ISO_IR 192\\ISO 2022 IR 87", `${latin}2020`),
    ["", spelling],
    "never guessed",
  );
  t.strictSame(await nameOf("\\GB18030", chinese), [["王^小东="], spelling]);
  t.strictSame(await nameOf("ISO 2022 IR 100\\GB18030", chinese), ["", "character_set_unknown"]);
});
