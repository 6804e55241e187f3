import t from "tap";
import { jsonFault } from "../../src/base/json-fault.js";

t.test("the place of a JSON fault", (t) => {
  const cases: [string, number, number][] = [
    ['{"a": b}', 1, 7],
    ['{"a": 1,}', 1, 9],
    ['{"a": 1', 1, 8],
    ['{\n "a": 1\n "b": 2}', 3, 2],
    ['{"a" 1}', 1, 6],
    ["[1, 2", 1, 6],
    ['["x]', 1, 2],
    ["{} x", 1, 4],
    ["[1]]", 1, 4],
    ["{,}", 1, 2],
    [`${"[".repeat(100_000)}x`, 1, 100_001],
    ['["\\x"]', 1, 2],
    ["[01]", 1, 3],
    ["", 1, 1],
  ];
  for (const [text, line, column] of cases) {
    t.throws(() => JSON.parse(text) as unknown, "is a fault");
    t.strictSame(jsonFault(text), { kind: "syntax", line, column }, text.slice(0, 20));
  }
  t.end();
});

t.test("what JSON.parse takes and other programs read otherwise", (t) => {
  t.equal(jsonFault(' {"a": [{"a": 1}, {"a": "\\u0061"}], "b": {"a": -1.5e3}} '), undefined);
  t.strictSame(jsonFault('{"a": 1,\n "\\u0061": 2}'), {
    kind: "repeated",
    field: "a",
    line: 2,
    column: 2,
  });
  t.strictSame(jsonFault('[{"__proto__": 1}]'), {
    kind: "prototype",
    field: "__proto__",
    line: 1,
    column: 3,
  });
  t.equal(jsonFault("[[1]]", 2), undefined);
  t.strictSame(jsonFault("[[1],[[1]]]", 2), { kind: "depth", line: 1, column: 7 });
  t.strictSame(jsonFault("[".repeat(3), 2), { kind: "depth", line: 1, column: 3 });
  t.end();
});
