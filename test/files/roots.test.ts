import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import { innermostRoot, narrowRoots, resolveRoots } from "../../src/files/roots.js";

const base = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-roots-")));
t.teardown(() => rmSync(base, { recursive: true, force: true }));
const inside = path.join(base, "root");
const outside = path.join(base, "rootless");
for (const folder of [inside, outside, path.join(inside, "series")]) mkdirSync(folder);
const roots = [inside];

t.test("resolved, and narrowed by a token", async (t) => {
  symlinkSync(inside, path.join(base, "root-link"));
  symlinkSync(outside, path.join(inside, "folder-link"));
  symlinkSync(path.join(outside, "nothing"), path.join(inside, "dangling-link"));
  t.strictSame(await resolveRoots([path.join(base, "root-link")], "X"), [inside]);
  await t.rejects(
    resolveRoots([path.join(base, "gone")], "SETTING"),
    /SETTING: expected a folder at .*gone/,
  );
  await t.rejects(
    resolveRoots([`${base},${base}`], "SETTING"),
    /ENOENT.*several are separated by a colon/,
  );
  t.strictSame(await narrowRoots(roots, undefined), roots);
  t.strictSame(await narrowRoots(roots, [`${inside}/series`]), [
    { path: `${inside}/series`, within: inside },
  ]);
  t.strictSame(await narrowRoots(roots, [`${base}/root-link/n/m/`]), [
    { path: `${inside}/n/m`, within: inside },
  ]);
  t.strictSame(await narrowRoots(roots, [base]), roots, "a wider claim gives the root");
  t.strictSame(await narrowRoots([inside, outside], [inside]), [{ path: inside, within: inside }]);
  t.strictSame(
    await narrowRoots(roots, [
      outside,
      "/gone",
      `${inside}/folder-link`,
      `${inside}/folder-link/new`,
      `${inside}/dangling-link/new`,
      `${inside}/none/../../rootless`,
    ]),
    [],
    "elsewhere gives nothing",
  );
});

t.test("the innermost root of a path, whatever their order", (t) => {
  for (const nested of [
    ["/out", "/out/a/b", "/out/a"],
    ["/out/a/b", "/out/a", "/out"],
  ]) {
    t.equal(innermostRoot("/out/a/b/c", nested), "/out/a/b");
    t.equal(innermostRoot("/out/a/bc", nested), "/out/a");
    t.equal(innermostRoot("/outer", nested), undefined);
  }
  t.end();
});
