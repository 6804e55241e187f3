/** How many connections a limit of open files leaves room for. */
import { spawnSync } from "node:child_process";
import path from "node:path";
import t from "tap";
import { connectionsWithin, descriptorLimit } from "../../src/base/descriptor-limit.js";
import { asRadserveError } from "../../src/base/errors.js";
import { gatewayPlace } from "../support/gateway.js";
import { root } from "../support/server.js";

const limits = (soft: string) =>
  `Limit  Soft Limit  Hard Limit  Units\nMax open files            ${soft}                 524288               files     \n`;

t.test("the limit of the process", (t) => {
  t.equal(descriptorLimit(limits("1024")), 1024);
  t.equal(descriptorLimit(limits("unlimited")), Infinity);
  const told = spawnSync("sh", ["-c", "ulimit -n"], { encoding: "utf8" }).stdout.trim();
  t.equal(descriptorLimit(), told === "unlimited" ? Infinity : Number(told), "as a shell says it");
  t.end();
});

t.test("connections have what files and threads leave", (t) => {
  t.equal(connectionsWithin(1024, 2), 1024 - 128 - 64);
  t.equal(connectionsWithin(Infinity, 64), Infinity);
  t.equal(connectionsWithin(224, 1), 64);
  t.throws(() => connectionsWithin(223, 1), {
    name: "ConfigError",
    message: /at least 224 open files.*found 223/,
  });
  t.equal(connectionsWithin(352, 1, 128), 64);
  t.throws(() => connectionsWithin(256, 1, 128), {
    message: /352 open files.*the port for DICOM; found 256/,
  });
  t.end();
});

t.test("a server that may open too few files does not start", (t) => {
  const { place } = gatewayPlace(t);
  const main = path.join(root, "dist/src/main.js");
  const env: Record<string, string> = { ...place.environment, RADSERVE_THREADS: "1" };
  const started = (limit: number) => {
    const words = ["-c", `ulimit -n ${limit}; exec "$0" "$@"`, process.execPath, main, "serve"];
    return spawnSync("sh", words, { env, encoding: "utf8" });
  };
  t.match(started(300), {
    status: 2,
    stderr: /at least 352 open files for 1 threads and the port for DICOM; found 300/,
  });
  delete env["RADSERVE_GATEWAY"];
  t.match(started(200), {
    status: 2,
    stderr: /at least 224 open files for 1 threads; found 200.*LimitNOFILE/,
  });
  t.end();
});

t.test("no descriptor left is overloaded, and no fault of the program", (t) => {
  for (const code of ["EMFILE", "ENFILE"])
    t.match(asRadserveError(Object.assign(new Error(code), { code })), {
      code: "overloaded",
      status: 503,
    });
  t.equal(asRadserveError(Object.assign(new Error("x"), { code: "EPROTO" })).code, "internal");
  t.end();
});
