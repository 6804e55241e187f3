/**
 * The steps of docs/operations.md: backup and another machine, a version back, a node that leaves,
 * another PostgreSQL.
 */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import pg from "pg";
import t from "tap";
import { VERSION } from "../../src/base/version.js";
import { databaseFolders } from "../../src/features/local-postgres/folders.js";
import { PrivatePostgres } from "../../src/features/local-postgres/postgres.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import {
  bulkOf,
  bulkPlace,
  hold,
  nameOf,
  startBulk,
  unmarked,
  writeMany,
  writeSlice,
  writeSlices,
} from "../support/bulk.js";
import { olderProgram } from "../support/older-program.js";
import { BIN_FOLDERS, privatePlace, stateDirectory } from "../support/private-postgres.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase, silent } from "../support/postgres.js";
import { BEFORE_NODES_ARE_COMPARED } from "../support/tables.js";
import {
  issueToken,
  radserve,
  startServer,
  type Place,
  type TestServer,
} from "../support/server.js";
import { until } from "../support/until.js";

/** SIGTERM, as systemd sends it; the folders stay. */
async function stop({ process: child }: TestServer): Promise<number | null> {
  child.kill("SIGTERM");
  if (child.exitCode === null) await once(child, "exit");
  return child.exitCode;
}

const stateOf = (place: Place) => place.environment["RADSERVE_STATE_DIR"]!;

async function statusOf(server: TestServer, token: string): Promise<number> {
  return (await fetch(`${server.url}/models`, { headers: { Authorization: token } })).status;
}

/** The receipt of an image that is sent as it was before. */
async function receiptOf(server: TestServer, input: string, output: string, token: string) {
  const answer = await fetch(`${server.url}/single_inference`, {
    method: "POST",
    headers: { Authorization: token, "Content-Type": "application/json" },
    body: JSON.stringify({ input_image_path: input, output_folder_path: output, outputs: ["sr"] }),
  });
  if (answer.status !== 200) throw new Error(await answer.text());
  const { receipt_path } = (await answer.json()) as { receipt_path: string };
  return receiptSchema.parse(JSON.parse(readFileSync(receipt_path, "utf8")));
}

t.test("a backup of a running server, on another machine", { skip: needs(ADDON) }, async (t) => {
  const place = privatePlace(t);
  const site = path.join(place.environment["RADSERVE_MODELS_DIR"]!, "ct-tissue", "site.json");
  writeFileSync(site, JSON.stringify({ thresholds: {} }));
  const input = path.join(place.input, "1.dcm");
  writeSlice(input);
  const server = await startServer(place);
  const revoked = await issueToken(place);
  const jti = (
    JSON.parse(Buffer.from(revoked.split(".")[1]!, "base64url").toString()) as { jti: string }
  ).jti;
  t.equal((await radserve(place, "token", "revoke", jti)).status, 0);
  const before = await receiptOf(server, input, place.output, server.token);

  const other = privatePlace(t, { RADSERVE_INPUT_ROOTS: place.input });
  mkdirSync(stateOf(other), { mode: 0o700 });
  // The head before the lines, so that it is not ahead of them
  for (const name of ["keys", "audit-head", "audit", "audit-chain.key", "audit-names.key"])
    execFileSync("cp", ["-a", path.join(stateOf(place), name), path.join(stateOf(other), name)]);
  const models = other.environment["RADSERVE_MODELS_DIR"]!;
  cpSync(path.dirname(site), path.join(models, "ct-tissue"), { recursive: true });
  t.equal(await stop(server), 0);

  const restored = await startServer(other);
  t.teardown(() => restored.stop());
  t.equal(await statusOf(restored, server.token), 200, "a token goes on being good");
  t.equal(await statusOf(restored, revoked), 401, "a revoked one stays revoked");
  t.match(await radserve(other, "audit", "verify"), { status: 0 }, "the chain goes on");
  const after = await receiptOf(restored, input, other.output, server.token);
  const seriesOf = ({ models }: typeof before) =>
    models
      .flatMap((model) => ("outputs" in model ? model.outputs : []))
      .map((one) => one.series_instance_uid);
  t.ok(seriesOf(before).some((uid) => uid !== undefined));
  t.same(seriesOf(after), seriesOf(before), "results are of the same series");
  place.remove();
});

/** Runs statements in the private database of a place while no server does. */
async function changeTables(place: Place, statements: string): Promise<void> {
  const settings = { state_dir: stateOf(place), postgres_bin: undefined };
  const postgres = await PrivatePostgres.start(settings, silent);
  const client = new pg.Client(postgres.connection);
  await client.connect();
  await client.query(statements);
  await client.end();
  await postgres.stop();
}

