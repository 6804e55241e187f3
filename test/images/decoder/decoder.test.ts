/**
 * The process that decodes PNG, JPEG and TIFF: what becomes of its work when it ends, is slow, or
 * is not wanted.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import sharp from "sharp";
import t from "tap";
import { RadserveError } from "../../../src/base/errors.js";
import { readImage } from "../../../src/images/read-image.js";
import { failure } from "../../support/expect.js";
import { CONFINE, needs } from "../../support/needs.js";
import { commandOf, decodersOf } from "../../support/processes.js";
import { root } from "../../support/server.js";
import { until } from "../../support/until.js";

const png = (side: number) =>
  sharp({ create: { width: side, height: side, channels: 3, background: "grey" } })
    .png()
    .toBuffer();
const PNG = await png(8);
const OTHER = await png(16);
const skip = needs(CONFINE);
const mine = () => decodersOf(process.pid);
/** The decoder of this thread, at rest and then stopped: what it is given stays unanswered. */
async function stoppedDecoder(): Promise<number> {
  await readImage(PNG);
  const [decoder = 0, ...others] = mine();
  if (decoder === 0 || others.length > 0) throw new Error("Expected one decoder");
  process.kill(decoder, "SIGSTOP");
  return decoder;
}

/** Reads a picture, and resolves when its decoder has it. @param check asked while it waits */
async function begun(
  check: () => void = () => undefined,
): Promise<{ reading: Promise<RadserveError> }> {
  let asked = 0;
  const reading = failure(
    readImage(OTHER, () => {
      asked += 1;
      check();
    }),
  );
  // The decoder's work alone is asked about again and again
  await until("the decoder is at work", () => Promise.resolve(asked > 5));
  return { reading };
}

t.test("a decoder that ends in the middle fails its own work alone", { skip }, async (t) => {
  for (const [signal, code, message] of [
    ["SIGSEGV", "corrupt_image", /PNG file made its decoder crash \(SIGSEGV\)/],
    ["SIGSYS", "corrupt_image", /SIGSYS/],
    ["SIGKILL", "internal", /killed from outside \(SIGKILL\)/],
  ] as const) {
    const decoder = await stoppedDecoder();
    const { reading } = await begun();
    const waiting = readImage(PNG);
    process.kill(decoder, signal);
    process.kill(decoder, "SIGCONT");
    const error = await reading;
    t.equal(error.code, code, signal);
    t.match(error.message, message);
    t.match((await waiting).format, { rows: 8, columns: 8 }, "what waited gets a fresh process");
    await until("the decoder process has gone", () =>
      Promise.resolve(commandOf(decoder) === undefined),
    );
  }
});

t.test(
  "work that nobody wants is stopped with its process, and what waits is not",
  { skip },
  async (t) => {
    const decoder = await stoppedDecoder();
    const unwanted = new RadserveError("cancelled", "Nobody waits.");
    let wanted = true;
    const { reading } = await begun(() => {
      if (!wanted) throw unwanted;
    });
    const waiting = readImage(PNG);
    wanted = false;
    t.equal((await reading).code, "cancelled");
    t.match((await waiting).format, { rows: 8 });
    await until("the decoder process has gone", () =>
      Promise.resolve(commandOf(decoder) === undefined),
    );
  },
);

t.test("a decoder ends with the thread that started it", { skip }, async (t) => {
  const before = mine();
  const script = fileURLToPath(new URL("../../support/decoding-thread.js", import.meta.url));
  const thread = new Worker(script, { workerData: PNG });
  await once(thread, "message");
  const [decoder = 0] = mine().filter((pid) => !before.includes(pid));
  t.ok(decoder > 0);
  await thread.terminate();
  t.equal(commandOf(decoder), undefined, "it is gone, and no zombie");
});

t.test("a decoder has nothing of what its server was started with", { skip }, (t) => {
  const image = path.join(t.testdir({ "image.png": PNG }), "image.png");
  const script = fileURLToPath(new URL("../../support/decoder-descriptors.js", import.meta.url));
  // Above those that the runtime closes by itself
  const shell =
    'exec 101<"$1" 102> >(cat) 103</dev/zero 104<"$(dirname "$1")"; exec "$0" "$2" "$1"';
  const { stdout, stderr } = spawnSync("bash", ["-c", shell, process.execPath, image, script], {
    encoding: "utf8",
  });
  t.equal(stderr, "");
  const found = JSON.parse(stdout) as { descriptors: string[]; threads: string[] };
  const [first, second, third, channel, ...rest] = found.descriptors.sort(
    (a, b) => parseInt(a) - parseInt(b),
  );
  t.strictSame([first, second, third], ["0 /dev/null", "1 /dev/null", "2 /dev/null"]);
  t.match(channel, /^3 socket:/);
  const pipes = rest.filter((one) => /pipe:/.test(one)).map((one) => one.replace(/^\d+ /, ""));
  t.equal(pipes.length, 2 * new Set(pipes).size, "pipes with both ends here");
  t.strictSame(
    rest.filter((one) => !/pipe:|anon_inode:/.test(one)),
    [],
  );
  t.notMatch(found.threads, /^iou-sqp/, "no ring that the kernel looks at");
  t.ok(found.threads.every((name) => !name.startsWith("iou-")));
  t.end();
});

t.test("without seccomp nothing foreign is decoded", { skip }, (t) => {
  const folder = t.testdir({ "image.png": PNG });
  const image = path.join(folder, "image.png");
  const program = path.join(folder, "no-seccomp");
  execFileSync("cc", ["-o", program, path.join(root, "test/support/no-seccomp.c")]);
  const main = path.join(root, "dist/src/main.js");
  const { status, stderr } = spawnSync(program, [process.execPath, main, "inspect", image], {
    encoding: "utf8",
  });
  t.equal(status, 1);
  t.match(stderr, /refuses to confine their decoder \(seccomp: Invalid argument\)/);
  const found = spawnSync(program, [process.execPath, main, "doctor"], {
    encoding: "utf8",
    env: { ...process.env, RADSERVE_STATE_DIR: t.testdirName },
  });
  t.match(found.stdout, /problem {2}decoder of PNG, JPEG and TIFF: .*seccomp: Invalid argument/);
  t.end();
});
