/** `radserve audit verify` on a chain of several days in which somebody has changed something. */
import { randomBytes } from "node:crypto";
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { headText, lineOf, NO_HEAD, type AuditEntry, type Head } from "../../src/audit/entry.js";
import { readKey } from "../../src/audit/folders.js";
import { filesOf, linesOf, pathsOf, verified } from "../support/audit.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, radserve, type Place } from "../support/server.js";

const skip = needs(ADDON);

const DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"];
const LINES_A_DAY = 10;

/** Three days of a chain, as a server writes them, and the head of each. */
function threeDays(t: Test): { place: Place; heads: Head[] } {
  const place = makePlace();
  t.teardown(() => place.remove());
  const { folder, chainKey, namesKey, head: headFile } = pathsOf(place);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (const file of [chainKey, namesKey])
    writeFileSync(file, randomBytes(32).toString("base64url"), { mode: 0o600 });
  const key = readKey(chainKey);
  const heads: Head[] = [];
  let head = NO_HEAD;
  const add = (day: string, facts: Pick<AuditEntry, "kind"> & Partial<AuditEntry>) => {
    const entry = { ...facts, seq: head.seq + 1, time: `${day}T10:00:00.000Z`, host: "box" };
    const made = lineOf(key, head, entry);
    appendFileSync(path.join(folder, `${day}.jsonl`), made.text, { mode: 0o600 });
    head = made.head;
    writeFileSync(headFile, headText(head));
  };
  for (const day of DAYS) {
    add(day, { kind: "day", previous: head });
    for (let i = 1; i < LINES_A_DAY; i++)
      add(day, { kind: "page", subject: `user-${i}`, outcome: "done" });
    heads.push(head);
  }
  return { place, heads };
}

const [FIRST, SECOND, THIRD] = DAYS.map((day) => `${day}.jsonl`);

interface Tampering {
  what: string;
  change: (files: string[]) => void;
  /** Where it is found first. */
  file: string | undefined;
  line: number;
  message: RegExp;
  /** Only a head shows it. */
  withHead?: boolean;
}

const edit = (file: string, change: (lines: string[]) => string[]) =>
  writeFileSync(file, change(readFileSync(file, "utf8").trimEnd().split("\n")).join("\n") + "\n");

