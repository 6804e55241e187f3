/** A series that has fewer images than its images say. */
import t, { type Test } from "tap";
import { Typed, type Attributes } from "../../support/dicom.js";
import { folderOf, readFolder, slice } from "../../support/series.js";

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
