/** Slices of several acquisitions that form an even stack, and usual stacks that only look so. */
import { existsSync } from "node:fs";
import t, { type Test } from "tap";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import { readImage } from "../../../src/images/read-image.js";
import { Typed, type Attributes } from "../../support/dicom.js";
import { warned } from "../../support/expect.js";
import { folderOf, multiFrame, readFolder, slice } from "../../support/series.js";

const CASE = "../shared/cases/2026-11-28/inputs/series-mixed-types-and-phases/mixed_mip";

const series = (t: Test, slices: readonly Attributes[]) =>
  readFolder(
    t,
    folderOf(
      t,
      slices.map((attributes, i) => slice({ z: 2 * i, attributes })),
    ),
  );
/** A value for each of eight slices. */
const each = (value: (i: number) => Attributes) => Array.from({ length: 8 }, (_, i) => value(i));
const alternating = (keyword: string, ...values: Attributes[string][]) =>
  each((i) => ({ [keyword]: values[i % values.length] }));
const halves = (keyword: string, ...values: Attributes[string][]) =>
  each((i) => ({ [keyword]: values[Math.floor((i * values.length) / 8)] }));
const oneOther = (keyword: string, usual: Attributes[string], other: Attributes[string]) =>
  each((i) => ({ [keyword]: i === 3 ? other : usual }));
const double = (value: number) => new Typed("FD", [value]);

const MIP = "DERIVED\\SECONDARY\\AXIAL\\MIP";
const AXIAL = "ORIGINAL\\PRIMARY\\AXIAL";

t.test("what several acquisitions differ in", async (t) => {
  const pairs: [string, Attributes[string], Attributes[string]][] = [
    ["ImageType", AXIAL, MIP],
    ["SliceThickness", "2", "20"],
    ["TriggerTime", "100", "500"],
    ["NominalPercentageOfCardiacPhase", double(35), double(75)],
    ["NominalCardiacTriggerDelayTime", double(100), double(400)],
    ["RepetitionTime", "500", "4000"],
    ["PatientPosition", "HFS", "FFS"],
    ["ReconstructionDiameter", "350", "500"],
    ["ProtocolName", "Native", "Venous"],
    ["SequenceName", "*ep_b0", "*ep_b1000"],
    ["EchoNumbers", "1", "2"],
    ["ContrastBolusStartTime", "100000", "101500"],
  ];
  for (const [keyword, one, other] of pairs)
    for (const [how, slices] of Object.entries({
      alternating: alternating(keyword, one, other),
      halves: halves(keyword, one, other),
      "one slice of many": oneOther(keyword, one, other),
    })) {
      const { warnings } = await series(t, slices);
      const found = warnings.filter(({ code }) => code === "mixed_acquisition");
      t.match(found, [{ message: new RegExp(`differ in .*${keyword}`) }], `${keyword}, ${how}`);
    }
});

t.test("phases whose times vary", async (t) => {
  const jitter = each((i) => ({ TriggerTime: `${(i % 2 === 0 ? 300 : 700) + ((i * 5) % 11)}` }));
  t.strictSame(warned(await series(t, jitter)), ["mixed_acquisition"]);
});

t.test("pauses, blocks and private b-values", async (t) => {
  const time = (i: number, gap: number) => {
    const seconds = 36_000 + i + Math.floor(i / 4) * gap;
    const two = (value: number) => String(Math.floor(value)).padStart(2, "0");
    return `${two(seconds / 3600)}${two((seconds / 60) % 60)}${two(seconds % 60)}`;
  };
  const at = (gap: number) =>
    each((i) => ({ AcquisitionDate: "20260101", AcquisitionTime: time(i, gap) }));
  t.match((await series(t, at(900))).warnings, [{ message: /AcquisitionTime/ }], "15 minutes");
  t.strictSame(warned(await series(t, at(60))), [], "a minute");
  t.match((await series(t, alternating("AcquisitionNumber", "1", "2"))).warnings, [
    { message: /AcquisitionNumber/ },
  ]);
  t.strictSame(warned(await series(t, halves("AcquisitionNumber", "1", "2", "3", "4"))), []);
  const owners: [string, string, string, string][] = [
    ["SIEMENS MR HEADER", "0019", "0c", "IS"],
    ["GEMS_PARM_01", "0043", "39", "IS"],
    ["Philips Imaging DD 001", "2001", "03", "FL"],
    ["Image Private Header", "0065", "09", "FD"],
  ];
  for (const [creator, group, element, vr] of owners) {
    const b = (value: number): Attributes => ({
      [`${group}0010`]: new Typed("LO", creator),
      [`${group}10${element}`]: new Typed(vr, vr === "IS" ? String(value) : [value]),
    });
    const mixed = await series(
      t,
      each((i) => b(i % 2 === 0 ? 0 : 1000)),
    );
    t.match(mixed.warnings, [{ code: "mixed_acquisition", message: /private b-value/ }], creator);
    t.strictSame(
      warned(
        await series(
          t,
          each(() => b(1000)),
        ),
      ),
      [],
      creator,
    );
  }
});