t.test("a version back", { skip: needs(ADDON) }, async (t) => {
  const place = privatePlace(t);
  writeSlice(path.join(place.input, "folder", "1.dcm"));
  const job = {
    input_folder_path: path.join(place.input, "folder"),
    output_folder_path: path.join(place.output, "folder"),
  };
  const first = await startServer(place);
  const bulk = bulkOf(first);
  await bulk.ended(await bulk.submit(job));
  t.equal(await stop(first), 0);
  const folders = databaseFolders(stateOf(place));
  // As the next version leaves it
  await changeTables(
    place,
    "insert into radserve.migration (version) select max(version) + 1 from radserve.migration",
  );

  const second = await startServer(place);
  t.match(await bulkOf(second).send("POST", "/bulk_inference", job), {
    status: 503,
    body: { error: "bulk_unavailable", message: /newer release of Radserve/ },
  });
  const single = await second.post("/single_inference", {
    input_image_path: path.join(place.input, "folder", "1.dcm"),
    output_folder_path: place.output,
  });
  t.equal(single.status, 200, "single requests go on");
  t.equal(await stop(second), 0);

  renameSync(folders.base, `${folders.base}-newer`);
  t.teardown(() => execFileSync("rm", ["-rf", `${folders.base}-newer`]));
  const third = await startServer(place);
  t.teardown(() => third.stop());
  const again = bulkOf(third);
  const id = await again.submit(job);
  t.match(await again.ended(id), { counts: { succeeded: 1 } });
  t.match(await again.items(id), [{ state: "succeeded" }], "what is there is used again");
});

/** The tables as an older release made them: without what MIGRATIONS added from the sixth on. */
const OLDER_TABLES = `${BEFORE_NODES_ARE_COMPARED}
  drop table radserve.hindrance;
  drop index radserve.item_queued;
  alter table radserve.item reset (fillfactor);
  alter table radserve.job drop column report, drop column report_token, drop column report_until;
  delete from radserve.migration where version >= 6`;

const versionOf = (receipt: string) =>
  receiptSchema.parse(JSON.parse(readFileSync(receipt, "utf8"))).radserve_version;

t.test(
  "an upgrade in the middle of a job, over older tables",
  { skip: needs(ADDON) },
  async (t) => {
    const place = privatePlace(t);
    t.teardown(() => place.remove());
    writeMany(path.join(place.input, "many"), 120);
    const folders = {
      input_folder_path: path.join(place.input, "many"),
      output_folder_path: path.join(place.output, "many"),
    };
    const main = olderProgram(place);
    const later = Array.from({ length: 60 }, (_, i) => nameOf(60 + i));
    const release = await hold(t, folders.output_folder_path, later);
    const before = await startServer({ ...place, main });
    const id = await bulkOf(before).submit(folders);
    await bulkOf(before).until(id, ({ counts }) => counts.succeeded > 0);
    t.match(await bulkOf(before).send("POST", `/bulk_inference/${id}/pause`), { status: 200 });
    await release();
    t.equal(await stop(before), 0);
    await changeTables(place, OLDER_TABLES);

    const after = await startServer(place);
    t.equal(await statusOf(after, before.token), 200, "a token of before is good");
    t.match(await bulkOf(after).job(id), { state: "paused" });
    await bulkOf(after).send("POST", `/bulk_inference/${id}/resume`);
    t.match(await bulkOf(after).ended(id), {
      state: "completed",
      counts: { succeeded: 120, failed: 0 },
    });
    const receiptsOf = async (job: string) =>
      (await bulkOf(after).items(job)).map(({ receipt_path = "" }) => receipt_path);
    const receipts = await receiptsOf(id);
    t.same([...new Set(receipts.map(versionOf))].sort(), ["0.0.1", VERSION], "what was done stays");
    for (const [version, verdicts] of [
      ["0.0.1", ["known_fault", "not_replayed", "ok"]],
      [VERSION, ["ok"]],
    ] as const) {
      const receipt = receipts.find((file) => versionOf(file) === version)!;
      const input = path.join(place.input, "many", path.basename(receipt, ".json"));
      const { stdout } = await radserve(place, "verify", receipt, "--input", input, "--json");
      const { checks } = JSON.parse(stdout) as { checks: { verdict: string }[] };
      t.same(
        [...new Set(checks.map(({ verdict }) => verdict))].sort(),
        verdicts,
        `a receipt of ${version} verifies`,
      );
    }
    const again = await bulkOf(after).submit(folders);
    await bulkOf(after).ended(again);
    const anew = new Set((await receiptsOf(again)).map(versionOf));
    t.same([...anew], [VERSION], "a folder that is sent again is computed again");
    t.equal(await stop(after), 0);

    const back = await startServer({ ...place, main });
    t.teardown(() => back.stop());
    t.match(
      await bulkOf(back).job(id),
      { state: "completed" },
      "with the same tables the way back is open",
    );
  },
);

