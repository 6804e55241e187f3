/**
 * Contours against masks: what they enclose is filled again, and is the mask, whatever its form.
 */
import t from "tap";
import { boxesOf, contoursOf, filled, type Contour } from "../../../src/results/dicom/contours.js";

const plane = (...lines: string[]) => ({
  labels: Uint8Array.from(lines.join(""), (character) => Number(character)),
  rows: lines.length,
  columns: lines[0]!.length,
});

function contours({ labels, rows, columns }: ReturnType<typeof plane>, label = 1): Contour[] {
  const box = boxesOf(labels, rows, columns).get(label);
  return box === undefined ? [] : contoursOf({ labels, stride: columns, label, box });
}

/**
 * Twice the area by the shoelace formula; lines that run clockwise, as a person sees them, are
 * positive.
 */
function doubledArea(points: Contour): number {
  let sum = 0;
  for (let i = 0; i < points.length; i += 2) {
    const next = (i + 2) % points.length;
    sum += points[i]! * points[next + 1]! - points[next]! * points[i + 1]!;
  }
  return sum;
}

t.test("a rectangle has its four corners, clockwise", (t) => {
  t.strictSame(contours(plane("000", "011", "011")), [[1, 1, 3, 1, 3, 3, 1, 3]]);
  t.strictSame(contours(plane("0")), []);
  t.end();
});

t.test("pixels that touch at a corner are two contours", (t) => {
  t.strictSame(contours(plane("10", "01")), [
    [0, 0, 1, 0, 1, 1, 0, 1],
    [1, 1, 2, 1, 2, 2, 1, 2],
  ]);
  t.end();
});

t.test("a hole is joined by a cut to the line around it", (t) => {
  const [ring, ...others] = contours(plane("111", "101", "111"));
  t.strictSame(others, []);
  t.strictSame(ring, [0, 0, 3, 0, 3, 3, 0, 3, 0, 1, 1, 1, 1, 2, 2, 2, 2, 1, 0, 1]);
  t.equal(doubledArea(ring!), 16);
  t.end();
});

t.test("labels are told apart", (t) => {
  const both = plane("1122", "1122");
  t.strictSame(contours(both, 1), [[0, 0, 2, 0, 2, 2, 0, 2]]);
  t.strictSame(contours(both, 2), [[2, 0, 4, 0, 4, 2, 2, 2]]);
  t.end();
});

t.test("what contours enclose is the mask, and their area its pixels", (t) => {
  let state = 42;
  const random = () => (state = (state * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
  for (let round = 0; round < 300; round++) {
    const [rows, columns] = [1 + Math.floor(random() * 24), 1 + Math.floor(random() * 24)];
    const density = random();
    const labels = Uint8Array.from({ length: rows * columns }, () => Number(random() < density));
    const found = contours({ labels, rows, columns });
    t.strictSame(Array.from(filled(found, rows, columns)), Array.from(labels));
    const area = found.reduce((sum, points) => sum + doubledArea(points), 0);
    t.equal(area, 2 * labels.reduce((sum, label) => sum + label, 0), "the cuts have no area");
  }
  t.end();
});

t.test("a hole in an island in a hole, and holes in a row", (t) => {
  const nested = plane("1111111", "1000001", "1011101", "1010101", "1011101", "1000001", "1111111");
  t.equal(contours(nested).length, 2);
  t.strictSame(Array.from(filled(contours(nested), 7, 7)), Array.from(nested.labels));
  const row = plane("1111111", "1010101", "1111111");
  t.equal(contours(row).length, 1);
  t.strictSame(Array.from(filled(contours(row), 3, 7)), Array.from(row.labels));
  t.end();
});

t.test("thousands of holes that hang on each other", (t) => {
  const columns = 20_001;
  const labels = new Uint8Array(3 * columns).fill(1);
  for (let x = 1; x < columns - 1; x += 2) labels[columns + x] = 0;
  const found = contours({ labels, rows: 3, columns });
  t.equal(found.length, 1);
  t.equal(Buffer.compare(filled(found, 3, columns), labels), 0);
  t.end();
});
