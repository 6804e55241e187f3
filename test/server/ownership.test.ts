/** What commands of root leave behind in the folders of a server that runs as another user. */
import { execFileSync } from "node:child_process";
import { chownSync, readdirSync, statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { isRoot } from "../support/postgres.js";
import { makePlace, radserve } from "../support/server.js";

const NOBODY = 65534;

t.test(
  "it belongs to the owner of the folder",
  { skip: isRoot ? false : "only root can" },
  async (t) => {
    const place = makePlace();
    t.teardown(() => place.remove());
    const state = place.environment["RADSERVE_STATE_DIR"]!;
    t.equal((await radserve(place, "init")).status, 0);
    execFileSync("chown", ["-R", `${NOBODY}:${NOBODY}`, state]);

    const issued = await radserve(place, "token", "issue", "--subject", "anna");
    t.equal(issued.status, 0, issued.stderr);
    const [jti = ""] =
      (await radserve(place, "token", "list")).stdout.split("\n")[1]?.split("\t") ?? [];
    t.equal((await radserve(place, "token", "revoke", jti)).status, 0);
    t.equal((await radserve(place, "key", "new")).status, 0);

    const entries = readdirSync(state, { recursive: true, encoding: "utf8" });
    t.ok(entries.includes("keys/revoked"), entries.join(" "));
    const others = entries.filter((entry) => statSync(path.join(state, entry)).uid !== NOBODY);
    t.strictSame(others, []);

    // As commands of earlier versions left it
    chownSync(path.join(state, "keys/revoked"), 0, 0);
    const doctor = await radserve(place, "doctor");
    t.match(doctor.stdout, /keys.*1 entry belongs to another user.*revoked/);
    t.equal((await radserve(place, "token", "revoke", "another")).status, 0);
    t.equal(
      statSync(path.join(state, "keys/revoked")).uid,
      NOBODY,
      "the next revocation gives it back",
    );
  },
);