t.test(
  "a node that leaves: it finishes, and the other does the rest",
  { skip: needs(ADDON) },
  async (t) => {
    const { url } = await sharedDatabase(t);
    const place = bulkPlace(t, { DATABASE_URL: url });
    writeMany(path.join(place.input, "many"), 200);
    const bulk = await startBulk(t, place);
    const keys = path.join(stateOf(place), "keys");
    const leaving = await startServer({
      ...place,
      environment: {
        ...place.environment,
        RADSERVE_STATE_DIR: path.join(place.directory, "state-of-the-other"),
        RADSERVE_KEYS_DIR: keys,
      },
    });
    const id = await bulk.submit({
      input_folder_path: path.join(place.input, "many"),
      output_folder_path: path.join(place.output, "many"),
    });
    await bulk.until(id, ({ counts }) => counts.running + counts.succeeded > 0);
    t.equal(await stop(leaving), 0);
    const job = await bulk.ended(id);
    t.match(job.counts, { succeeded: 200, failed: 0 });
  },
);

/** Programs of PostgreSQL that the distribution alone has. */
const withoutPrograms =
  needs(ADDON) ||
  (BIN_FOLDERS.distribution === undefined ? "the distribution has no PostgreSQL here" : false);
const urlOf = ({ connection: { host, port, user } }: PrivatePostgres) =>
  `postgres:///${user}?user=${user}&host=${host}&port=${port}`;

t.test("a backup of a shared database that is put back", { skip: withoutPrograms }, async (t) => {
  const bin = BIN_FOLDERS.distribution!;
  const start = () =>
    PrivatePostgres.start({ state_dir: stateDirectory(t), postgres_bin: bin }, silent);
  const [from, to] = [await start(), await start()];
  t.teardown(() => to.stop());
  const images = 12;
  const place = bulkPlace(t, { DATABASE_URL: urlOf(from) });
  writeSlices(path.join(place.input, "many"), images);
  const server = await startServer(place);
  const bulk = bulkOf(server);
  const submit = (name: string) =>
    bulk.submit({
      input_folder_path: path.join(place.input, "many"),
      output_folder_path: path.join(place.output, name),
      outputs: ["json"],
    });
  const release = await hold(t, path.join(place.output, "first"), [nameOf(images - 1)]);
  const first = await submit("first");
  await bulk.until(first, ({ counts }) => counts.succeeded === images - 1);
  const backup = path.join(t.testdir(), "radserve.dump");
  execFileSync(path.join(bin, "pg_dump"), ["-Fc", "--no-owner", "-f", backup, urlOf(from)]);
  await release();
  await bulk.ended(first);
  await unmarked(path.join(place.output, "first"));
  const second = await submit("second");
  await bulk.send("POST", `/bulk_inference/${second}/pause`);
  const known = path.join(stateOf(place), "bulk-jobs.json");
  await until(
    "the node has written down that it knows the job",
    () => existsSync(known) && readFileSync(known, "utf8").includes(second),
  );
  t.equal(await stop(server), 0);
  await from.stop();

  execFileSync(path.join(bin, "pg_restore"), ["--no-owner", "-d", urlOf(to), backup]);
  place.environment["DATABASE_URL"] = urlOf(to);
  const restored = await startServer(place);
  t.teardown(() => restored.stop());
  t.match(await bulkOf(restored).ended(first), { counts: { succeeded: images, failed: 0 } });
  const items = await bulkOf(restored).items(first);
  t.equal(items.at(-1)?.reused, true, "what was done after the backup lies there");
  await restored.logged(({ condition, msg }) => condition === "jobs_lost" && msg.includes(second));
});

t.test(
  "another major version of PostgreSQL: dumped, restored, and the job goes on",
  { skip: withoutPrograms },
  async (t) => {
    const bin = BIN_FOLDERS.distribution!;
    const from = await PrivatePostgres.start(
      { state_dir: stateDirectory(t), postgres_bin: bin },
      silent,
    );
    const to = await PrivatePostgres.start(
      { state_dir: stateDirectory(t), postgres_bin: BIN_FOLDERS.npm },
      silent,
    );
    t.teardown(() => to.stop());
    const place = bulkPlace(t, { DATABASE_URL: urlOf(from) });
    writeMany(path.join(place.input, "many"), 40);
    const names = Array.from({ length: 40 }, (_, i) => nameOf(i));
    const release = await hold(t, path.join(place.output, "many"), names);
    const first = await startServer(place);
    const id = await bulkOf(first).submit({
      input_folder_path: path.join(place.input, "many"),
      output_folder_path: path.join(place.output, "many"),
    });
    await bulkOf(first).send("POST", `/bulk_inference/${id}/pause`);
    await release();
    t.equal(await stop(first), 0);
    const dump = execFileSync(path.join(bin, "pg_dump"), ["--no-owner", urlOf(from)], {
      maxBuffer: 1 << 28,
    });
    execFileSync(path.join(bin, "psql"), ["--quiet", "-v", "ON_ERROR_STOP=1", urlOf(to)], {
      input: dump,
    });
    await from.stop();

    const second = await startServer({
      ...place,
      environment: { ...place.environment, DATABASE_URL: urlOf(to) },
    });
    t.teardown(() => second.stop());
    t.match(await bulkOf(second).job(id), { state: "paused" });
    await bulkOf(second).send("POST", `/bulk_inference/${id}/resume`);
    t.match(await bulkOf(second).ended(id), { counts: { succeeded: 40, failed: 0 } });
  },
);
