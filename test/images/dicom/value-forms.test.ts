/** Numbers and times as PS3.5 section 6.2 writes them. */
import t from "tap";
import {
  decimal,
  FORMS,
  minutesOfOffset,
  momentOf,
  secondsOfDate,
  secondsOfTime,
} from "../../../src/images/dicom/value-forms.js";

t.test("decimal and integer strings", (t) => {
  const numbers: [string, number][] = [
    ["12", 12],
    ["-0.5", -0.5],
    ["+5", 5],
    [".25", 0.25],
    ["3.", 3],
    ["1E-3", 0.001],
    ["0.70312500000000001234", 0.703125],
  ];
  for (const [text, value] of numbers) t.equal(decimal(text), value, text);
  const none = [
    "",
    "0x10",
    "0b1",
    "0o7",
    "1_000",
    "1,5",
    "1 5",
    "1e",
    "e5",
    "--1",
    "NaN",
    "Infinity",
    "1e400",
    "٣",
  ];
  for (const text of none) t.equal(decimal(text), undefined, text);
  t.end();
});

t.test("dates and times", (t) => {
  const midnight = Date.UTC(2024, 1, 29) / 1000;
  t.equal(secondsOfDate("20240229"), midnight);
  t.equal(secondsOfDate("2024.02.29"), midnight, "as before DICOM");
  t.equal(secondsOfDate("00010101"), Date.parse("0001-01-01T00:00:00Z") / 1000, "not 1901");
  for (const text of ["20230229", "20241301", "20240200", "2024.0229", "202402", "2024-02-29", ""])
    t.equal(secondsOfDate(text), undefined, text);
  const isDate = (text: string) => FORMS.get("DA")?.test(text);
  t.ok(["20240229", "20240131", "20240430", "20241231"].every(isDate));
  t.notOk(["20240230", "20240431", "20240532", "20240600", "20241301"].some(isDate));
  t.equal(secondsOfTime("100000"), 36_000);
  t.equal(secondsOfTime("10:00:00"), 36_000, "as before DICOM");
  t.equal(secondsOfTime("1000"), 36_000);
  t.equal(secondsOfTime("235960.5"), 86_400.5, "a leap second");
  for (const text of [
    "10",
    "240000",
    "106000",
    "10:0000",
    "1000:00",
    "100000.",
    "10 00",
    "1e3000",
    "",
  ])
    t.equal(secondsOfTime(text), undefined, text);
  t.end();
});

t.test("moments and offsets", (t) => {
  const local = Date.UTC(2024, 1, 29, 9, 30) / 1000;
  t.strictSame(momentOf("202402290930"), { local, offset: undefined });
  t.strictSame(momentOf("20240229093000.25+0130"), { local: local + 0.25, offset: 90 });
  t.strictSame(momentOf("20240229093000-1200"), { local, offset: -720 });
  const none = [
    "20240229",
    "20240229093000+1500",
    "20240229093000-1230",
    "20240229093000Z",
    "20230229093000",
  ];
  for (const text of none) t.equal(momentOf(text), undefined, text);
  t.equal(minutesOfOffset("+0545"), 345);
  for (const text of ["-0000", "0100", "+01:00", "+0160", undefined])
    t.equal(minutesOfOffset(text), undefined);
  t.end();
});
