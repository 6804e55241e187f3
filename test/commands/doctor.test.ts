/**
 * Faults are planted one at a time in a place where all is well; doctor has to name each, with what
 * to do.
 */
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import net from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import { shared } from "../../src/commands/doctor/finding.js";
import { unit } from "../../src/commands/doctor/unit.js";
import { sha256 } from "../../src/files/durable-files.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { TestCa } from "../support/certificates.js";
import { asNobody, Doctor, set, type Finding, type Planted } from "../support/doctor-faults.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { databaseUrl, sharedDatabase } from "../support/postgres.js";
import { AS_0_6_LEAVES_THEM } from "../support/tables.js";
import {
  configOf,
  expiredToken,
  freePort,
  makePlace,
  radserve,
  root,
  type Place,
} from "../support/server.js";

const main = path.join(root, "dist/src/main.js");

/** A gateway for what one peer sends. @param change is put into the file */
function gateway(place: Place, change: object): void {
  const { directory, environment, input, output } = place;
  mkdirSync(path.join(input, "spool"));
  environment["RADSERVE_GATEWAY"] = path.join(directory, "gateway.json");
  const usual = {
    spool: path.join(input, "spool"),
    rules: [{ name: "ct", output_folder: output }],
  };
  writeFileSync(environment["RADSERVE_GATEWAY"], JSON.stringify({ ...usual, ...change }));
}

const ca = commandsAre("openssl") === false ? new TestCa() : undefined;
const withoutCa = ca === undefined ? "openssl is not there" : false;

const model = ({ environment }: Place, name = "") =>
  path.join(environment["RADSERVE_MODELS_DIR"]!, "ct-tissue", name);

function changeManifest(place: Place, change: (manifest: Manifest) => void): void {
  const manifest = JSON.parse(readFileSync(model(place, "model.json"), "utf8")) as Manifest;
  change(manifest);
  writeFileSync(model(place, "model.json"), JSON.stringify(manifest));
}

/** A graph in the place of the model's own, and its hash in the manifest. */
function exchangeGraph(place: Place, graph: Buffer): void {
  writeFileSync(model(place, "model.onnx"), graph);
  changeManifest(place, ({ files }) => (files[0]!.sha256 = sha256(graph)));
}

const keyFile = (place: Place) =>
  path.join(place.environment["RADSERVE_STATE_DIR"]!, "keys", "planted.json");

function writeKey(
  place: Place,
  secret: string,
  created = new Date().toISOString(),
  mode = 0o600,
): void {
  const key = { kid: "planted", algorithm: "HS256", created, secret };
  writeFileSync(keyFile(place), JSON.stringify(key), { mode });
  chmodSync(keyFile(place), mode);
}

async function listener(t: Test): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  return (server.address() as net.AddressInfo).port;
}

function tls(place: Place, cert: string, key: string): void {
  Object.assign(place.environment, { RADSERVE_TLS_CERT: cert, RADSERVE_TLS_KEY: key });
}

/** A systemctl that says this of the unit. */
function plantUnit({ directory, environment }: Place, ...lines: string[]): void {
  const file = path.join(directory, "bin", "systemctl");
  mkdirSync(path.dirname(file));
  writeFileSync(file, `#!/bin/sh\nprintf '%s\\n' ${lines.map((line) => `'${line}'`).join(" ")}\n`);
  chmodSync(file, 0o755);
  environment["PATH"] = `${path.dirname(file)}:${process.env["PATH"]}`;
}

/** The authority's folder is its own account's alone. */
function copied(place: Place, file: string): string {
  const copy = path.join(place.directory, path.basename(file));
  cpSync(file, copy);
  return copy;
}

/**
 * What a PostgreSQL 12 says to a client that asks for its version: the messages of its protocol
 * (chapter 53.7), which no package installs any more.
 */
