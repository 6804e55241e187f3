/** The table of a job, with what strangers may have written into names and labels. */
import t from "tap";
import { rowsOf } from "../../../src/features/reports/rows.js";
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
  const untrusted = { code: "result_untrusted", message: "The receipt is not trusted." };
  const row = rowsOf({ ...image, input_image_path: "/in/x.dcm", untrusted });
  t.equal(row.split("\r\n").length, 2);
  t.match(row, /^0,\/in\/x\.dcm,succeeded,false,result_untrusted,/);
  t.end();
});
