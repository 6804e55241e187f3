/** A test that is killed leaves no server, no database and no folder behind. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import t from "tap";
import { endsWithTest } from "./ends-with-test.js";
import { ADDON, needs } from "./needs.js";
import { commandOf } from "./processes.js";
import { until } from "./until.js";

/** A zombie does not: its command line is empty. */
const runs = (pid: number) => Boolean(commandOf(pid));

t.test(
  "a server and its private database end with a test that is killed",
  { skip: needs(ADDON) },
  async (t) => {
    const file = fileURLToPath(new URL("./abandoned-server.js", import.meta.url));
    const child = spawn(process.execPath, [file], { stdio: ["ignore", "pipe", "inherit"] });
    const [text] = (await once(child.stdout, "data")) as [Buffer];
    const { opened, pids, directory } = JSON.parse(text.toString()) as {
      opened: number;
      pids: number[];
      directory: string;
    };
    t.equal(opened, 200);
    t.equal(pids.length, 4, "supervisor, serving process, database and decoder process");
    for (const pid of pids) t.ok(runs(pid), "it runs");

    child.kill("SIGKILL");
    await until(
      "all that the test had started has gone",
      () => !pids.some(runs) && !existsSync(directory),
    );
    t.pass("all are gone");
  },
);

t.test("only a folder of one test is taken", (t) => {
  for (const folder of ["", "/", "/tmp", "/home/user", "relative-aB3dE6"])
    t.throws(() => endsWithTest(folder), /Expected a folder that mkdtemp made/);
  t.end();
});