async function oldPostgres(t: Test): Promise<number> {
  const message = (type: string, body: Buffer) => {
    const head = Buffer.alloc(5, type);
    head.writeInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  };
  const int = (value: number, size: 2 | 4) => {
    const bytes = Buffer.alloc(size);
    bytes.writeIntBE(value, 0, size);
    return bytes;
  };
  const ready = message("Z", Buffer.from("I"));
  const columns = [
    ["number", 23, "120022"],
    ["version", 25, "12.22"],
    ["encoding", 25, "UTF8"],
    ["standby", 16, "f"],
  ] as const;
  const described = columns.map(([name, type]) =>
    Buffer.concat([
      Buffer.from(`${name}\0`),
      int(0, 4),
      int(0, 2),
      int(type, 4),
      int(-1, 2),
      int(-1, 4),
      int(0, 2),
    ]),
  );
  const values = columns.map(([, , text]) =>
    Buffer.concat([int(text.length, 4), Buffer.from(text)]),
  );
  const answer = Buffer.concat([
    message("T", Buffer.concat([int(4, 2), ...described])),
    message("D", Buffer.concat([int(4, 2), ...values])),
    message("C", Buffer.from("SELECT 1\0")),
    ready,
  ]);
  // To the settings of the session, which are prepared, bound, described and run
  const settings = Buffer.concat([
    message("1", Buffer.alloc(0)),
    message("2", Buffer.alloc(0)),
    message("n", Buffer.alloc(0)),
    message("C", Buffer.from("SELECT 0\0")),
    ready,
  ]);
  const server = net.createServer((socket) => {
    socket.on("error", () => undefined);
    socket.on("data", (bytes) => {
      // The first message has no type: a length and the version of the protocol, 3.0.
      if (bytes.length >= 8 && bytes.readInt32BE(4) === 0x30000)
        socket.write(Buffer.concat([message("R", int(0, 4)), ready]));
      else if (bytes.toString("latin1", 0, 1) === "Q") socket.write(answer);
      else if (bytes.toString("latin1", 0, 1) === "P") socket.write(settings);
      else socket.end();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return (server.address() as net.AddressInfo).port;
}

/** A copy of the program in which one thing is changed; the packages are those of the clone. */
function copyOfProgram(place: Place, change: (copy: string) => void): void {
  const copy = path.join(place.directory, "program");
  mkdirSync(copy);
  for (const name of ["dist/src", "build/Release"])
    cpSync(path.join(root, name), path.join(copy, name), {
      recursive: true,
      filter: (file) => !file.endsWith(".map"),
    });
  cpSync(path.join(root, "package.json"), path.join(copy, "package.json"));
  symlinkSync(path.join(root, "node_modules"), path.join(copy, "node_modules"));
  change(copy);
  place.main = path.join(copy, "dist/src/main.js");
}

/** Options of Node.js under which it says that it is another version. */
const ofNode = (version: string) =>
  `--import data:text/javascript,${encodeURIComponent(`Object.defineProperty(process.versions, "node", { value: "${version}" })`)}`;

const PLANTED: Planted[] = [
  {
    fault: "a taken port",
    plant: async (place, t) => set("RADSERVE_PORT", String(await listener(t)))(place),
    finding: "port",
    found:
      /^RADSERVE_PORT: cannot listen on .*another program listens there\. Held by process \d+, node/,
    fix: /stop what has the port/,
    own: true,
  },
  {
    fault: "a port for DICOM that is taken",
    plant: async (place, t) => gateway(place, { dicom: { port: await listener(t) } }),
    finding: "gateway",
    found:
      /^RADSERVE_GATEWAY: dicom\.port: cannot listen on .*another program listens there\. Held by process \d+, node/,
    fix: /stop what has the port/,
    own: true,
  },
  {
    fault: "a port where a PACS calls back that is taken",
    plant: async (place, t) => {
      const pacs = {
        type: "dicom",
        host: "localhost",
        port: 4242,
        called_ae: "PACS",
        prove: "c-move",
      };
      gateway(place, { destinations: { pacs: { ...pacs, listen: { port: await listener(t) } } } });
    },
    finding: "gateway",
    found:
      /^RADSERVE_GATEWAY: destinations\.pacs\.listen\.port: cannot listen on .*another program/,
    fix: /stop what has the port/,
    own: true,
  },
  {
    fault: "a rule of the gateway with a model that is not there",
    plant: (place) =>
      gateway(place, {
        rules: [{ name: "ct", models: ["ct-tisue"], output_folder: place.output }],
      }),
    finding: "gateway",
    found:
      /rules, ct: expected names of models in .*; found ct-tisue, which is not there\. Correct the name, or put the model/,
    fix: /Correct the file/,
  },
  {
    fault: "an address of another machine",
    plant: set("RADSERVE_HOST", "192.0.2.7"),
    finding: "port",
    found: /^RADSERVE_HOST: .*192\.0\.2\.7/,
    fix: /RADSERVE_HOST/,
  },
  {
    fault: "weights that are not those of the manifest",
    plant: (place) => writeFileSync(model(place, "model.onnx"), "other weights"),
    finding: "model",
    found: /^ct-tissue: model\.onnx: Expected sha256 .* another file than the manifest describes/,
    fix: /models check \/.*not ready without this model/,
  },
  {
    fault: "an empty graph",
    plant: (place) => exchangeGraph(place, Buffer.alloc(0)),
    finding: "model",
    found: /^ct-tissue: model\.onnx: Expected an ONNX model/,
    fix: /models check/,
  },
  {
    fault: "a graph that is cut off",
    plant: (place) => {
      const whole = readFileSync(model(place, "model.onnx"));
      exchangeGraph(place, whole.subarray(0, whole.length / 2));
    },
    finding: "model",
    found: /^ct-tissue: model\.onnx: Expected an ONNX model/,
    fix: /models check/,
  },
  {
    fault: "a graph without the tensor of the manifest",
    plant: (place) =>
      changeManifest(place, ({ inputs }) => ((inputs[0] as { tensor: string }).tensor = "other")),
    finding: "model",
    found: /^ct-tissue: inputs\[0\]\.tensor: .*other/,
    fix: /models check/,
  },
  {
    fault: "a model.json that is no JSON",
    plant: (place) => writeFileSync(model(place, "model.json"), '{"name": "ct-tissue",'),
    finding: "model",
    found: /^ct-tissue: model\.json: Not JSON/,
    fix: /models check/,
  },
  {
    fault: "a model.json with a wrong field",
    plant: (place) =>
      changeManifest(place, (manifest) => Object.assign(manifest, { relese: "active" })),
    finding: "model",
    found: /^ct-tissue: .*relese/,
    fix: /models check/,
  },
  {
    fault: "a folder of a model that this user may not read",
    plant: (place) => chmodSync(model(place), 0),
    finding: "model",
    found: /^ct-tissue: model\.json: Cannot be read: EACCES/,
    fix: /models check/,
    skip: asNobody,
  },
  {
    fault: "a site.json that is broken",
    plant: (place) =>
      writeFileSync(model(place, "site.json"), '{"thresholds": {"no such label": 0.5}}'),
    finding: "model",
    found: /^ct-tissue: site\.json thresholds\.no such label: model\.json has no label/,
    fix: /models check/,
  },
  {
    fault: "a model that runs on a GPU alone",
    plant: (place) =>
      changeManifest(place, (manifest) => {
        manifest.execution.providers = ["cuda"];
        manifest.stage = "draft";
        manifest.results = { outputs: ["json"] };
        delete manifest.canary;
      }),
    finding: "model",
    found: /^ct-tissue: it runs on cuda only, and this server has cpu/,
    fix: /RADSERVE_PROVIDERS/,
  },
  {
    fault: "a folder of models that is not mounted",
    plant: set("RADSERVE_MODELS_DIR", "/no/such/models"),
    finding: "models",
    found: /^\/no\/such\/models: the folder does not exist/,
    fix: /mount/,
  },
  {
    fault: "a folder of models without one",
    plant: (place) => rmSync(model(place), { recursive: true }),
    finding: "models",
    found: /has no model folder/,
    fix: /RADSERVE_MODELS_DIR/,
  },
  {
    fault: "no key",
    plant: ({ environment }) =>
      rmSync(path.join(environment["RADSERVE_STATE_DIR"]!, "keys"), { recursive: true }),
    finding: "keys",
    found: /^none in /,
    fix: /radserve init/,
  },
  {
    fault: "a key that is too short",
    plant: (place) => writeKey(place, Buffer.from("short").toString("base64url")),
    finding: "keys",
    found: /planted\.json: secret: expected at least 32 bytes .*; found 5/,
    fix: /Correct or remove/,
  },
  {
    fault: "a key that others may read",
    plant: (place) => writeKey(place, Buffer.alloc(48, 7).toString("base64url"), undefined, 0o644),
    finding: "keys",
    found: /expected mode 600, .*found 644/,
    fix: /Correct or remove/,
  },
  {
    fault: "a shared folder of keys that is not mounted",
    plant: set("RADSERVE_KEYS_DIR", "/no/such/share/keys"),
    finding: "keys",
    found: /^\/no\/such\/share\/keys: the folder does not exist/,
    fix: /Mount the shared folder/,
  },
  {
    fault: "a token that has expired",
    plant: async (place) => {
      place.environment["RADSERVE_TOKEN"] = await expiredToken(place);
    },
    finding: "token",
    found: /Token expired/,
    fix: /radserve token issue/,
  },
  {
    fault: "no input root",
    plant: set("RADSERVE_INPUT_ROOTS", ""),
    finding: "input root",
    found: /^none/,
    fix: /RADSERVE_INPUT_ROOTS/,
  },
  {
    fault: "an input root that is not mounted",
    plant: set("RADSERVE_INPUT_ROOTS", "/no/such/share"),
    finding: "input root",
    found: /^\/no\/such\/share: the folder does not exist/,
    fix: /Mount the share/,
  },
  {
    fault: "an output root that this user may not write to",
    plant: ({ output }) => chmodSync(output, 0o555),
    finding: "output root",
    found: /this user may not \(EACCES\)/,
    fix: /Let the server's user write/,
    skip: asNobody,
  },
  {
    fault: "an output root that is a file",
    plant: set("RADSERVE_OUTPUT_ROOTS", ({ input }) => path.join(input, "image.png")),
    finding: "output root",
    found: /it is not a folder/,
    fix: /create the folder/,
  },
  {
    fault: "roots that overlap",
    plant: set("RADSERVE_OUTPUT_ROOTS", ({ input }) => {
      mkdirSync(path.join(input, "results"));
      return path.join(input, "results");
    }),
    finding: "roots",
    found: /overlap/,
    fix: /separate folder/,
    advice: true,
  },
  {
    fault: "the state inside a root",
    plant: set("RADSERVE_INPUT_ROOTS", ({ directory }) => directory),
    finding: "input root",
    found: /state lies inside one, where clients read/,
    fix: /apart/,
  },
  {
    fault: "a name of clients that leads to no root",
    plant: set("RADSERVE_PATH_MAP", '[{"from": "\\\\\\\\server\\\\share", "to": "/no/such"}]'),
    finding: "path map",
    found: /maps to \/no\/such, which is in no root/,
    fix: /RADSERVE_PATH_MAP/,
  },
  {
    fault: "no room on the disk",
    plant: set("RADSERVE_MINIMUM_FREE_DISK", "900TB"),
    finding: "disk",
    found: /GiB free, and .* are wanted/,
    fix: /Free space/,
  },
  {
    fault: "a state directory that others may write to",
    plant: ({ environment }) => chmodSync(environment["RADSERVE_STATE_DIR"]!, 0o777),
    finding: "state directory",
    found: /other users may write to it \(mode 777\)/,
    fix: /chmod 700/,
  },
  {
    fault: "a PostgreSQL that does not listen",
    plant: async (place) =>
      set("DATABASE_URL", `postgres://u:p@127.0.0.1:${await freePort()}/x`)(place),
    finding: "bulk database",
    found: /cannot be used \(ECONNREFUSED\)/,
    fix: /Start it, or correct DATABASE_URL/,
  },
  {
    fault: "a user of PostgreSQL who may make no tables",
    plant: (place, t) =>
      set("DATABASE_URL", databaseUrl(t).replace(/\w+(?=\?)/, "postgres"))(place),
    finding: "bulk database",
    found:
      /Expected a user who may make tables in the database postgres at .*; found \w+, who may not/,
    fix: /owner of its database/,
  },
  {
    fault: "tables of PostgreSQL that are of a newer release",
    plant: async (place, t) => {
      const { pool, url } = await sharedDatabase(t, { empty: true });
      await pool.query("create schema radserve");
      await pool.query("create table radserve.migration as select 999 as version");
      place.environment["DATABASE_URL"] = url;
    },
    finding: "bulk database",
    found: /newer release/,
    fix: /Upgrade this one/,
  },
  {
    fault: "a node of 0.6 at work with the database",
    plant: async (place, t) => {
      const { pool, url } = await sharedDatabase(t);
      await pool.query(AS_0_6_LEAVES_THEM);
      await pool.query(
        `insert into radserve.instance (id, box, process, works, ready, name)
         values (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), true, true, 'ct-room')`,
      );
      place.environment["DATABASE_URL"] = url;
    },
    finding: "bulk database",
    found: /Nodes of 0\.6 or earlier work with this database: ct-room\./,
    fix: /Stop them/,
  },
  {
    fault: "a CA of PostgreSQL that is not there",
    plant: set(
      "DATABASE_URL",
      "postgres://u:p@127.0.0.1:9/x?sslmode=verify-full&sslrootcert=/none.pem",
    ),
    finding: "bulk database",
    found: /DATABASE_URL names cannot be read \(ENOENT\)/,
    fix: /sslrootcert/,
  },
  {
    fault: "a PostgreSQL that is too old",
    plant: async (place, t) =>
      set("DATABASE_URL", `postgres://u:p@127.0.0.1:${await oldPostgres(t)}/x`)(place),
    finding: "bulk database",
    found: /Expected PostgreSQL 13 or newer at 127\.0\.0\.1:\d+; found 12\.22/,
    fix: /Upgrade it/,
  },
  {
    fault: "programs of PostgreSQL that are not there",
    plant: set("RADSERVE_POSTGRES_BIN", "/nowhere"),
    finding: "bulk database",
    found: /\/nowhere \(ENOENT\)/,
    fix: /RADSERVE_POSTGRES_BIN/,
  },
  {
    fault: "a GPU that is asked for and cannot be used",
    plant: set("RADSERVE_PROVIDERS", "cuda"),
    finding: "GPU",
    found: /^CUDA cannot be used: /,
    fix: /npm run setup:gpu/,
  },
  {
    fault: "an unsupported Node.js",
    plant: set("NODE_OPTIONS", ofNode("21.7.3")),
    finding: "Node.js",
    found: /21\.7\.3 is not supported/,
    fix: /name Node\.js 22\.12\.0 or later/,
  },
  {
    fault: "a Node.js whose support has ended",
    plant: set("NODE_OPTIONS", ofNode("23.11.1")),
    finding: "Node.js",
    found: /^23\.11\.1, \/.*without security updates since 2025-06-01$/,
    fix: /^Unset RADSERVE_NODE .*: \d+\.\d+\.\d+ comes with Radserve/,
    advice: true,
  },
  {
    fault: "another Node.js than the one that comes with Radserve",
    plant: set("NODE_OPTIONS", ofNode("26.0.0")),
    finding: "Node.js",
    found: /^26\.0\.0, \/.*tested with \d+\.\d+\.\d+/,
    fix: /^Unset RADSERVE_NODE/,
    advice: true,
  },
  {
    fault: "a missing addon",
    plant: (place) =>
      copyOfProgram(place, (copy) => rmSync(path.join(copy, "build/Release/addon.node"))),
    finding: "addon",
    found: /native engine cannot be loaded/,
    fix: /npm run rebuild/,
  },
  {
    fault: "a missing part for decoder processes",
    plant: (place) =>
      copyOfProgram(place, (copy) => rmSync(path.join(copy, "build/Release/confine.node"))),
    finding: "decoder of PNG, JPEG and TIFF",
    found: /./,
    fix: /npm run rebuild/,
  },
  {
    fault: "a certificate that is not there",
    plant: (place) => tls(place, "/no/such.crt", "/no/such.key"),
    finding: "certificate",
    found: /RADSERVE_TLS_CERT: expected a file in PEM at \/no\/such\.crt/,
    fix: /Correct the file/,
  },
  {
    fault: "a key of another certificate",
    plant: (place) => tls(place, copied(place, ca!.issue().cert), copied(place, ca!.issue().key)),
    finding: "certificate",
    found: /RADSERVE_TLS_KEY: .*found another key/,
    fix: /Correct the file/,
    skip: withoutCa,
  },
  {
    fault: "a certificate that has expired",
    plant: (place) => {
      const { cert, key } = ca!.issue("localhost", -1);
      tls(place, copied(place, cert), copied(place, key));
    },
    finding: "certificate",
    found: /expired on/,
    fix: /Replace the file/,
    skip: withoutCa,
  },
  {
    fault: "a clock that is years behind",
    plant: (place) => {
      const file = path.join(place.directory, "offset");
      writeFileSync(file, String(-10 * 365 * 86_400_000));
      place.environment["TEST_CLOCK"] = file;
      place.environment["NODE_OPTIONS"] =
        `--import ${path.join(root, "dist/test/support/shifted-clock.js")}`;
    },
    finding: "clock",
    found: /is before this program was built/,
    fix: /NTP/,
  },
  {
    fault: "a clock that is behind that of the node which made the key",
    plant: (place) =>
      writeKey(
        place,
        Buffer.alloc(48, 7).toString("base64url"),
        new Date(Date.now() + 3_600_000).toISOString(),
      ),
    finding: "clock",
    found: /is before the newest key was made/,
    fix: /NTP/,
  },
  {
    fault: "more memory than there is",
    plant: set("RADSERVE_MEMORY", "900TB"),
    finding: "memory",
    found: /the machine has/,
    fix: /RADSERVE_MEMORY/,
  },
  {
    fault: "a setting that is no number",
    plant: set("RADSERVE_PORT", "eighty"),
    finding: "configuration",
    found: /^RADSERVE_PORT: Expected a number; found "eighty"/,
    fix: /Correct the setting/,
  },
  {
    fault: "a misspelt setting",
    plant: set("RADSERVE_OUTPUT_ROOT", "/srv"),
    finding: "settings",
    found: /RADSERVE_OUTPUT_ROOT means nothing here; the nearest known is RADSERVE_OUTPUT_ROOTS/,
    fix: /Correct what it names/,
  },
  {
    fault: "a unit that is killed before the grace time is over",
    plant: (place) => {
      place.environment["RADSERVE_GRACE_SECONDS"] = "120";
      plantUnit(place, "LoadState=loaded", "TimeoutStopUSec=2min 5s");
    },
    finding: "unit",
    found: /^systemd kills the server 2min 5s after a stop began, and the settings allow 130 s/,
    fix: /systemctl edit radserve, and set TimeoutStopSec=190/,
  },
];

t.setTimeout(600_000);
const doctor = new Doctor(t);

t.test("nothing is found where nothing was planted", { skip: needs(ADDON) }, async (t) => {
  const place = await doctor.soundPlace(t);
  const { status, findings } = await doctor.look(place);
  // Other tests run beside this one, and some leave databases alone for a while.
  const ours = findings.filter(
    ({ name, found }) => name !== "orphaned database" || found.includes(place.directory),
  );
  t.same(
    ours.filter(({ ok, fix }) => !ok || fix !== undefined),
    [],
  );
  t.equal(status, 0);
});

doctor.plantEach(PLANTED);

t.test("what systemd waits for a stop is read as systemd writes it", async (t) => {
  const place = makePlace({ RADSERVE_GRACE_SECONDS: "110" });
  t.teardown(() => place.remove());
  const unitOf = async (...lines: string[]) => {
    rmSync(path.join(place.directory, "bin"), { recursive: true, force: true });
    plantUnit(place, ...lines);
    const [before, now] = [process.env["PATH"], place.environment["PATH"]];
    process.env["PATH"] = now;
    try {
      return await unit(configOf(place));
    } finally {
      process.env["PATH"] = before;
    }
  };
  for (const span of ["2min", "infinity", "1h 30min", "1d"])
    t.match(await unitOf("LoadState=loaded", `TimeoutStopUSec=${span}`), [{ ok: true }], span);
  for (const span of ["1min 59.9s", "90s", "500ms"])
    t.match(await unitOf("LoadState=loaded", `TimeoutStopUSec=${span}`), [{ ok: false }], span);
  t.strictSame(await unitOf("LoadState=not-found", "TimeoutStopUSec=1min 30s"), []);
});

t.test("the ports of the server itself are not taken", { skip: needs(ADDON) }, async (t) => {
  const { startServer } = await import("../support/server.js");
  const place = await doctor.soundPlace(t);
  gateway(place, { dicom: { port: await freePort() } });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  await server.logged(({ msg }) => msg === "models loaded");
  await server.logged(({ msg }) => msg === "the port for DICOM is open");
  server.place.environment["RADSERVE_PORT"] = String(server.port);
  const { stdout, status } = await radserve(server.place, "doctor");
  t.match(stdout, `port: 127.0.0.1:${server.port}: this server runs there`);
  t.match(stdout, /gateway: port for DICOM, 127\.0\.0\.1:\d+: this server runs there/);
  t.equal(status, 0);
});

t.test("gateway for results alone have no spool", { skip: needs(ADDON) }, async (t) => {
  const place = await doctor.soundPlace(t);
  gateway(place, {
    spool: undefined,
    rules: [],
    destinations: { pacs: { type: "stow", url: "http://pacs/dicom-web" } },
  });
  const { findings } = await doctor.look(place);
  t.match(
    findings.find(({ name }) => name === "gateway"),
    { ok: true, found: "no images come in; destinations: pacs" },
  );
});

t.test("fewer open files than serving needs", { skip: needs(ADDON) }, async (t) => {
  const { environment: env, directory: cwd } = await doctor.soundPlace(t);
  const words = ["-c", 'ulimit -n 100; exec "$0" "$@"', process.execPath, main, "doctor", "--json"];
  const { status, stdout } = spawnSync("sh", words, { env, cwd, encoding: "utf8" });
  t.match(
    (JSON.parse(stdout) as Finding[]).find(({ name }) => name === "open files"),
    { ok: false, found: /at least \d+ open files .*; found 100/, fix: /RADSERVE_THREADS/ },
  );
  t.equal(status, 1);
});

t.test(
  "a report for strangers tells the machine and which checks failed, and names nobody's folders, models or tokens",
  { skip: needs(ADDON) },
  async (t) => {
    const place = await doctor.soundPlace(t);
    gateway(place, {
      destinations: { "pacs-of-doe": { type: "stow", url: "http://127.0.0.1:9/x" } },
    });
    changeManifest(place, (manifest) => (manifest.name = "model-of-doe"));
    place.environment["RADSERVE_OUTPUT_ROOTS"] = path.join(place.directory, "gone-doe");
    place.environment["RADSERVE_NODE_NAME"] = "node-of-doe";
    place.environment["RADSERVE_TOKEN"] = await expiredToken(place);
    const { stdout, status } = await radserve(place, "doctor", "--report");
    t.equal(status, 1);
    for (const told of [
      /^ok {7}version: \d+\.\d+\.\d+/m,
      /^(ok {5}|advice) {2}Node\.js: \d+\.\d+\.\d+$/m,
      /^ok {7}glibc: 2\.\d+$/m,
      /^ok {7}work: role both, models on cpu, \d+ threads$/m,
      /^ok {7}ONNX Runtime: \d+\.\d+\.\d+, offers CPU/m,
      /^problem {2}model$/m,
      /^problem {2}output root$/m,
      /^problem {2}token$/m,
      /^problem {2}gateway$/m,
    ])
      t.match(stdout, told);
    for (const secret of ["doe", "127.0.0.1", place.directory])
      t.notOk(stdout.includes(secret), `${secret} in\n${stdout}`);
    t.notMatch(stdout, /\/(tmp|home|root|work|srv|usr|var)\b/);
  },
);

t.test("a report names a library that is missing without its folder", (t) => {
  const found =
    "/home/Jane Doe/build/addon.node: cannot load /opt/of doe/lib/libcublasLt.so.13 (see /home/doe/log), 2/3";
  t.equal(
    shared({ name: "addon", ok: false, found }).shareable,
    "addon.node: cannot load libcublasLt.so.13 (see (path)), 2/3",
  );
  t.end();
});