const TAMPERINGS: Tampering[] = [
  {
    what: "a field of a line is edited",
    change: ([, second]) =>
      edit(second!, (lines) => lines.with(4, lines[4]!.replace("user-4", "user-9"))),
    file: SECOND,
    line: 5,
    message: /edited/,
  },
  {
    what: "only the order of a line's fields is changed",
    change: ([, second]) =>
      edit(second!, (lines) =>
        lines.with(4, lines[4]!.replace(/^\{("host":"box"),("kind":"page"),/, "{$2,$1,")),
      ),
    file: SECOND,
    line: 5,
    message: /edited/,
  },
  {
    what: "the MAC of a line is edited",
    change: ([first]) =>
      edit(first!, (lines) => lines.with(2, lines[2]!.replace(/"mac":"..../, '"mac":"0000'))),
    file: FIRST,
    line: 3,
    message: /edited/,
  },
  {
    what: "a line is removed",
    change: ([, second]) => edit(second!, (lines) => lines.toSpliced(4, 1)),
    file: SECOND,
    line: 5,
    message: /Line 15 is missing/,
  },
  {
    what: "several lines are removed",
    change: ([, second]) => edit(second!, (lines) => lines.toSpliced(4, 3)),
    file: SECOND,
    line: 5,
    message: /Lines 15 to 17 are missing/,
  },
  {
    what: "a line is added",
    change: ([, second]) => edit(second!, (lines) => lines.toSpliced(4, 0, lines[2]!)),
    file: SECOND,
    line: 5,
    message: /moved, repeated or added/,
  },
  {
    what: "a line of another key is added",
    change: ([, second]) => {
      const other = pathsOf({
        environment: { RADSERVE_STATE_DIR: path.dirname(path.dirname(second!)) },
      } as never);
      writeFileSync(`${other.chainKey}.other`, randomBytes(32).toString("base64url"));
      const key = readKey(`${other.chainKey}.other`);
      edit(second!, (lines) => {
        const { seq, mac } = JSON.parse(lines[4]!) as Head;
        const entry = {
          kind: "page",
          seq: seq + 1,
          time: "2026-01-02T10:00:00.000Z",
          host: "box",
        } as const;
        return lines.toSpliced(5, 1, lineOf(key, { seq, mac }, entry).text.trimEnd());
      });
    },
    file: SECOND,
    line: 6,
    message: /edited/,
  },
  {
    what: "two lines change places",
    change: ([, second]) => edit(second!, (lines) => lines.with(4, lines[5]!).with(5, lines[4]!)),
    file: SECOND,
    line: 5,
    message: /missing before/,
  },
  {
    what: "a line moves to another day",
    change: ([first, second]) => {
      const moved = readFileSync(first!, "utf8").split("\n")[5]!;
      edit(first!, (lines) => lines.toSpliced(5, 1));
      edit(second!, (lines) => [...lines, moved]);
    },
    file: FIRST,
    line: 6,
    message: /Line 6 is missing/,
  },
  {
    what: "something that is no line stands between two",
    change: ([, second]) => edit(second!, (lines) => lines.toSpliced(4, 0, "nothing")),
    file: SECOND,
    line: 5,
    message: /something else/,
  },
  {
    what: "something that is no line stands at the end, before a piece of one",
    change: ([, , third]) => appendFileSync(third!, "nothing\nhalf"),
    file: THIRD,
    line: 11,
    message: /something else/,
  },
  {
    what: "the file of a day is gone",
    change: ([, second]) => rmSync(second!),
    file: THIRD,
    line: 1,
    message: /Lines 11 to 20 are missing .*a file is missing/,
  },
  {
    what: "the first file is gone",
    change: ([first]) => rmSync(first!),
    file: SECOND,
    line: 1,
    message: /Lines 1 to 10 are missing/,
  },
  {
    what: "the end of a day is cut off",
    change: ([, second]) => edit(second!, (lines) => lines.slice(0, -2)),
    file: THIRD,
    line: 1,
    message: /Lines 19 to 20 are missing .*the end of the one before/,
  },
  {
    what: "a number is left out by whoever has the key",
    change: ([, , third]) => {
      const state = path.dirname(path.dirname(third!));
      const key = readKey(
        pathsOf({ environment: { RADSERVE_STATE_DIR: state } } as never).chainKey,
      );
      edit(third!, (lines) => {
        const { seq, mac } = JSON.parse(lines.at(-1)!) as Head;
        const entry = {
          kind: "page",
          seq: seq + 2,
          time: "2026-01-03T10:00:00.000Z",
          host: "box",
        } as const;
        return [...lines, lineOf(key, { seq, mac }, entry).text.trimEnd()];
      });
    },
    file: THIRD,
    line: 11,
    message: /Expected line 31; found 32/,
  },
  {
    what: "the end of a day is moved to a file of its own",
    change: ([, , third]) => {
      const lines = readFileSync(third!, "utf8").trimEnd().split("\n");
      const fourth = path.join(path.dirname(third!), "2026-01-04.jsonl");
      writeFileSync(fourth, lines.slice(-2).join("\n") + "\n");
      edit(third!, (all) => all.slice(0, -2));
    },
    file: "2026-01-04.jsonl",
    line: 1,
    message: /The beginning of the file is gone/,
  },
  {
    what: "the end of the last day is cut off",
    change: ([, , third]) => edit(third!, (lines) => lines.slice(0, -2)),
    file: THIRD,
    line: 8,
    message: /The end is cut off: expected line 30/,
    withHead: true,
  },
  {
    what: "the last file is gone",
    change: ([, , third]) => rmSync(third!),
    file: SECOND,
    line: 10,
    message: /The end is cut off/,
    withHead: true,
  },
];

t.test("what was done to the files", { skip }, async (t) => {
  const { place, heads } = threeDays(t);
  const head = headText(heads[2]!);
  const { folder } = pathsOf(place);
  const kept = path.join(place.directory, "kept");
  cpSync(folder, kept, { recursive: true });
  t.match(await verified(place, "--head", head), {
    status: 0,
    ok: true,
    lines: 30,
    head,
    faults: { length: 0 },
    notes: { length: 0 },
  });

  for (const { what, change, file, line, message, withHead } of TAMPERINGS) {
    await t.test(what, async (t) => {
      change(filesOf(place));
      if (withHead === true)
        t.match(await verified(place, "--folder", folder), {
          status: 0,
          notes: [{ message: /No head was given, so a cut end would not show/ }],
        });
      const { status, faults } = await verified(
        place,
        ...(withHead === true ? ["--head", head] : []),
      );
      t.equal(status, 1);
      t.match(faults[0], { file, line, message });
      rmSync(folder, { recursive: true });
      cpSync(kept, folder, { recursive: true });
    });
  }
  const text = await radserve(place, "audit", "verify");
  t.match(text, { status: 0, stdout: `ok: 30 lines in 3 files; head ${head}\n` });
});

t.test("heads, days and folders", { skip }, async (t) => {
  const { place, heads } = threeDays(t);
  for (const head of heads) t.match(await verified(place, "--head", headText(head)), { ok: true });
  const wrong = `20:${"0".repeat(64)}`;
  t.match(await verified(place, "--head", wrong), {
    status: 1,
    faults: [{ message: /Expected line 20 as the head 20:0+ names it/ }],
  });
  t.match(await radserve(place, "audit", "verify", "--head", "nonsense"), {
    status: 2,
    stderr: /--head: expected/,
  });

  const [first, second] = filesOf(place);
  const archive = path.join(place.directory, "archive");
  mkdirSync(archive);
  for (const file of [first!, second!]) cpSync(file, path.join(archive, path.basename(file)));
  t.match(
    await verified(place, "--from", DAYS[1]!),
    { ok: true, files: 2, lines: 20 },
    "files of before stay",
  );
  rmSync(first!);
  t.match(
    await verified(place, "--from", DAYS[1]!),
    { ok: true, lines: 20 },
    "the rest stands by itself",
  );
  rmSync(second!);
  t.match(await verified(place, "--from", DAYS[2]!), { ok: true, lines: 10 });
  const [ofFirst, ofSecond, ofThird] = heads.map(headText);
  t.match(
    await verified(
      place,
      "--from",
      DAYS[2]!,
      "--head",
      ofFirst!,
      "--head",
      ofSecond!,
      "--head",
      ofThird!,
    ),
    { ok: true, notes: [{ message: new RegExp(`the head ${ofFirst} names lies before`) }] },
    "a head of the days before is no fault, and the one that the first line follows is known by it",
  );
  t.match(
    await verified(place, "--from", DAYS[2]!, "--head", wrong),
    { status: 1, faults: [{ message: /Expected line 20 as the head 20:0+ names it/ }] },
    "unless the first line follows another",
  );
  t.match(await verified(place, "--folder", archive, "--head", headText(heads[1]!)), {
    ok: true,
    lines: 20,
  });
  for (const day of ["yesterday", "2026-13-01", "2026-02-30"])
    t.match(await radserve(place, "audit", "verify", "--from", day), {
      status: 2,
      stderr: /--from: expected a day/,
    });

  const { chainKey } = pathsOf(place);
  writeFileSync(chainKey, "short");
  t.match(await radserve(place, "audit", "verify"), { status: 2, stderr: /expected 32 bytes/ });
  rmSync(chainKey);
  t.match(await radserve(place, "audit", "verify"), {
    status: 2,
    stderr: /expected the key of the audit/,
  });
  t.match(
    await radserve(place, "key", "new"),
    { status: 2, stderr: /expected the key of the audit that lies beside it; found none/ },
    "no new key is made beside lines of another",
  );
});

t.test(
  "a chain of before goes on with what a command adds, after a write that was torn",
  { skip },
  async (t) => {
    const { place, heads } = threeDays(t);
    const last = filesOf(place)[2]!;
    // Half a line, and what some file systems leave of one after a power cut
    for (const torn of ['{"host":"box","ki', "\0".repeat(500), "half\nof two\nlines"]) {
      appendFileSync(filesOf(place).at(-1)!, torn);
      const before = await verified(place);
      t.match(await radserve(place, "key", "new"), { status: 0 });
      const after = await verified(place, "--head", headText(heads[2]!));
      t.match(after, { ok: true, faults: { length: 0 } });
      t.match(after.notes.at(-1)!.message, new RegExp(`^${torn.length} bytes are not a line`));
      t.ok(after.lines > before.lines);
      t.ok(
        readFileSync(filesOf(place).at(-1)!, "utf8").includes(torn) ||
          readFileSync(last, "utf8").includes(torn),
      );
    }
    t.match(linesOf(place).at(-1), { kind: "command", command: "key new" });
    const half = '{"host":"box","ki';
    const file = filesOf(place).find((each) =>
      readFileSync(each, "utf8").split("\n").includes(half),
    )!;
    const kept = readFileSync(file);
    edit(file, (lines) => lines.toSpliced(lines.indexOf(half) + 1, 0, "nothing"));
    t.match(
      await verified(place),
      { status: 1, faults: [{ file: path.basename(file), message: /something else/ }] },
      "a line that was added behind what is torn is told",
    );
    writeFileSync(file, kept);
    t.equal(statSync(filesOf(place).at(-1)!).mode & 0o777, 0o600);
    for (const changed of ['{"host":"fox","ki', '{"host":"box","k']) {
      const text = readFileSync(last, "utf8");
      edit(last, (lines) => lines.map((line) => (line === '{"host":"box","ki' ? changed : line)));
      t.match(
        await verified(place),
        { status: 1, faults: [{ message: /something else/ }] },
        `the evidence is covered too: ${changed}`,
      );
      writeFileSync(last, text);
    }
  },
);
