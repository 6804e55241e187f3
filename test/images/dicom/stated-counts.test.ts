/** A series that has fewer images than its images say. */
import t, { type Test } from "tap";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import { readImage } from "../../../src/images/read-image.js";
import { Typed, type Attributes } from "../../support/dicom.js";
import { warned } from "../../support/expect.js";
import { folderOf, multiFrame, readFolder, slice } from "../../support/series.js";

const told = async (t: Test, slices: readonly Attributes[]) => {
  const { warnings } = await readFolder(
    t,
    folderOf(
      t,
      slices.map((attributes, i) => slice({ z: 2 * i, attributes })),
    ),
  );
  return warnings.filter(({ code }) => code === "fewer_images").map(({ message }) => message);
};
const alike = (attributes: Attributes, count = 4) =>
  Array.from({ length: count }, () => attributes);
const block = (creator: string, group: string, element: string, value: Typed): Attributes => ({
  [`${group}0010`]: new Typed("LO", creator),
  [`${group}10${element}`]: value,
});

t.test("each attribute that says more", async (t) => {
  const more: [string, Attributes][] = [
    ["ImagesInAcquisition", { ImagesInAcquisition: "6" }],
    ["NumberOfSeriesRelatedInstances", { NumberOfSeriesRelatedInstances: "6" }],
    ["NumberOfSlices", { NumberOfSlices: 6 }],
    ["GE's images in series", block("GEMS_SERS_01", "0025", "07", new Typed("SL", [6]))],
    ["GE's locations", block("GEMS_RELA_01", "0021", "4f", new Typed("SS", [6]))],
    ["NumberOfSlicesMR", block("Philips Imaging DD 001", "2001", "18", new Typed("SL", [6]))],
  ];
  for (const [name, attributes] of more) {
    const [message = "", ...others] = await told(t, alike(attributes));
    t.match(message, new RegExp(`${name}.* says 6, found 4`), name);
    t.strictSame(others, [], name);
    t.strictSame(await told(t, alike(attributes, 6)), [], `${name}: all are there`);
    t.strictSame(await told(t, alike(attributes, 7)), [], `${name}: more are there`);
  }
});

t.test("acquisitions by themselves", async (t) => {
  const of = (AcquisitionNumber: string, ImagesInAcquisition: string) => ({
    AcquisitionNumber,
    ImagesInAcquisition,
  });
  const whole = [of("1", "2"), of("1", "2"), of("2", "3"), of("2", "3"), of("2", "3")];
  t.strictSame(await told(t, whole), []);
  t.match(await told(t, whole.slice(0, 4)), [/ImagesInAcquisition says 3, found 2/]);
  t.strictSame(
    await told(
      t,
      ["1", "2", "3", "4"].map((number) => of(number, "4")),
    ),
    [],
    "a number for each slice",
  );
  t.strictSame(await told(t, [of("1", "9"), of("1", "5")]), [], "they contradict each other");
  t.strictSame(await told(t, alike({ ImagesInAcquisition: "0" })), [], "left at 0");
});

t.test("what was derived keeps counts of its source", async (t) => {
  const ImageType = "DERIVED\\SECONDARY\\MPR";
  const source = { ImageType, ImagesInAcquisition: "9", NumberOfSlices: 9 };
  t.strictSame(await told(t, alike(source)), []);
  const own = { ImageType, NumberOfSeriesRelatedInstances: "9" };
  t.match(await told(t, alike(own)), [/says 9, found 4/]);
});

t.test("a count of all, where each volume is numbered as an acquisition", async (t) => {
  const volumes = (count: string) =>
    ["1", "1", "2", "2", "3"].map((AcquisitionNumber) => ({
      AcquisitionNumber,
      ImagesInAcquisition: count,
    }));
  t.match(await told(t, volumes("6")), [/ImagesInAcquisition says 6, found 5/]);
  t.strictSame(await told(t, volumes("5")), []);
});

t.test("slices that are evenly missing", async (t) => {
  // The slices lie 2 mm apart
  const said = (SpacingBetweenSlices: string, more: Attributes = {}) =>
    told(t, alike({ SpacingBetweenSlices, SliceThickness: "1", ...more }));
  const missing: [string, string, Attributes?][] = [
    ["every second one", "1"],
    ["two of three", "0.6667"],
    ["with a sign", "-1"],
    ["of slices thinner than their distance", "1", { SliceThickness: "0.8" }],
    ["without a thickness", "1", { SliceThickness: undefined }],
  ];
  for (const [name, spacing, more] of missing)
    t.match(
      await said(spacing, more),
      [/^The slices lie further apart .*SpacingBetweenSlices says .* mm, found 2 mm, [23] times/],
      name,
    );
  const whole: [string, string, Attributes?][] = [
    ["the distance", "2"],
    ["but for rounding", "2.0001"],
    ["left at 0", "0"],
    ["the gap between the edges of slices", "0.5", { SliceThickness: "1.5" }],
    ["more than the distance", "4"],
    ["no multiple", "1.5"],
    ["what a reformat keeps", "1", { ImageType: "DERIVED\\SECONDARY\\REFORMATTED" }],
  ];
  for (const [name, spacing, more] of whole) t.strictSame(await said(spacing, more), [], name);
  const several = ["1", "1", "2", "1"].map((SpacingBetweenSlices) => ({ SpacingBetweenSlices }));
  t.strictSame(await told(t, several), [], "they contradict each other");
  const frames = async (SpacingBetweenSlices: string) => {
    const measures = { PixelSpacing: "0.5\\0.8", SliceThickness: "1", SpacingBetweenSlices };
    const image = await readImage(
      multiFrame([0, 2, 4], {
        SharedFunctionalGroupsSequence: [
          {
            PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
            PixelMeasuresSequence: [measures],
          },
        ],
      }),
    );
    volumeOf(image);
    return warned(image);
  };
  t.strictSame(await frames("1"), ["fewer_images"], "frames of one file");
  t.strictSame(await frames("2"), []);
});
