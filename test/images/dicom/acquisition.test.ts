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
    ["ManufacturerModelName", "One", "Other"],
    ["GantryDetectorTilt", "0", "5"],
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

t.test("several phases of a heart or a breath", async (t) => {
  const turns = (count: number, keyword: string, values: readonly Attributes[string][]) =>
    Array.from({ length: count }, (_, i) => ({ [keyword]: values[i % values.length] }));
  const percents = (...values: number[]) => values.map(double);
  const tens = percents(...Array.from({ length: 10 }, (_, i) => 10 * i));
  const index = [1, 2, 3, 4].map((value) => new Typed("UL", [value]));
  const mixed: [string, Attributes[]][] = [
    [
      "NominalPercentageOfCardiacPhase",
      turns(12, "NominalPercentageOfCardiacPhase", percents(35, 50, 80)),
    ],
    [
      "NominalPercentageOfCardiacPhase",
      turns(12, "NominalPercentageOfCardiacPhase", percents(0, 10, 20, 30)),
    ],
    ["NominalPercentageOfCardiacPhase", turns(20, "NominalPercentageOfCardiacPhase", tens)],
    [
      "NominalPercentageOfRespiratoryPhase",
      turns(8, "NominalPercentageOfRespiratoryPhase", percents(0, 20, 60, 100)),
    ],
    ["TemporalPositionIndex", turns(8, "TemporalPositionIndex", index)],
    ["TriggerTime", turns(12, "TriggerTime", ["100", "300", "800"])],
    [
      "NominalCardiacTriggerDelayTime",
      turns(12, "NominalCardiacTriggerDelayTime", percents(100, 300, 800)),
    ],
  ];
  for (const [keyword, slices] of mixed)
    t.match(
      (await series(t, slices)).warnings,
      [{ code: "mixed_acquisition", message: new RegExp(`differ in ${keyword}:`) }],
      `${keyword}, ${slices.length} slices`,
    );
  const usual: [string, Attributes[]][] = [
    ["a beat for each turn of the tube", halves("TriggerTime", "602", "615", "592", "640")],
    ["a moment for each slice", each((i) => ({ TriggerTime: `${600 + ((i * 5) % 8)}` }))],
    [
      "MR of two packages, with several slices in each beat",
      alternating("TriggerTime", "0", "30", "60", "90").map((slice) => ({
        ...slice,
        Modality: "MR",
        RescaleType: "US",
      })),
    ],
  ];
  for (const [name, slices] of usual) t.strictSame(warned(await series(t, slices)), [], name);
});

