/** What commands say of a server whose process is there and does nothing. */
import t from "tap";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, radserve, startServer } from "../support/server.js";

t.setTimeout(300_000);

t.test("a server that does not answer is told of in time", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace(
    withDurations({ commandAnswer: 4_000, commandCall: 4_000, commandWork: 4_000 }),
  );
  const server = await startServer(place);
  t.teardown(() => server.stop());
  Object.assign(place.environment, { RADSERVE_URL: server.url, RADSERVE_TOKEN: server.token });
  const serving = server.servingPid();
  process.kill(serving, "SIGSTOP");
  try {
    const status = await radserve(place, "status");
    t.equal(status.status, 1);
    t.match(status.stdout + status.stderr, /takes connections and does not answer/);
    const id = "00000000-0000-4000-8000-000000000000";
    const commands = [
      ["status", "--fleet"],
      ["jobs", "list"],
      ["jobs", "show", id],
      ["jobs", "reconcile", id],
      ["bulk", place.input, place.output],
      ["deliver", "list"],
      ["deliver", "retry", "--all"],
      ["deliver", "drop", id],
      ["received", "list"],
      ["received", "remove", "1.2.3"],
    ];
    for (const words of commands) {
      const { status, stdout, stderr } = await radserve(place, ...words);
      t.not(status, 0, words.join(" "));
      t.match(stdout + stderr, /takes connections and does not answer/, words.join(" "));
    }
    const doctor = await radserve(place, "doctor", "--json");
    t.equal(doctor.status, 1);
    const findings = JSON.parse(doctor.stdout) as { name: string; ok: boolean; found: string }[];
    t.match(
      findings.filter(({ name }) => name === "server"),
      [{ ok: false, found: /does not answer/ }],
    );
    t.ok(
      findings.some(({ name }) => name === "codecs"),
      "and all else is told",
    );
  } finally {
    process.kill(serving, "SIGCONT");
  }
});
