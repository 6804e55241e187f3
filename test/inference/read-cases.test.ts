/**
 * What must not be read without a word: the stored cases and siblings of each, through the use case
 * to the objects.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { tagOf } from "../../src/images/dicom/dictionary.js";
import { infer } from "../../src/inference/infer-image.js";
import type { Answer } from "../../src/results/receipt/receipt.js";
import { imageInputs } from "../../src/manifest/manifest.js";
import { dicomFile, Typed, type Attributes } from "../support/dicom.js";
import { failure } from "../support/expect.js";
import { ADDON, needs, without } from "../support/needs.js";
import { radiograph } from "../support/radiograph.js";
import { engineWithFolder } from "../support/real-engine.js";
import { slice } from "../support/series.js";
import { loadTestModel } from "../support/test-models.js";

const CASES = "../shared/cases/dicom";
const padded = (vr: string, bytes: Buffer) =>
  new Typed(
    vr,
    bytes.length % 2 === 0 ? bytes : Buffer.concat([bytes, Buffer.from(vr === "UI" ? "\0" : " ")]),
  );
const latin1 = (vr: string, text: string) => padded(vr, Buffer.from(text, "latin1"));
const utf8 = (vr: string, text: string) => padded(vr, Buffer.from(text));
/** A second element of the attribute, behind the first. */
const doubled = (keyword: string, value: Typed): Attributes => ({
  [(tagOf(keyword) ?? 0).toString(16).padStart(8, "0")]: value,
});

