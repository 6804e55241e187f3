/** What commands say beside a share that never answers: in time, and which folder it is. */
import path from "node:path";
import t from "tap";
import { withDurations } from "../support/durations.js";
import { deadMount, mountsNothing } from "../support/mounts.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, radserve } from "../support/server.js";

const skip = needs(ADDON) || mountsNothing;

t.setTimeout(300_000);

t.test("doctor and status beside a dead share", { skip }, async (t) => {
  const place = makePlace(withDurations({ commandAnswer: 4_000 }));
  const dead = path.join(place.directory, "dead");
  const refused = await deadMount(t, place.directory, dead);
  if (refused !== undefined) {
    t.comment(`no FUSE here: ${refused}`);
    return;
  }
  const others = { ...place.environment };
  for (const [setting, name] of [
    ["RADSERVE_INPUT_ROOTS", "input root"],
    ["RADSERVE_OUTPUT_ROOTS", "output root"],
    ["RADSERVE_MODELS_DIR", "models"],
    ["RADSERVE_KEYS_DIR", "keys"],
  ] as const) {
    place.environment = { ...others, [setting]: dead };
    const { status, stdout, stderr } = await radserve(place, "doctor", "--json");
    t.equal(status, 1, stderr);
    const findings = JSON.parse(stdout) as { name: string; ok: boolean; found: string }[];
    const silent = findings.filter(({ found }) => found.includes("does not answer"));
    t.match(
      silent.filter(({ found }) => found.startsWith(dead)),
      [{ name, ok: false, found: `${dead}: its share or disk does not answer` }],
      setting,
    );
    t.ok(
      findings.some(({ name: one }) => one === "codecs"),
      `${setting}: all else is told`,
    );
  }
  place.environment = { ...others, RADSERVE_STATE_DIR: dead };
  const message = new RegExp(`${dead}: expected a folder for settings; its share or disk does not`);
  const status = await radserve(place, "status");
  t.match({ ...status, stdout: "" }, { status: 2, stderr: message });
  const doctor = await radserve(place, "doctor");
  t.match(doctor, { status: 1, stdout: message });
});
