/**
 * Standardised uptake values by body weight, whatever zone, day and form the times of a file have.
 */
import { readFileSync } from "node:fs";
import t from "tap";
import { readImage } from "../../../src/images/read-image.js";
import type { Image } from "../../../src/images/image.js";
import { modalityValue, valueReader } from "../../../src/images/stored-values.js";
import { dicomFile, imageAttributes, type Attributes } from "../../support/dicom.js";
import { needs } from "../../support/needs.js";
import { folderOf, readFolder, slice } from "../../support/series.js";

const CASES = "../shared/cases/dicom";
const PET = "1.2.840.10008.5.1.4.1.1.128";
const HOUR = 3600;
const F18 = 6586.2;
const ZR89 = 282_276;

const suvOf = (image: Image, frame = 0) => image.interpretation(frame).suv;

/** The seconds of decay that a factor was made with: 70 kg and 350 MBq; or why there is none. */
function decayOf(image: Image, halfLife: number, frame = 0): number | string {
  const suv = suvOf(image, frame);
  if (suv === undefined) return "no positron emission";
  return "missing" in suv
    ? suv.missing
    : Math.round(halfLife * Math.log2((suv.factor * 350e6) / 70_000));
}

const pet = (more: Attributes, given: Attributes = {}): Attributes =>
  imageAttributes({
    SOPClassUID: PET,
    Modality: "PT",
    Units: "BQML",
    CorrectedImage: "ATTN\\DECY",
    DecayCorrection: "START",
    PatientWeight: "70",
    RescaleSlope: "1",
    SeriesDate: "20260102",
    SeriesTime: "110000",
    AcquisitionDate: "20260102",
    AcquisitionTime: "110000",
    RadiopharmaceuticalInformationSequence: [
      { RadionuclideTotalDose: "350000000", RadionuclideHalfLife: String(F18), ...given },
    ],
    ...more,
  });

const file = (attributes: Attributes) => dicomFile({ attributes, pixels: Buffer.alloc(16) });

t.test("the cases", { skip: needs(CASES) }, async (t) => {
  const mean = async (name: string) => {
    const image = await readImage(readFileSync(`${CASES}/${name}.dcm`));
    const suv = suvOf(image);
    const read = valueReader(await image.frame(0), image.format);
    const count = image.format.rows * image.format.columns;
    const { modality } = image.interpretation(0);
    const values = Array.from({ length: count }, (_, i) => modalityValue(modality, read(i)));
    const factor = suv !== undefined && "factor" in suv ? suv.factor : NaN;
    return ((factor * values.reduce((a, b) => a + b)) / count).toFixed(4);
  };
  t.equal(await mean("pet-suv-dt-offset"), "0.2910");
  t.equal(await mean("pet-suv-zr89-5-days"), "2.9030");
  t.equal(await mean("pet-suv-tm-colons"), "0.2910");
});

const dateTime = (text: string, more: Attributes = {}): Attributes => ({
  RadiopharmaceuticalStartDateTime: text,
  ...more,
});

