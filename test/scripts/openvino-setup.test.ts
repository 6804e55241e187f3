/**
 * `npm run setup:openvino` with what is not the pinned wheel, in a copy of what it needs: each is
 * refused by its name, and nothing is put in place. CI runs it with the wheel before the group
 * openvino.
 */
import { execFile } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { ADDON, needs } from "../support/needs.js";
import { root } from "../support/server.js";

t.test("what is not the wheel is refused", { skip: needs(ADDON) }, async (t) => {
  const copy = t.testdir({ "wheel.whl": "no wheel" });
  cpSync(join(root, "scripts"), join(copy, "scripts"), { recursive: true });
  copyFileSync(join(root, "package.json"), join(copy, "package.json"));
  symlinkSync(realpathSync(join(root, "node_modules")), join(copy, "node_modules"));
  const release = join(copy, "build/Release");
  mkdirSync(release, { recursive: true });
  writeFileSync(join(release, "addon.node"), "");
  const refused = async (wheel: string) => {
    const script = join(copy, "scripts/setup-openvino.mjs");
    const failed = await promisify(execFile)(process.execPath, [script, wheel]).then(
      () => undefined,
      (error: unknown) => error as { code: number; stderr: string },
    );
    t.strictSame(readdirSync(release), ["addon.node"], "nothing is put in place");
    return failed;
  };
  const wheel = join(copy, "wheel.whl");
  const how = /-m pip download .* --dest=\. openvino==.*npm run setup:openvino -- WHEEL\n$/;
  const [absent, folder, other] = [
    await refused(join(copy, "absent.whl")),
    await refused(release),
    await refused(wheel),
  ];
  t.match(absent, { code: 1, stderr: /^radserve: Expected a wheel .* found none .*\(ENOENT\)/ });
  t.match(folder, { code: 1, stderr: /^radserve: Expected a wheel .* found none .*\(EISDIR\)/ });
  t.match(other, {
    code: 1,
    stderr: /wheel\.whl has sha256 [0-9a-f]{64}, expected 2d22b1da[0-9a-f]+: it is not the wheel/,
  });
  for (const failed of [absent, folder, other]) t.match(failed?.stderr, how, "and what to do");
});
