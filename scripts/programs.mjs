/**
 * The programs that npm scripts run by a name: `npm run bench -- NAME`. scripts/named.mjs runs
 * them.
 */
import { readdirSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));

const built = (file) => [process.execPath, `dist/${file}.js`];
export const script = (file, ...words) => [process.execPath, `scripts/${file}.mjs`, ...words];

const BENCHES = readdirSync(path.join(root, "bench"))
  .filter((file) => file.endsWith(".ts") && file !== "gpu.ts")
  .map((file) => path.basename(file, ".ts"));

/** By kind and name: the commands, one after the other. The last one gets the options. */
export const PROGRAMS = {
  bench: Object.fromEntries(BENCHES.map((name) => [name, [built(`bench/${name}`)]])),
  trial: {
    container: [script("test-container")],
    coverage: [
      ["node_modules/.bin/tap", "build"],
      ["node_modules/.bin/tap", "run"],
    ],
    crash: [built("test/crash/main")],
    cuda: [script("test-cuda"), script("test", "--group", "cuda")],
    deb: [script("test-deb")],
    "engine-package": [script("test-engine-package")],
    green: [script("test-green")],
    node: [script("test-node")],
    package: [script("test-package")],
    schemathesis: [built("test/schemathesis/main")],
    soak: [built("test/soak/main")],
    systemd: [script("test-systemd")],
    upgrade: [built("test/upgrade/main")],
  },
  pack: {
    deb: [script("deb")],
    engine: [script("pack-engine")],
    sbom: [built("scripts/sbom/main")],
    tarball: [script("pack")],
  },
  write: {
    canary: [built("scripts/build-canary")],
    "ct-tissue": [built("scripts/build-ct-tissue")],
    "gateway-schema": [built("scripts/build-gateway-schema")],
    "model-schema": [built("scripts/build-model-schema")],
    pictures: [built("scripts/pictures")],
  },
};
