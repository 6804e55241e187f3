/** The systemd unit, judged by systemd's own tools. */
import { spawnSync } from "node:child_process";
import t from "tap";
import { commandsAre } from "../support/needs.js";

const UNIT = "deploy/radserve.service";

t.test("the unit is confined", { skip: commandsAre("systemd-analyze") }, (t) => {
  // The threshold is the exposure level times ten
  const args = ["security", "--offline=true", "--no-pager", "--threshold=15", UNIT];
  const { status, stdout, stderr } = spawnSync("systemd-analyze", args, { encoding: "utf8" });
  t.equal(stderr.trim(), "", "no line is unknown or wrong");
  t.equal(status, 0, stdout.trim().split("\n").at(-1) ?? "");
  t.end();
});
