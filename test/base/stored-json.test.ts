/** Texts over which readers differ are not read. */
import t from "tap";
import { storedJson } from "../../src/base/stored-json.js";

const bytes = (...parts: (string | number)[]) =>
  Buffer.concat(
    parts.map((part) => (typeof part === "number" ? Buffer.from([part]) : Buffer.from(part))),
  );

t.test("what all readers understand alike is read", (t) => {
  const value = { a: [1, -0.5e3, "é\u0000"], b: { a: null } };
  const text = JSON.stringify(value, null, 2);
  t.same(storedJson(text), value);
  t.same(storedJson(Buffer.from(text)), value);
  t.same(
    storedJson(` ${"[".repeat(32)}1${"]".repeat(32)}\n`),
    JSON.parse("[".repeat(32) + "1" + "]".repeat(32)),
  );
  t.end();
});

t.test("what readers differ over is not", (t) => {
  const cases: [string, Uint8Array | string][] = [
    ["nothing", ""],
    ["no JSON", "{a: 1}"],
    ["two texts", "{}{}"],
    ["a comment", "{} // x"],
    ["a field twice", '{"models": [], "models": [1]}'],
    ["the same in other letters", '{"models": [], "mod\\u0065ls": [1]}'],
    ["a field twice, deep in it", '{"a": [{"b": {"c": 1, "c": 1}}]}'],
    ["a prototype", '{"__proto__": {"trusted": true}}'],
    ["a prototype in other letters", '{"\\u005f_proto__": {}}'],
    ["a byte order mark", "\ufeff{}"],
    ["the same in bytes", bytes(0xef, 0xbb, 0xbf, "{}")],
    ["no UTF-8", bytes('{"a": "', 0xff, '"}')],
    ["an overlong form", bytes('{"a": "', 0xc0, 0xaf, '"}')],
    ["UTF-16", Buffer.from('{"a": 1}', "utf16le")],
    ["NUL at the end", bytes("{}", 0)],
    ["NUL in a text", bytes('{"a": "', 0, '"}')],
    ["a line feed in a text", '{"a": "\n"}'],
    ["a number that no double holds", '{"a": 1e999}'],
    ["NaN", '{"a": NaN}'],
    ["a number with a zero before it", '{"a": 01}'],
    ["nested too deep", "[".repeat(33) + "]".repeat(33)],
    ["nested so deep that a stack ends", "[".repeat(1_000_000)],
    ["a comma at the end", "[1,]"],
  ];
  for (const [what, text] of cases) t.equal(storedJson(text), undefined, what);
  t.end();
});
