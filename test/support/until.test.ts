/** What a test waits for in vain, and what the runner tells of it. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import t from "tap";
import { inTime, until } from "./until.js";

t.test("what comes is given back", async (t) => {
  let looks = 0;
  t.equal(await until("three looks", () => (looks += 1) === 3 && "it"), "it");
  t.equal(looks, 3);
  t.equal(await inTime("nothing", Promise.resolve(1)), 1);
});

t.test("after a failed assertion what never comes is soon given up", async (t) => {
  const file = new URL("./until.js", import.meta.url).href;
  const program = `
    import t from "tap";
    import { inTime, until } from ${JSON.stringify(file)};
    await t.test("fails", async (t) => {
      t.equal(1, 2);
      await Promise.all([
        t.rejects(until("the end of days", () => false), { message: "Waited 5 s for this: the end of days." }),
        t.rejects(inTime("an answer", new Promise(() => {})), { message: "Waited 5 s for this: an answer." }),
      ]);
    });`;
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program]);
  const { stdout } = await run.catch((error: unknown) => error as { stdout: string });
  t.match(stdout, /total: 3, pass: 2, fail: 1/, stdout);
});
