/** The table of a job, with what strangers may have written into names and labels. */
import t from "tap";
import { HEAD_ROW, rowsOf } from "../../../src/features/reports/rows.js";
import { Tally } from "../../../src/features/reports/tally.js";
import { receiptOf } from "../../support/receipts.js";

const image = { index: 0, state: "succeeded", receiptLost: false } as const;

t.test("no terminal obeys a cell, and no spreadsheet takes one for a formula", (t) => {
  const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
  const [finding] = receipt.models[0]?.findings ?? [];
  for (const label of ["\u001b]0;x\u0007", "\u009b2J", "\u202etxt", "=1+1", " =1", "\t@x", "＝1"]) {
    if (finding !== undefined) finding.label = label;
    const rows = rowsOf({ ...image, input_image_path: label, receipt });
    // oxlint-disable-next-line no-control-regex -- these are what is looked for
    t.notMatch(rows, /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e]/);
    t.notMatch(rows, /(?:^|,)"?\s*[=@＝]/m);
  }
  t.end();
});

t.test("an image whose receipt is not trusted has its reason, and no finding", (t) => {
  const untold = { code: "result_untrusted", message: "The receipt is not trusted." };
  const row = rowsOf({ ...image, input_image_path: "/in/x.dcm", untold });
  t.equal(row.split("\r\n").length, 2);
  t.match(row, /^0,\/in\/x\.dcm,succeeded,false,result_untrusted,/);
  t.end();
});

t.test("frames add up in cm2 only where each has its area in cm2", (t) => {
  const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
  const extentOf = (areas: readonly { pixels: number; cm2?: number }[]) => {
    receipt.models[0]!.findings = areas.map((area, i) => ({
      label: "mass",
      present: area.pixels > 0,
      frame: i + 1,
      area,
    }));
    const [row] = rowsOf({ ...image, input_image_path: "/in/x.dcm", receipt }).split("\r\n");
    const cells = row!.split(",");
    const columns = HEAD_ROW.trimEnd().split(",");
    const told = ["extent", "unit"].map((name) => cells[columns.indexOf(name)]);
    const tally = new Tally();
    tally.add({ ...image, input_image_path: "/in/x.dcm", receipt });
    const [label] = [...tally.models.values()][0]!.labels.values();
    const tallied = [...label!.extents].map(([unit, { most }]) => [String(most), unit]);
    t.strictSame(tallied, [told], "the page has what the table has");
    return told.join(" ");
  };
  const measured = { pixels: 400, cm2: 1.5 };
  t.equal(extentOf([measured, measured]), "3 cm2");
  t.equal(extentOf([{ pixels: 100 }, measured, measured]), "900 pixels");
  t.equal(extentOf([measured, { pixels: 100 }]), "500 pixels");
  t.equal(extentOf([{ pixels: 0 }, measured]), "1.5 cm2", "nothing on a frame is 0 in any unit");
  t.end();
});

t.test("a measurement has a row of its own, with its frame, value and unit", (t) => {
  const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
  const months = { value: "mo", scheme: "UCUM", meaning: "month" };
  const ml = { value: "mL", scheme: "UCUM", meaning: "milliliter" };
  const code = { value: "1", scheme: "SCT", meaning: "Any" };
  receipt.models[0]!.measurements = [
    { name: "Bone age", code, value: 95.5, unit: months },
    { name: "Volume of the box", code, label: "mass", number: 2, value: 1.25, unit: ml },
    { name: "Mean", code, label: "mass", frame: 7, value: -12, unit: ml },
  ];
  receipt.source.study_instance_uid = "1.2.3";
  const receiptPath = "/out/x.dcm.json";
  const rows = rowsOf({ ...image, input_image_path: "/in/x.dcm", receipt, receiptPath })
    .trimEnd()
    .split("\r\n");
  t.equal(rows.length, 4);
  const columns = HEAD_ROW.trimEnd().split(",");
  t.ok(
    rows.every((row) => row.endsWith(",1.2.3,/out/x.dcm.json")),
    "each row has the study and the receipt",
  );
  const told = rows.map((row) => {
    const cells = row.split(",");
    return ["label", "measurement", "frame", "value", "value_unit"].map(
      (name) => cells[columns.indexOf(name)],
    );
  });
  t.strictSame(told, [
    ["mass", "", "", "", ""],
    ["", "Bone age", "", "95.5", "mo"],
    ["mass", "Volume of the box 2", "", "1.25", "mL"],
    ["mass", "Mean", "7", "-12", "mL"],
  ]);
  const tally = new Tally();
  tally.add({ ...image, input_image_path: "/in/x.dcm", receipt });
  const [tallied] = tally.models.values();
  t.strictSame(
    [...tallied!.measurements.values()].map(({ name, label, unit, values }) => [
      name,
      label,
      unit,
      values.count,
      values.most,
    ]),
    [
      ["Bone age", undefined, "mo", 1, 95.5],
      ["Volume of the box", "mass", "mL", 1, 1.25],
      ["Mean", "mass", "mL", 1, -12],
    ],
  );
  t.end();
});