t.test("corrections, reconstructions and directions", async (t) => {
  const pairs: [string, Attributes[string], Attributes[string]][] = [
    ["CorrectedImage", "ATTN\\DECY", "DECY"],
    ["DecayCorrection", "START", "ADMIN"],
    ["ReconstructionMethod", "OSEM", "FBP"],
    ["AttenuationCorrectionMethod", "CT", "NONE"],
    ["DiffusionGradientOrientation", new Typed("FD", [1, 0, 0]), new Typed("FD", [0, 1, 0])],
  ];
  for (const [keyword, one, other] of pairs) {
    const { warnings } = await series(t, alternating(keyword, one, other));
    t.match(warnings, [{ message: new RegExp(`differ in ${keyword}:`) }], keyword);
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
  const days = await series(t, halves("AcquisitionDate", "20260101", "20260103"));
  t.match(days.warnings, [{ message: /AcquisitionTime/ }], "days without a time");
  const oneWithout = at(0).map((slice, i) => (i === 3 ? { AcquisitionDate: "20260101" } : slice));
  t.strictSame(warned(await series(t, oneWithout)), [], "a time that one slice lacks");
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

t.test("times of CT at the borders of rotations", async (t) => {
  const clock = (seconds: number) => {
    const two = (value: number) => String(Math.floor(value)).padStart(2, "0");
    const rest = (seconds % 60).toFixed(3).padStart(6, "0");
    return `${two(10 + seconds / 3600)}${two((seconds / 60) % 60)}${rest}`;
  };
  const stack = (count: number, secondsOf: (i: number) => number) =>
    series(
      t,
      Array.from({ length: count }, (_, i) => ({ AcquisitionTime: clock(secondsOf(i)) })),
    );
  /** The rotation of a slice, where the last of one lies behind the first of the next. */
  const turn = (i: number, rows: number, over: number) => {
    const [at, within] = [Math.floor(i / rows), i % rows];
    const isLate = at > 0 && within < 2 * over && within % 2 === 1;
    return isLate ? at - 1 : at;
  };
  /** As scanners are not: another number for each slice, the same in each run. */
  const jitter = (i: number) => ((i * 7919) % 101) / 101 - 0.5;
  const usual: [string, number, (i: number) => number][] = [
    ["helical, one time for all", 100, () => 10],
    ["helical, a time for each slice", 100, (i) => 10 + 0.0375 * i],
    ["helical, feet first", 100, (i) => 60 - 0.0375 * i],
    ["helical, whole seconds", 100, (i) => Math.floor(10 + 0.0375 * i)],
    ["helical, times that vary", 100, (i) => 10 + 0.0375 * i + 0.08 * jitter(i)],
    ["helical, of a gated heart", 100, (i) => 10 + 0.9 * Math.floor(i / 23 + 0.2 * jitter(i))],
    ["two helical ranges, a breath between", 100, (i) => 10 + 0.04 * i + (i < 50 ? 0 : 20)],
    ["4 rows", 48, (i) => 10 + 2 * Math.floor(i / 4)],
    ["4 rows, borders over each other", 48, (i) => 10 + 2 * turn(i, 4, 1)],
    ["4 rows, a moment for each", 48, (i) => 10 + 2 * Math.floor(i / 4) + 0.01 * (i % 4)],
    ["16 rows, borders over each other", 160, (i) => 10 + 1.5 * turn(i, 16, 2)],
    [
      "64 rows, gated, heartbeats that vary",
      256,
      (i) => 10 + turn(i, 64, 5) * (0.9 + 0.05 * jitter(turn(i, 64, 5))),
    ],
    ["160 rows, two volumes over each other", 320, (i) => 10 + 1.8 * turn(i, 160, 15)],
    ["160 rows, one volume", 160, () => 10.35],
  ];
  for (const [name, count, secondsOf] of usual)
    t.strictSame(warned(await stack(count, secondsOf)), [], name);
  const mixed: [string, number, (i: number) => number][] = [
    ["phases of 4 rows", 48, (i) => 10 + 2 * Math.floor(i / 4) + 0.4 * (i % 2)],
    ["phases of 16 rows", 160, (i) => 10 + 2 * Math.floor(i / 16) + 0.4 * (i % 2)],
    [
      "phases of 16 rows, half and half",
      160,
      (i) => 10 + 2 * Math.floor(i / 16) + 0.4 * (Math.floor(i / 4) % 2),
    ],
    ["phases of 64 rows", 256, (i) => 10 + 1.8 * Math.floor(i / 64) + 0.3 * (i % 3)],
    ["phases of 160 rows", 160, (i) => 10.35 + 0.3 * (i % 2)],
    ["phases of a helical heart", 100, (i) => 10 + 0.9 * Math.floor(i / 24) + 0.36 * (i % 2)],
    ["two helical passes", 100, (i) => 10 + 0.0375 * i + 25 * (i % 2)],
    ["two helical passes, there and back", 100, (i) => (i % 2 ? 40 - 0.0375 * i : 10 + 0.0375 * i)],
    [
      "two helical passes, times that vary",
      200,
      (i) => 10 + 0.0375 * i + 25 * (i % 2) + 0.08 * jitter(i),
    ],
    ["one slice of another pass", 100, (i) => 10 + 0.0375 * i + (i === 77 ? 30 : 0)],
    ["ten slices of another pass", 100, (i) => 10 + 0.0375 * i + (i >= 70 && i < 80 ? 30 : 0)],
    [
      "one slice of another phase of its beat",
      256,
      (i) => 10 + 1.8 * Math.floor(i / 64) + (i === 100 ? 0.3 : 0),
    ],
  ];
  for (const [name, count, secondsOf] of mixed)
    t.match((await stack(count, secondsOf)).warnings, [{ message: /AcquisitionTime/ }], name);
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
    [
      "DiffusionGradientOrientation",
      (i) => ({
        MRDiffusionSequence: [
          {
            DiffusionGradientDirectionSequence: [
              { DiffusionGradientOrientation: new Typed("FD", [i % 2, 1 - (i % 2), 0]) },
            ],
          },
        ],
      }),
    ],
    ["FrameType", (i) => ({ CTImageFrameTypeSequence: [{ FrameType: i === 2 ? MIP : AXIAL }] })],
    ["TemporalPositionIndex", (i) => content({ TemporalPositionIndex: 1 + (i % 2) })],
    ["TemporalPositionIndex", (i) => content({ TemporalPositionIndex: i < 3 ? 1 : 2 })],
    ["FrameAcquisitionNumber", (i) => content({ FrameAcquisitionNumber: 1 + (i % 2) })],
    ["StackID", (i) => content({ StackID: i % 2 === 0 ? "A" : "B" })],
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
  t.strictSame(await frames((i) => content({ StackID: i < 3 ? "A" : "B" })), []);
  t.strictSame(await frames((i) => content({ StackID: String(i) })), [], "a stack for each frame");
});

t.test("the case", { skip: existsSync(CASE) ? false : `${CASE} is not there` }, async (t) => {
  const { warnings } = await readFolder(t, `${process.cwd()}/${CASE}`);
  t.match(
    warnings.find(({ code }) => code === "mixed_acquisition"),
    { message: /differ in ImageType, SliceThickness:/ },
  );
});
