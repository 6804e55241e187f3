/** What the comparison of two recordings takes as meant, and what not. */
import { writeFileSync } from "node:fs";
import t from "tap";
import { compare } from "../../scripts/outputs/compare.js";
import type { Expected } from "../../scripts/outputs/expected.js";

const line = (id: string, answer: unknown, sr: string) => ({
  id,
  status: 200,
  answer,
  files: { "a.sr.dcm": sr },
});
const BEFORE = [
  line("a.dcm: json", { warnings: [] }, "1"),
  line("b.dcm: json", { warnings: [] }, "1"),
];
const AFTER = [
  line("a.dcm: json", { warnings: ["new"] }, "2"),
  line("b.dcm: json", { warnings: [] }, "1"),
];
const SR: Expected = {
  cases: /^a\.dcm/,
  path: /^files\..*\.sr\.dcm$/,
  reason: "NUM 0 of absent labels",
};
const WARNED: Expected = { cases: /^a\.dcm/, path: /^answer\.warnings\./, reason: "a new warning" };

t.test("only expected differences pass, and each has to be there", (t) => {
  const folder = t.testdir();
  const written = (name: string, lines: readonly object[]) => {
    const head = { inputs: "the same" };
    writeFileSync(
      `${folder}/${name}`,
      [head, ...lines].map((one) => `${JSON.stringify(one)}\n`).join(""),
    );
    return `${folder}/${name}`;
  };
  const [before, after] = [written("before", BEFORE), written("after", AFTER)];
  const printed = t.capture(console, "log");
  const judged = (a: string, b: string, expected: readonly Expected[]) => {
    const equal = compare(a, b, expected);
    return {
      equal,
      text: printed()
        .flatMap(({ args }) => args as string[])
        .join("\n"),
    };
  };

  t.match(judged(before, before, []), { equal: true, text: "2 of 2 cases are equal (2 files)." });
  t.match(
    judged(before, after, []),
    { equal: false, text: 'files.a.sr.dcm: "1" became "2"' },
    "no reason",
  );
  const one = judged(before, after, [SR]);
  t.equal(one.equal, false, "one of two differences has a reason");
  t.match(one.text, "answer.warnings.0: undefined became");
  t.notMatch(one.text, '"1" became "2"', "what is expected is not listed");
  t.match(judged(before, after, [SR, WARNED]), {
    equal: true,
    text: /Met 1 times: .*NUM 0 of absent labels\n[^]*1 of 2 cases are equal, 1 differ as expected/,
  });
  const idle = { ...SR, cases: /^b\.dcm/ };
  t.match(judged(before, after, [SR, WARNED, idle]), { equal: false, text: /Never met: \/\^b/ });
  t.end();
});
