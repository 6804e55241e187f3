import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { readFile, readdir, writeFile } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import t from "tap";
import { RadserveError } from "../../src/base/errors.js";
import { openInput, openOutputFolder } from "../../src/files/guarded-paths.js";
import { narrowRoots } from "../../src/files/roots.js";
import { leaveMark } from "../../src/files/folder-mark.js";

const base = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-paths-")));
t.teardown(() => rmSync(base, { recursive: true, force: true }));
const inside = path.join(base, "root");
const outside = path.join(base, "rootless");
for (const folder of [inside, outside, path.join(inside, "series")]) mkdirSync(folder);
writeFileSync(path.join(inside, "a.dcm"), "inside");
writeFileSync(path.join(outside, "secret.dcm"), "outside");
symlinkSync(path.join(inside, "a.dcm"), path.join(inside, "good-link"));
symlinkSync(path.join(outside, "secret.dcm"), path.join(inside, "file-link"));
symlinkSync(outside, path.join(inside, "folder-link"));
symlinkSync(path.join(outside, "nothing"), path.join(inside, "dangling-link"));
symlinkSync(path.join(inside, "loop"), path.join(inside, "loop"));
const roots = [inside];

async function input(given: string, allowed: string[] | "anywhere" = roots): Promise<string> {
  try {
    const opened = await openInput(given, allowed === "anywhere" ? undefined : allowed);
    opened.close();
    return `${opened.kind} ${opened.name}`;
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return error.code;
  }
}

async function output(given: string, options = {}): Promise<string> {
  try {
    const opened = await openOutputFolder(given, roots, options);
    opened.close();
    return opened.realPath;
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return error.code;
  }
}

t.test("inputs", async (t) => {
  const cases: [string, string][] = [
    [`${inside}/a.dcm`, "file a.dcm"],
    [`${inside}/series`, "folder series"],
    [`${inside}/series/`, "folder series"],
    [`${inside}//series/../a.dcm`, "file a.dcm"],
    [`${inside}/good-link`, "file good-link"],
    [inside, "folder root"],
    ["a.dcm", "bad_request"],
    ["", "bad_request"],
    [`${inside}/a\0.dcm`, "bad_request"],
    [`${inside}/${"x".repeat(300)}`, "input_not_found"],
    [`${inside}/${"ä".repeat(200)}/a.dcm`, "input_not_found"],
    [`${inside}${"/nothing".repeat(600)}`, "input_not_found"],
    [`${outside}/${"x".repeat(300)}`, "path_not_allowed"],
    [`${inside}/folder-link/${"x".repeat(300)}`, "path_not_allowed"],
    [`${outside}${"/nothing".repeat(600)}`, "path_not_allowed"],
    [`${outside}/secret.dcm`, "path_not_allowed"],
    [`${inside}/../rootless/secret.dcm`, "path_not_allowed"],
    [`${inside}/file-link`, "path_not_allowed"],
    [`${inside}/folder-link/secret.dcm`, "path_not_allowed"],
    [`${inside}/folder-link/nothing`, "path_not_allowed"],
    [`${inside}/dangling-link`, "path_not_allowed"],
    [`${inside}/loop`, "input_not_found"],
    [`${inside}/nothing/../../rootless/secret.dcm`, "path_not_allowed"],
    [`${outside}/nothing`, "path_not_allowed"],
    ["/no/such/folder", "path_not_allowed"],
    ["/", "path_not_allowed"],
    [base, "path_not_allowed"],
    ["/dev/zero", "path_not_allowed"],
    [`${inside}/nothing.dcm`, "input_not_found"],
    [`${inside}/nothing/deep/x.dcm`, "input_not_found"],
    [`${inside}/a.dcm/x`, "input_not_found"],
  ];
  for (const [given, expected] of cases)
    t.equal(await input(given), expected, given.slice(0, 100).replace(base, ""));
  t.equal(
    await input(`${outside}/secret.dcm`, "anywhere"),
    "file secret.dcm",
    "without roots anything",
  );
});

