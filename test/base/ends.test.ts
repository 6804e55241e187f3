import t from "tap";
import { withoutEnd, withoutEnds } from "../../src/base/ends.js";

t.test("what fills a text up at its ends is left out, and nothing inside", (t) => {
  t.equal(withoutEnd(" 1.2 3\0 \0", "\0 "), " 1.2 3");
  t.equal(withoutEnds("\0 1.2 3\0 \0", "\0 "), "1.2 3");
  t.equal(withoutEnds("--a_b-_", "-_"), "a_b");
  for (const text of ["", "   ", "\0"]) {
    t.equal(withoutEnd(text, "\0 "), "");
    t.equal(withoutEnds(text, "\0 "), "");
  }
  t.equal(withoutEnds("none", "\0 "), "none");
  t.end();
});