t.setTimeout(300_000);
t.test("cases", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "cases");
  const model = await loadTestModel(engine, folder, "overlapping", (manifest) => {
    manifest.accepts = { formats: ["dicom"], dimensions: "2d_frames" };
    const [image] = imageInputs(manifest);
    if (image !== undefined)
      Object.assign(image, { values: { kind: "modality" }, monochrome1: "as_stored" });
  });
  let count = 0;
  const run = (source: Uint8Array | readonly Uint8Array[]): Promise<Answer> => {
    const inputPath = join(folder, `source-${++count}`);
    if (source instanceof Uint8Array) writeFileSync(inputPath, source);
    else {
      mkdirSync(inputPath);
      source.forEach((file, i) => writeFileSync(join(inputPath, `${i}.dcm`), file));
    }
    const task = {
      requestId: "test",
      inputPath,
      outputFolder: join(folder, `out-${count}`),
      cancelId: 1,
    };
    const roots = { input: undefined, output: undefined };
    return infer({ ...task, priority: "routine", roots }, { engine, models: [model] });
  };
  const codes = ({ warnings, models }: Answer) =>
    [...warnings, ...models.flatMap((each) => each.warnings)].map(({ code }) => code);
  const objectsOf = ({ models }: Answer) =>
    models
      .flatMap(({ outputs }) => outputs.filter(({ path }) => path.endsWith(".dcm")))
      .map(({ path }) => openFile(readFileSync(path)).attributes);
  const refused = async (
    t: Test,
    source: Uint8Array | readonly Uint8Array[],
    code: string,
    text: RegExp,
    name: string,
  ) => {
    const error = await failure(run(source));
    t.equal(error.code, code, name);
    t.match(error.message, text, name);
    t.notMatch(JSON.stringify(error.toObject()), /PATIENT-A|PATIENT-B|Doe/, "no patient data");
  };

  await t.test(
    "stored cases",
    { skip: without(existsSync(CASES) ? undefined : CASES) },
    async (t) => {
      const stored = (name: string) => readFileSync(join(CASES, `${name}.dcm`));
      const refusals: [string, string, RegExp][] = [
        ["ct-spacing-decimal-comma", "corrupt_image", /PixelSpacing .*comma/],
        ["pid_twice", "corrupt_image", /PatientID .*twice/],
        ["pix_two", "corrupt_image", /PixelData .*twice/],
        ["slope_hex", "corrupt_image", /RescaleSlope .*not a decimal number/],
        ["spacing_3", "corrupt_image", /PixelSpacing .*has 3 values/],
        ["spacing_1e200", "corrupt_image", /PixelSpacing .*physical/],
        ["float_nan", "decode_suspect", /not numbers/],
      ];
      for (const [name, code, text] of refusals) await refused(t, stored(name), code, text, name);
      const half = await run(stored("float_halfnan"));
      t.match(JSON.stringify(half), /2048 of the 4096 values of frame 1 are not numbers/);
      t.ok(
        codes(await run(stored("charset_proto"))).includes("character_set_unknown"),
        "charset_proto",
      );
      const spelled = await run(stored("ct-charset-iso-ir-192-spelled"));
      t.ok(codes(spelled).includes("character_set_spelling"));
      for (const object of objectsOf(spelled)) t.equal(object.string("PatientName"), "Müller^Zoë");
      t.equal(objectsOf(spelled).length, 3, "SR, SEG and SC");
      const undeclared = await run(stored("charset-utf8-undeclared"));
      t.ok(codes(undeclared).includes("identity_left_out"));
      for (const object of objectsOf(undeclared)) t.equal(object.string("PatientName"), undefined);
    },
  );

  await t.test("character sets as people misspell them", async (t) => {
    const named = (set: string | undefined, name: Typed) =>
      run(radiograph({ SpecificCharacterSet: set, PatientName: name }));
    const spellings: [string, Typed][] = [
      ...["ISO IR 192", "ISO-IR 192", "UTF-8", "utf8", "iso_ir 192", "ISO_IR192"].map(
        (set): [string, Typed] => [set, utf8("PN", "Müller^Zoë")],
      ),
      ...["ISO_IR_100", "ISO 2022 IR 100", "latin1", "Latin-1", "ISO-8859-1", "iso ir 100"].map(
        (set): [string, Typed] => [set, latin1("PN", "M\xfcller^Zo\xeb")],
      ),
    ];
    for (const [set, name] of spellings) {
      const answer = await named(set, name);
      t.ok(codes(answer).includes("character_set_spelling"), set);
      for (const object of objectsOf(answer))
        t.equal(object.string("PatientName"), "Müller^Zoë", set);
    }
    for (const set of ["ISO_IR 192", "ISO_IR 100"]) {
      const answer = await named(
        set,
        set.endsWith("192") ? utf8("PN", "Zoë^A") : latin1("PN", "Zo\xeb^A"),
      );
      t.notMatch(codes(answer).join(), /character_set|left_out/, `${set} as it should be`);
      for (const object of objectsOf(answer)) t.equal(object.string("PatientName"), "Zoë^A", set);
    }
    const none: [string | undefined, Typed, boolean][] = [
      [undefined, utf8("PN", "Zoë^A"), false],
      ["ISO_IR 6", latin1("PN", "Zo\xeb^A "), false],
      ["ISO_IR 100", latin1("PN", "Zo\x93^A "), false],
      ["constructor", latin1("PN", "Zo\xeb^A "), true],
      ["EBCDIC", latin1("PN", "Zo\xeb^A "), true],
    ];
    for (const [set, name, isUnknown] of none) {
      const answer = await named(set, name);
      t.ok(codes(answer).includes("identity_left_out"), `${set ?? "none"}: left out`);
      t.equal(
        codes(answer).includes("character_set_unknown"),
        isUnknown,
        `${set ?? "none"}: its name`,
      );
      for (const object of objectsOf(answer)) t.equal(object.string("PatientName"), undefined);
    }
  });

  await t.test("elements that stand twice", async (t) => {
    const twice = (keyword: string, first: string, second: Typed) =>
      radiograph({ [keyword]: first, ...doubled(keyword, second) });
    await refused(
      t,
      twice("PatientName", "Doe^A", latin1("PN", "Doe^B ")),
      "corrupt_image",
      /PatientName .*twice/,
      "a name",
    );
    await refused(
      t,
      twice("StudyInstanceUID", "1.2.3", latin1("UI", "1.2.5\0")),
      "corrupt_image",
      /StudyInstanceUID .*twice/,
      "a study",
    );
    const same = await run(twice("PatientID", "P1", latin1("LO", "P1")));
    t.ok(codes(same).includes("doubled_element"), "with one value");
    const other = dicomFile({
      attributes: {
        Rows: 2,
        Columns: 2,
        SamplesPerPixel: 1,
        PhotometricInterpretation: "MONOCHROME2",
        BitsAllocated: 8,
        BitsStored: 8,
        HighBit: 7,
        PixelRepresentation: 0,
        FloatPixelData: new Typed("OF", Buffer.alloc(16)),
      },
      pixels: Buffer.alloc(4),
    });
    await refused(
      t,
      other,
      "corrupt_image",
      /PixelData and FloatPixelData/,
      "two elements of pixels",
    );
  });

  await t.test("names that every object has", async (t) => {
    for (const name of ["constructor", "__proto__", "toString"]) {
      const answer = await run(radiograph({ Modality: latin1("CS", name) })).catch(
        (error: unknown) => error,
      );
      t.notMatch(String(answer), /TypeError|is not a function/, `${name} as Modality`);
      const syntax = dicomFile({ transferSyntax: name, pixels: Buffer.alloc(16) });
      await refused(t, syntax, "unsupported_transfer_syntax", /transfer syntax/, name);
    }
  });

  await t.test("two transfer syntaxes", async (t) => {
    const file = dicomFile({
      transferSyntax: "1.2.840.10008.1.2.1\\1.2.840.10008.1.2",
      pixels: Buffer.alloc(16),
    });
    await refused(t, file, "corrupt_image", /TransferSyntaxUID .*has 2 values/, "no one is meant");
  });

  await t.test("a series of two persons", async (t) => {
    const three = (last: Attributes, more: Attributes = {}) =>
      [0, 2, 4].map((z) =>
        slice({
          z,
          attributes: {
            PatientID: "1",
            PatientName: "Doe^A",
            PatientBirthDate: "19700101",
            ...more,
            ...(z === 4 ? last : {}),
          },
        }),
      );
    const persons: [string, Attributes][] = [
      ["PatientID", { PatientID: "2" }],
      ["PatientName", { PatientName: "Doe^B" }],
      ["PatientBirthDate", { PatientBirthDate: "19700102" }],
      ["PatientSex", { PatientSex: "F" }],
      ["IssuerOfPatientID", { IssuerOfPatientID: "B" }],
    ];
    for (const [keyword, last] of persons)
      await refused(
        t,
        three(last, { PatientSex: "M", IssuerOfPatientID: "A" }),
        "series_invalid",
        new RegExp(keyword),
        keyword,
      );
    const undeclared = [latin1("PN", "\xc4"), latin1("PN", "\xd6")] as const;
    await refused(
      t,
      three({ PatientName: undeclared[0] }, { PatientName: undeclared[1] }),
      "series_invalid",
      /PatientName/,
      "names that no set explains are not one",
    );
    const warned: [string, Attributes][] = [
      ["AccessionNumber", { AccessionNumber: "A2" }],
      ["PatientName", { PatientName: "DOE^A^^^" }],
      ["PatientSex", { PatientSex: "M" }],
    ];
    for (const [keyword, last] of warned) {
      const answer = await run(three(last, { AccessionNumber: "A1" }));
      t.match(JSON.stringify(answer.warnings), new RegExp(`identity_differs.*${keyword}`), keyword);
    }
    t.notOk(codes(await run(three({}))).includes("identity_differs"));
  });
});