t.test("pipes, sockets and devices are refused without waiting", async (t) => {
  const pipe = path.join(inside, "pipe");
  execFileSync("mkfifo", [pipe]);
  const socket = net.createServer().listen(path.join(inside, "socket"));
  await new Promise((resolve) => socket.once("listening", resolve));
  t.teardown(() => socket.close());
  t.equal(await input(pipe), "bad_request");
  t.equal(await input(path.join(inside, "socket")), "bad_request");
  t.equal(await input("/dev/zero", ["/dev"]), "bad_request");
});

t.test("the opened file stays the one that was judged", async (t) => {
  const file = path.join(inside, "swapped.dcm");
  writeFileSync(file, "judged");
  const opened = await openInput(file, roots);
  rmSync(file);
  symlinkSync(path.join(outside, "secret.dcm"), file);
  t.equal(await readFile(opened.fdPath, "utf8"), "judged");
  opened.close();
});

t.test("outputs", async (t) => {
  const cases: [string, string][] = [
    [inside, inside],
    [`${inside}/new/deep/`, `${inside}/new/deep`],
    [`${inside}/series/../made`, `${inside}/made`],
    ["results", "bad_request"],
    [`${inside}/a.dcm`, "bad_request"],
    [`${inside}/a.dcm/x`, "bad_request"],
    ["\\\\server\\share", "path_not_allowed"],
    [`${inside}/new/.a.dcm.radserve`, "bad_request"],
    [`${inside}/made/.radserve`, `${inside}/made/.radserve`],
    [`${inside}/../rootless`, "path_not_allowed"],
    [`${inside}/../rootless/new`, "path_not_allowed"],
    [`${inside}/folder-link`, "path_not_allowed"],
    [`${inside}/folder-link/new`, "path_not_allowed"],
    [`${inside}/dangling-link`, "path_not_allowed"],
    [`${inside}/dangling-link/new`, "path_not_allowed"],
    [`${inside}/nothing/../../rootless/new`, "path_not_allowed"],
    [`${outside}/new`, "path_not_allowed"],
    [`${inside}/${"x".repeat(300)}`, "path_not_allowed"],
    [`${inside}/${"ä".repeat(200)}/new`, "path_not_allowed"],
    [`${inside}${"/nothing".repeat(600)}`, "path_not_allowed"],
  ];
  for (const [given, expected] of cases)
    t.equal(await output(given), expected, given.slice(0, 100).replace(base, ""));
  t.notOk(existsSync(path.join(inside, "nothing")), "nor is a part made of what is too long");
  t.notOk(existsSync(path.join(outside, "new")), "nothing was made outside");
  t.notOk(existsSync(path.join(outside, "nothing")), "nor through a link");
  t.equal(await output(`${inside}/later/x`, { create: false }), inside);
  t.notOk(existsSync(path.join(inside, "later")), "nothing is made where only asked");
  t.equal(await output(inside, { minimumFreeBytes: 2 ** 60 }), "disk_full");
});

t.test("results are written through the descriptor", async (t) => {
  const folder = path.join(inside, "held");
  const opened = await openOutputFolder(folder, roots);
  await writeFile(`${opened.fdPath}/x.json`, "{}");
  t.strictSame(await readdir(folder), ["x.json"]);
  rmSync(folder, { recursive: true });
  symlinkSync(outside, folder);
  await t.rejects(
    writeFile(`${opened.fdPath}/y.json`, "{}"),
    "a link put in its place is not followed",
  );
  t.notOk(existsSync(path.join(outside, "y.json")));
  opened.close();
});

t.test(
  "no permission is said so",
  { skip: process.getuid?.() === 0 ? "runs as root, whom nothing is forbidden" : false },
  async (t) => {
    const file = path.join(inside, "closed.dcm");
    writeFileSync(file, "x", { mode: 0o000 });
    await t.rejects(openInput(file, roots), {
      code: "path_not_allowed",
      details: { reason: "permission" },
    });
    const folder = path.join(inside, "closed");
    mkdirSync(folder, { mode: 0o500 });
    await t.rejects(openOutputFolder(folder, roots), {
      code: "path_not_allowed",
      details: { reason: "permission" },
    });
    chmodSync(folder, 0o700);
  },
);

