import t from "tap";
import { Kept } from "../../src/base/bounded-cache.js";

t.test("what was made is not made again, until more was kept than is allowed", (t) => {
  const made: string[] = [];
  const kept = new Kept<string>(160, (value) => value.length);
  const ask = (key: string) =>
    kept.get(key, () => {
      made.push(key);
      return key.repeat(10);
    });
  for (const key of ["a", "b", "a"]) t.equal(ask(key), key.repeat(10));
  t.same(made, ["a", "b"]);
  // Sixteen have room: of the seventeenth and b, b was asked for longest ago
  for (const key of Array.from("cdefghijklmnopq")) ask(key);
  made.length = 0;
  t.equal(ask("a"), "aaaaaaaaaa");
  t.same(made, []);
  t.equal(ask("b"), "bbbbbbbbbb");
  t.same(made, ["b"]);
  t.end();
});

t.test("keeping a key again counts once, and what is too large is not kept", (t) => {
  const kept = new Kept<string>(160, (value) => value.length);
  kept.keep("first", "0123456789");
  for (let i = 0; i < 100; i++) kept.keep("again", "0123456789");
  t.equal(kept.find("first"), "0123456789");
  kept.keep("large", "x".repeat(11));
  t.equal(kept.find("large"), undefined);
  t.end();
});