t.test("when a dose was given", async (t) => {
  const cases: [string, Attributes, Attributes, number | RegExp, number?][] = [
    ["no offset: of the file's own clock", {}, dateTime("20260102090000"), 2 * HOUR],
    [
      "no offset beside a zone",
      { TimezoneOffsetFromUTC: "+0100" },
      dateTime("20260102090000"),
      2 * HOUR,
    ],
    ["UTC, east", { TimezoneOffsetFromUTC: "+0100" }, dateTime("20260102090000.00+0000"), HOUR],
    ["UTC, west", { TimezoneOffsetFromUTC: "-0500" }, dateTime("20260102090000+0000"), 7 * HOUR],
    ["the same offset", { TimezoneOffsetFromUTC: "+0530" }, dateTime("20260102100000+0530"), HOUR],
    [
      "another offset",
      { TimezoneOffsetFromUTC: "+0530" },
      dateTime("20260102103000+0630"),
      1.5 * HOUR,
    ],
    [
      "the day before, by the zone",
      { TimezoneOffsetFromUTC: "+1300" },
      dateTime("20260101210000+0000"),
      HOUR,
    ],
    [
      "an offset that nothing is held against",
      {},
      dateTime("20260102090000+0000"),
      /no TimezoneOffsetFromUTC/,
    ],
    [
      "a zone that is none",
      { TimezoneOffsetFromUTC: "+2500" },
      dateTime("20260102090000+0000"),
      /is not an offset/,
    ],
    [
      "an offset, and the same hour on the file's clock",
      {},
      dateTime("20260102090000+0100", { RadiopharmaceuticalStartTime: "090000" }),
      2 * HOUR,
    ],
    [
      "an hour of its own",
      {},
      dateTime("20260102090000", { RadiopharmaceuticalStartTime: "093000" }),
      /different times/,
    ],
    [
      "an hour that is rounded to the second",
      {},
      dateTime("20260102090000.6", { RadiopharmaceuticalStartTime: "090001" }),
      2 * HOUR - 1,
    ],
    [
      "five days before",
      {},
      dateTime("20251228110000", { RadionuclideHalfLife: String(ZR89) }),
      120 * HOUR,
      ZR89,
    ],
    ["after the scan", {}, dateTime("20260102110001"), /after the scan/],
    ["with the scan", {}, dateTime("20260102110000"), 0],
    ["before all of it decayed", {}, dateTime("20260101200000"), 15 * HOUR],
    [
      "another day of F-18",
      {},
      dateTime("20260101090000"),
      /less than 100000 Bq was left.* 1.08 days later/,
    ],
    ["no time of day", {}, dateTime("20260102"), /not a date and time with hour and minute/],
    ["no minute", {}, dateTime("2026010209"), /not a date and time with hour and minute/],
    ["no day of the calendar", {}, dateTime("20260230090000"), /not a date and time/],
    ["the hour alone", {}, { RadiopharmaceuticalStartTime: "100000.5" }, HOUR],
    ["as before DICOM", {}, { RadiopharmaceuticalStartTime: "10:00:00" }, HOUR],
    ["an hour and a minute", {}, { RadiopharmaceuticalStartTime: "1030" }, HOUR / 2],
    [
      "the evening before",
      { SeriesTime: "003000", AcquisitionTime: "003000" },
      { RadiopharmaceuticalStartTime: "233000" },
      HOUR,
    ],
    [
      "an hour later than the scan's",
      {},
      { RadiopharmaceuticalStartTime: "140000" },
      /says no day, and is 3 hours after the scan began or 21 hours before it/,
    ],
    [
      "some seconds later than the scan",
      {},
      { RadiopharmaceuticalStartTime: "110030" },
      /says no day/,
    ],
    [
      "midnight for an hour that nobody wrote",
      { SeriesTime: "120000", AcquisitionTime: "120000" },
      { RadiopharmaceuticalStartTime: "000000" },
      /12 hours before it/,
    ],
    [
      "13 hours, of three half-lives",
      {},
      { RadiopharmaceuticalStartTime: "220000", RadionuclideHalfLife: "14400" },
      /13 hours before it/,
    ],
    [
      "an hour without a minute",
      {},
      { RadiopharmaceuticalStartTime: "10" },
      /not a time with hour and minute/,
    ],
    [
      "an hour that there is not",
      {},
      { RadiopharmaceuticalStartTime: "250000" },
      /not a time with hour and minute/,
    ],
    [
      "a long half-life without a day",
      {},
      { RadiopharmaceuticalStartTime: "100000", RadionuclideHalfLife: String(ZR89) },
      /says no day/,
    ],
    [
      "a half-life of 6 hours without a day",
      {},
      { RadiopharmaceuticalStartTime: "100000", RadionuclideHalfLife: "21600" },
      HOUR,
      21_600,
    ],
    ["nothing", {}, {}, /no time of the radiopharmaceutical's administration/],
    [
      "a day and hour as before DICOM",
      { SeriesDate: "2026.01.02", SeriesTime: "11:00" },
      dateTime("20260102090000"),
      2 * HOUR,
    ],
  ];
  for (const [name, more, given, expected, halfLife = F18] of cases) {
    const found = decayOf(await readImage(file(pet(more, given))), halfLife);
    if (expected instanceof RegExp) t.match(String(found), expected, name);
    else t.equal(found, Math.round(expected), name);
  }
});

t.test("stored values without a slope are in no units", async (t) => {
  const given = dateTime("20260102090000");
  const bare = { RescaleSlope: undefined };
  const philips = { "70530010": "Philips PET Private Group", "70531000": "0.00035" };
  const group = { PixelValueTransformationSequence: [{ RescaleSlope: "2" }] };
  const cases: [string, Attributes, boolean][] = [
    ["none", bare, false],
    ["an intercept alone", { ...bare, RescaleIntercept: "0" }, false],
    ["an empty one", { RescaleSlope: "" }, false],
    ["counts", { ...bare, ...philips, Units: "CNTS" }, false],
    ["counts with a slope", { ...philips, Units: "CNTS" }, true],
    ["a slope for all frames", { ...bare, SharedFunctionalGroupsSequence: [group] }, true],
    ["a slope for each frame", { ...bare, PerFrameFunctionalGroupsSequence: [group] }, true],
    ["frames without", { ...bare, PerFrameFunctionalGroupsSequence: [{}] }, false],
  ];
  for (const [name, more, isKnown] of cases) {
    const suv = suvOf(await readImage(file(pet(more, given))));
    t.match(suv, isKnown ? { factor: Number } : { missing: /RescaleSlope is absent/ }, name);
  }
});

t.test("a time that stands for several is none", async (t) => {
  const several = await readImage(
    file(pet({}, { RadiopharmaceuticalStartTime: "090000\\100000" })),
  );
  t.match(decayOf(several, F18), /no time of the radiopharmaceutical/);
  t.match(several.warnings, [{ code: "value_ignored", message: /RadiopharmaceuticalStartTime/ }]);
});

t.test("when the scan began", async (t) => {
  const given = dateTime("20260102090000");
  const later = { SeriesTime: "180000" };
  const single = await readImage(file(pet(later, given)));
  t.equal(decayOf(single, F18), 2 * HOUR, "the image's own acquisition");
  t.match(suvOf(single), { caveat: { code: "suv_scan_start", message: /the only image/ } });
  const right = await readImage(file(pet({}, given)));
  t.strictSame(Object.keys(suvOf(right) ?? {}), ["factor"], "nothing to say");
  const frame = (reference: string) =>
    readImage(
      file(pet({ ...later, FrameReferenceTime: reference, ActualFrameDuration: "120000" }, given)),
    );
  t.equal(decayOf(await frame("60000"), F18), 2 * HOUR, "the scan's first frame");
  // By hand: d = ln(2) * 120 / 6586.2, ln(d / (1 - e^-d)) / lambda = 59.937 s from the frame's
  // start to its average
  const back = await frame("180000");
  t.equal(decayOf(back, F18), 2 * HOUR - 120, "a later one: counted back to the scan's start");
  t.match(suvOf(back), { caveat: { code: "suv_scan_start", message: /FrameReferenceTime/ } });
  const hour = await readImage(
    file(pet({ ...later, FrameReferenceTime: "3600000", ActualFrameDuration: "180000" }, given)),
  );
  t.equal(decayOf(hour, F18), 2 * HOUR - 3510, "3600 s less 89.858 s");
  t.equal(decayOf(await frame("0"), F18), 2 * HOUR, "0 says nothing");
  t.equal(
    decayOf(await frame("1000"), F18),
    2 * HOUR,
    "nor does one before the frame's own average",
  );
  const kept = { "00090010": "GEMS_PETD_01", "0009100d": "20260102103000.00" };
  const scanner = await readImage(file(pet({ ...later, ...kept }, given)));
  t.equal(decayOf(scanner, F18), 1.5 * HOUR, "a scanner that keeps it");
  t.strictSame(Object.keys(suvOf(scanner) ?? {}), ["factor"]);
  await t.rejects(
    readImage(file(pet({ ...later, ...kept, "0009100D": "20260102100000.00" }, given))),
    {
      code: "corrupt_image",
      message: /0009,100d.* twice/i,
    },
  );
  const known = await readImage(file(pet({ ...kept, "0009100D": "20260102100000.00" }, given)));
  t.equal(decayOf(known, F18), 2 * HOUR, "one that nobody asks for may stand twice");
  for (const lacking of ["SeriesTime", "AcquisitionTime", "AcquisitionDate"])
    t.match(
      decayOf(await readImage(file(pet({ [lacking]: undefined }, given))), F18),
      /time of decay correction/,
    );
});

t.test("a series has one start", async (t) => {
  const stack = (times: readonly string[], more: Attributes | ((z: number) => Attributes) = {}) =>
    times.map((AcquisitionTime, z) => {
      const own = {
        SOPInstanceUID: `1.2.${z + 1}`,
        Rows: 4,
        Columns: 6,
        BitsAllocated: 16,
        BitsStored: 16,
      };
      const attributes = {
        ...pet(
          { AcquisitionTime, ...(typeof more === "function" ? more(z) : more) },
          dateTime("20260102090000"),
        ),
        ...own,
        HighBit: 15,
      };
      return slice({ z, attributes });
    });
  const decays = (image: Image) => [0, 1, 2].map((i) => decayOf(image, F18, i));
  const beds = await readFolder(t, folderOf(t, stack(["112000", "111000", "110000"])));
  t.strictSame(decays(beds), [2 * HOUR, 2 * HOUR, 2 * HOUR], "its own, where no bed was before it");
  t.strictSame(Object.keys(suvOf(beds) ?? {}), ["factor"]);
  // The series' own time is between the beds: for the last bed alone it would look right
  const computed = stack(["112000", "111000", "110000"], { SeriesTime: "111500" });
  const image = await readFolder(t, folderOf(t, computed));
  t.strictSame(decays(image), [2 * HOUR, 2 * HOUR, 2 * HOUR], "the earliest acquisition of all");
  t.match(suvOf(image, 2), { caveat: { code: "suv_scan_start", message: /the 3 images/ } });
  const heavier = [
    ...stack(["112000", "111000"]),
    stack(["", "", "110000"], { PatientWeight: "71" })[2]!,
  ];
  t.match(decays(await readFolder(t, folderOf(t, heavier))), [
    /differ in weight/,
    /differ/,
    /differ/,
  ]);
  const bySeries = (reference: (z: number) => number, more: Attributes = {}) =>
    stack(["112000", "111000", "110000"], (z) => ({
      FrameReferenceTime: String(reference(z) * 1000),
      ActualFrameDuration: "120000",
      ...more,
    }));
  const later = { SeriesTime: "180000" };
  // The bed that began the scan is not there: 20 min before the first that is, by the frames' own
  // times
  const rest = await readFolder(
    t,
    folderOf(
      t,
      bySeries((z) => 2400 - 600 * z + 59.937, later),
    ),
  );
  t.strictSame(
    decays(rest),
    [1, 1, 1].map(() => 2 * HOUR - 1200),
  );
  t.match(suvOf(rest), { caveat: { code: "suv_scan_start", message: /FrameReferenceTime/ } });
  const within = await readFolder(
    t,
    folderOf(
      t,
      bySeries(() => 59.937, later),
    ),
  );
  t.strictSame(
    decays(within),
    [2 * HOUR, 2 * HOUR, 2 * HOUR],
    "times from each bed's own start lead nowhere",
  );
  const agreeing = await readFolder(
    t,
    folderOf(
      t,
      bySeries((z) => 1200 - 600 * z + 59.937),
    ),
  );
  t.strictSame([decays(agreeing)[0], Object.keys(suvOf(agreeing) ?? {})], [2 * HOUR, ["factor"]]);
  const against = await readFolder(
    t,
    folderOf(
      t,
      bySeries((z) => 3000 - 600 * z + 59.937),
    ),
  );
  t.strictSame(decays(against), [2 * HOUR, 2 * HOUR, 2 * HOUR], "the series' own time is believed");
  t.match(suvOf(against), {
    caveat: { code: "suv_scan_start", message: /SUV would be 82\.7 % of these/ },
  });
  const unknown = stack(["112000", "", "110000"], { SeriesTime: "111500" });
  t.match(decays(await readFolder(t, folderOf(t, unknown))), [
    /decay correction/,
    /decay/,
    /decay/,
  ]);
});