t.test("a CT whose times go to and fro along the stack", async (t) => {
  const at = (seconds: number) => `10${String(seconds).padStart(4, "0")}`;
  const timed = (secondsOf: (i: number) => number, more: Attributes = {}) =>
    series(
      t,
      each((i) => ({ AcquisitionTime: at(secondsOf(i)), ...more })),
    );
  const mixed: [string, (i: number) => number][] = [
    ["two times, one by one", (i) => (i % 2) * 30],
    ["two passes of the table", (i) => (i % 2) * 30 + i],
    ["two times, two by two", (i) => (Math.floor(i / 2) % 2) * 30],
    ["one slice taken once more", (i) => (i === 3 ? 40 : i)],
  ];
  for (const [name, secondsOf] of mixed)
    t.match((await timed(secondsOf)).warnings, [{ message: /differ in AcquisitionTime:/ }], name);
  const usual: [string, (i: number) => number][] = [
    ["one pass", (i) => i],
    ["backwards", (i) => 8 - i],
    ["four rows of detectors", (i) => Math.floor(i / 4) * 2],
    ["two breath-holds", (i) => Math.floor(i / 4) * 30 + i],
    ["one time", () => 5],
  ];
  for (const [name, secondsOf] of usual) t.strictSame(warned(await timed(secondsOf)), [], name);
  const byDateTime = await series(
    t,
    each((i) => ({ AcquisitionDateTime: `20260101${at((i % 2) * 30)}` })),
  );
  t.match(byDateTime.warnings, [{ message: /AcquisitionTime/ }], "AcquisitionDateTime alone");
  const mr = await timed((i) => (i % 2) * 30, { Modality: "MR", RescaleType: "US" });
  t.strictSame(warned(mr), [], "MR in two concatenations");
});

t.test("usual stacks", async (t) => {
  const usual: [string, Attributes[]][] = [
    ["a trigger time for each slice", each((i) => ({ TriggerTime: `${100 + 37 * i}` }))],
    [
      "of free breathing",
      each((i) => ({ TriggerTime: `${[512, 760, 233, 1020, 401, 655, 318, 889][i]}` })),
    ],
    [
      "in blocks of breath-holds",
      each((i) => ({ TriggerTime: `${(i % 4) * 30 + Math.floor(i / 4)}` })),
    ],
    [
      "one phase",
      each(() => ({ TriggerTime: "300", NominalPercentageOfCardiacPhase: double(75) })),
    ],
    ["times that are absent", each(() => ({}))],
    [
      "a repetition time by the heart",
      each((i) => ({ RepetitionTime: `${800 + ((i * 53) % 97)}` })),
    ],
    ["a thickness but for rounding", alternating("SliceThickness", "1.25", "1.2500001")],
    [
      "currents and windows",
      each((i) => ({ XRayTubeCurrent: `${100 + i}`, WindowCenter: `${i}`, WindowWidth: "400" })),
    ],
  ];
  for (const [name, slices] of usual) t.strictSame(warned(await series(t, slices)), [], name);
});

t.test("frames of one file", async (t) => {
  const frames = async (group: (i: number) => Attributes) => {
    const image = await readImage(
      multiFrame([0, 2, 4, 6, 8, 10], {
        PerFrameFunctionalGroupsSequence: Array.from({ length: 6 }, (_, i) => ({
          PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${2 * i}` }],
          ...group(i),
        })),
      }),
    );
    volumeOf(image);
    volumeOf(image);
    return image.warnings.filter(({ code }) => code === "mixed_acquisition");
  };
  const sync = (phase: number) => ({
    CardiacSynchronizationSequence: [{ NominalPercentageOfCardiacPhase: double(phase) }],
  });
  const content = (attributes: Attributes) => ({ FrameContentSequence: [attributes] });
  const cases: [string, (i: number) => Attributes][] = [
    ["NominalPercentageOfCardiacPhase", (i) => sync(i % 2 === 0 ? 35 : 75)],
    ["NominalPercentageOfCardiacPhase", (i) => sync(i === 2 ? 35 : 75)],
    [
      "EffectiveEchoTime",
      (i) => ({ MREchoSequence: [{ EffectiveEchoTime: double(i < 3 ? 2 : 5) }] }),
    ],
    ["DiffusionBValue", (i) => ({ MRDiffusionSequence: [{ DiffusionBValue: double(i % 2) }] })],
    ["FrameType", (i) => ({ CTImageFrameTypeSequence: [{ FrameType: i === 2 ? MIP : AXIAL }] })],
    ["TemporalPositionIndex", (i) => content({ TemporalPositionIndex: 1 + (i % 2) })],
    ["TemporalPositionIndex", (i) => content({ TemporalPositionIndex: i < 3 ? 1 : 2 })],
    ["FrameAcquisitionNumber", (i) => content({ FrameAcquisitionNumber: 1 + (i % 2) })],
    [
      "AcquisitionTime",
      (i) => content({ FrameAcquisitionDateTime: i % 2 ? "20260101100030" : "20260101100000" }),
    ],
    [
      "ContrastBolusAgentPhase",
      (i) => ({
        ContrastBolusUsageSequence: [
          { ContrastBolusAgentPhase: i < 3 ? "PRE_CONTRAST" : "POST_CONTRAST" },
        ],
      }),
    ],
  ];
  for (const [keyword, group] of cases)
    t.match(await frames(group), [{ message: new RegExp(keyword) }], keyword);
  t.strictSame(await frames(() => sync(75)), []);
  t.strictSame(await frames((i) => content({ TemporalPositionIndex: i })), []);
  t.strictSame(await frames((i) => content({ FrameAcquisitionNumber: i < 3 ? 1 : 2 })), []);
});

t.test("the case", { skip: existsSync(CASE) ? false : `${CASE} is not there` }, async (t) => {
  const { warnings } = await readFolder(t, `${process.cwd()}/${CASE}`);
  t.match(
    warnings.find(({ code }) => code === "mixed_acquisition"),
    { message: /differ in ImageType, SliceThickness:/ },
  );
});