t.test("a narrowed root that does not exist yet", async (t) => {
  const narrowed = await narrowRoots(roots, [`${inside}/n1/deep`]);
  const refusal = {
    code: "path_not_allowed",
    details: { reason: "token" },
    message: /this token allows/,
  };
  await t.rejects(openInput(`${inside}/n1/deep/x.dcm`, narrowed), { code: "input_not_found" });
  await t.rejects(openInput(`${inside}/a.dcm`, narrowed), refusal);
  for (const other of ["n1/other", "n1", "n2", "n1/deep/../../n2", "folder-link/deep"])
    await t.rejects(openOutputFolder(`${inside}/${other}`, narrowed), refusal, other);
  t.notOk(existsSync(`${inside}/n1`), "nothing is made for what is refused");
  (await openOutputFolder(`${inside}/n1/deep/x`, narrowed, { create: false })).close();
  t.notOk(existsSync(`${inside}/n1`), "nor where only asked");
  const made = await openOutputFolder(`${inside}/n1/deep/x`, narrowed);
  t.equal(made.realPath, `${inside}/n1/deep/x`);
  made.close();
  await t.rejects(openOutputFolder(`${inside}/n1/other`, narrowed), refusal);
  await t.rejects(openOutputFolder(`${outside}/x`, roots), {
    message: /RADSERVE_OUTPUT_ROOTS extended/,
  });
  await t.rejects(openOutputFolder(`${inside}/x`, []), refusal);
});

t.test("a root that is away is not made again", async (t) => {
  const away = path.join(base, "away");
  await t.rejects(openOutputFolder(`${away}/x`, [away]), { code: "path_not_allowed" });
  t.notOk(existsSync(away));
  await t.rejects(openOutputFolder(`${away}/n/x`, [{ path: `${away}/n`, within: away }]), {
    code: "path_not_allowed",
  });
  t.notOk(existsSync(away));
});

t.test("an output folder without its mark", async (t) => {
  const share = path.join(base, "share");
  mkdirSync(path.join(share, "known"), { recursive: true });
  const marked = [{ path: share, within: share, mark: ".mark" }];
  for (const folder of [share, `${share}/known`, `${share}/new`])
    await t.rejects(openOutputFolder(folder, marked), {
      code: "path_not_allowed",
      details: { reason: "mark" },
    });
  t.notOk(existsSync(`${share}/new`));
  await leaveMark(share, ".mark");
  await leaveMark(share, ".mark");
  (await openOutputFolder(`${share}/new`, marked)).close();
  t.ok(existsSync(`${share}/new`));
  await t.rejects(
    openOutputFolder(inside, marked),
    { message: /OUTPUT_ROOTS extended/ },
    "no word of a token",
  );
});

t.test("links that lead nowhere", async (t) => {
  symlinkSync("gone.dcm", `${inside}/dead`);
  symlinkSync(`${inside}/gone-folder`, `${inside}/dead-folder`);
  symlinkSync("loop-b", `${inside}/loop-a`);
  symlinkSync("loop-a", `${inside}/loop-b`);
  symlinkSync("folder-link/gone", `${inside}/dead-outside`);
  symlinkSync("dead-outside", `${inside}/dead-outside-twice`);
  for (const name of ["dead", "dead-folder/x.dcm", "loop-a", "loop-a/x"])
    await t.rejects(
      openInput(`${inside}/${name}`, roots),
      { code: "input_not_found", message: /a link that leads nowhere/ },
      name,
    );
  for (const name of ["dead-outside", "dead-outside-twice", "dangling-link"])
    await t.rejects(openInput(`${inside}/${name}`, roots), { code: "path_not_allowed" }, name);
});
