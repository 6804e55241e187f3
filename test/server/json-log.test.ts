/** Every line that a server writes is JSON, whoever writes it, and names no patient. */
import path from "node:path";
import t from "tap";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, root, startServer } from "../support/server.js";

const LOADED = path.join(root, "dist/test/support/foreign-words.js");

t.test("words of Node.js and of native libraries", { skip: needs(ADDON) }, async (t) => {
  const server = await startServer(makePlace({ NODE_OPTIONS: `--import=${LOADED}` }));
  const pids = [server.process.pid!, server.servingPid()];
  for (const pid of pids) process.kill(pid, "SIGUSR2");
  const foreign = ({ from, said, fault }: Record<string, unknown>) =>
    from === undefined ? (fault as { message?: string } | undefined)?.message : String(said);
  for (const words of [/^libjpeg: damaged '\.\.\.'$/, /TimeoutOverflowWarning/, /DEP9999/])
    t.match(await server.logged((line) => words.test(foreign(line) ?? "")), {
      level: "warn",
      from: pids[1],
    });
  const own = await server.logged(
    ({ pid, msg, fault }) =>
      pid === pids[0] && msg === "warning of Node.js" && /does not fit/.test(JSON.stringify(fault)),
  );
  t.match(own, { level: "warn", fault: { type: "TimeoutOverflowWarning" } });
  // startServer() throws where a line of standard output is no JSON
  t.notMatch(JSON.stringify(server.log), /PLANTED/);
  t.equal(await server.stop(), 0);
});
