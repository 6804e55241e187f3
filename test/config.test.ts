import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import { z } from "zod";
import {
  clientSettings,
  engineSettings,
  loadConfig,
  parseSize,
  settingsTable,
  type SettingTopics,
} from "../src/config.js";
import { ConfigError } from "../src/base/errors.js";

const directory = mkdtempSync(path.join(os.tmpdir(), "radserve-config-"));
const state = path.join(directory, "state");
mkdirSync(state);
t.teardown(() => rmSync(directory, { recursive: true }));

const load = (
  environment: Record<string, string> = {},
  file?: object,
  features: readonly SettingTopics[] = [],
) => {
  const name = path.join(directory, "radserve.config.json");
  if (file === undefined) rmSync(name, { force: true });
  else writeFileSync(name, JSON.stringify(file));
  return loadConfig({
    environment: { RADSERVE_STATE_DIR: state, ...environment },
    directory,
    features,
  });
};

t.test("defaults", (t) => {
  const config = load();
  t.match(config, {
    port: 8500,
    host: "0.0.0.0",
    input_roots: { length: 0 },
    providers: ["cpu"],
    grace_seconds: 30,
  });
  t.equal(config.keys_dir, path.join(state, "keys"));
  t.match(config.models_dir, /\/models$/);
  t.equal(
    loadConfig({ environment: { XDG_STATE_HOME: "/x" }, directory }).state_dir,
    "/x/radserve",
  );
  t.end();
});

t.test("the environment wins over the file, and the nearer file over the other", (t) => {
  const file = { port: 1, host: "::1", input_roots: ["/a"] };
  const config = load(
    { RADSERVE_PORT: "2", RADSERVE_OUTPUT_ROOTS: "/b:/c/", RADSERVE_HOST: "" },
    file,
  );
  t.match(config, { port: 2, host: "::1", input_roots: ["/a"], output_roots: ["/b", "/c"] });
  writeFileSync(path.join(state, "radserve.config.json"), '{"port": 7}');
  t.equal(load({}, file).port, 1);
  t.equal(load().port, 7);
  rmSync(path.join(state, "radserve.config.json"));
  t.end();
});

t.test("values of every form", (t) => {
  const config = load({
    RADSERVE_PROVIDERS: "cuda, cpu",
    RADSERVE_GPUS: "0,1",
    RADSERVE_OUTPUTS: "json, sr",
    RADSERVE_GPU_MEMORY: "8GiB",
    RADSERVE_METRICS_ALLOW: "10.0.0.0/8,192.168.1.5",
    RADSERVE_PATH_MAP: JSON.stringify([{ from: "\\\\a\\b", to: "/mnt/b" }]),
    RADSERVE_GRACE_SECONDS: "2.5",
  });
  t.match(config, {
    providers: ["cuda", "cpu"],
    gpus: [0, 1],
    gpu_memory: 8 * 2 ** 30,
    grace_seconds: 2.5,
  });
  t.strictSame(config.outputs, ["json", "sr"]);
  t.equal(load().outputs, undefined);
  t.strictSame(config.path_map, [{ from: "\\\\a\\b", to: "/mnt/b" }]);
  t.equal(parseSize("512"), 512);
  t.equal(parseSize("1.5 kb"), 1500);
  t.equal(parseSize("many"), undefined);
  t.end();
});

t.test("errors name key, expected, found, nearest", (t) => {
  const fails = (message: RegExp, environment: Record<string, string>, file?: object) => {
    t.throws(() => load(environment, file), ConfigError);
    t.throws(() => load(environment, file), message, String(message));
  };
  fails(/^RADSERVE_PORT: Expected a number; found "abc"\.$/, { RADSERVE_PORT: "abc" });
  fails(/^RADSERVE_PORT: Expected at most 65535; found 70000/, { RADSERVE_PORT: "70000" });
  fails(
    /radserve\.config\.json: input_root: Unknown field; the nearest known field is "input_roots"/,
    {},
    { input_root: [] },
  );
  fails(
    /radserve\.config\.json: input_roots\[0\]: Expected an absolute path/,
    {},
    { input_roots: ["x"] },
  );
  fails(/RADSERVE_PROVIDERS: Expected one of "cpu", "cuda", "openvino"; found "gpu"/, {
    RADSERVE_PROVIDERS: "gpu",
  });
  fails(/RADSERVE_GPU_MEMORY: Expected a size in bytes/, { RADSERVE_GPU_MEMORY: "lots" });
  for (const memory of [true, { a: 1 }])
    fails(/radserve\.config\.json: memory: Expected a size in bytes.*; found/, {}, { memory });
  fails(/^RADSERVE_METRICS_ALLOW: Expected an IP address or a network, for example.*found "foo"/, {
    RADSERVE_METRICS_ALLOW: "foo",
  });
  fails(/RADSERVE_PATH_MAP: Expected a list/, { RADSERVE_PATH_MAP: "{}" });
  // One backslash where JSON wants two
  fails(/^RADSERVE_PATH_MAP: expected JSON; found a fault at line 1, column 11\.$/, {
    RADSERVE_PATH_MAP: '[{"from": "\\\\srv\\img", "to": "/y"}]',
  });
  fails(/none\.json: expected the configuration file; nothing is there/, {
    RADSERVE_CONFIG: "none.json",
  });
  writeFileSync(path.join(directory, "broken.json"), "{");
  fails(/broken\.json: expected JSON; found a fault at line 1, column 2\.$/, {
    RADSERVE_CONFIG: "broken.json",
  });
  fails(/^RADSERVE_PATH_MAP\[0\]\.to: Expected a string; found nothing\.$/, {
    RADSERVE_PATH_MAP: '[{"from": "/x"}]',
  });
  fails(/^RADSERVE_PATH_MAP\[0\]\.from: Expected an absolute name, .*; found "x"\.$/, {
    RADSERVE_PATH_MAP: '[{"from": "x", "to": "/y"}]',
  });
  fails(/^RADSERVE_TRUSTED_PROXIES: Expected an IP address or a network/, {
    RADSERVE_TRUSTED_PROXIES: "proxy",
  });
  fails(/^RADSERVE_MAX_CONNECTIONS: Expected at least 1; found 0/, {
    RADSERVE_MAX_CONNECTIONS: "0",
  });
  t.end();
});

t.test("what is said of a wrong database never quotes it", (t) => {
  const text = (environment: Record<string, string>) => {
    try {
      return String(load(environment).database_url);
    } catch (error) {
      return (error as Error).message;
    }
  };
  t.equal(
    text({ DATABASE_URL: "radserve:hunter2" }),
    "DATABASE_URL: Expected postgres://USER:PASSWORD@HOST:PORT/DATABASE.",
  );
  writeFileSync(
    path.join(directory, "broken.json"),
    '{"database_url": "postgres://u:hunter2@h/d" x}',
  );
  t.notMatch(text({ RADSERVE_CONFIG: "broken.json" }), /hunter2/);
  t.end();
});

t.test("a password that every user of the machine can read is warned of", (t) => {
  const warned = (url: string, file: number, folder: number, more = {}) => {
    load({}, { database_url: url });
    chmodSync(path.join(directory, "radserve.config.json"), file);
    chmodSync(directory, folder);
    return loadConfig({ environment: { RADSERVE_STATE_DIR: state, ...more }, directory }).warnings;
  };
  const url = "postgres://u:hunter2@h/d";
  const [warning = "", ...others] = warned(url, 0o644, 0o755);
  t.match(warning, /every user of this machine can read the password .* \(mode 644\)/);
  t.notMatch(warning, /hunter2/);
  t.strictSame(others, []);
  t.equal(warned("postgres:///d?host=h&password=hunter2", 0o644, 0o755).length, 1);
  t.strictSame(warned(url, 0o640, 0o755), [], "only its group can");
  t.strictSame(warned(url, 0o644, 0o750), [], "the folder is closed to others");
  t.strictSame(warned("postgres://u@h/d", 0o644, 0o755), [], "it has no password");
  t.end();
});

t.test("a file that begins with a byte order mark", (t) => {
  writeFileSync(path.join(directory, "marked.json"), '\ufeff{"port": 1234}');
  t.equal(load({ RADSERVE_CONFIG: "marked.json" }).port, 1234);
  t.end();
});

t.test("what client commands are told", (t) => {
  const settings = (environment: Record<string, string>) => clientSettings(load({}), environment);
  t.match(settings({}), { url: "http://127.0.0.1:8500", token: undefined, ca: undefined });
  t.match(settings({ RADSERVE_URL: "https://box/", RADSERVE_TOKEN: "a.b.c\n" }), {
    url: "https://box",
    token: "a.b.c",
  });
  for (const url of ["box", "box:8500", "ftp://box", "http://box:99999"])
    t.throws(
      () => settings({ RADSERVE_URL: url }),
      /^RADSERVE_URL: expected an address such as/,
      url,
    );
  for (const token of ["Bearer a.b.c", "a\nb", "é"])
    t.throws(
      () => settings({ RADSERVE_TOKEN: token }),
      /^RADSERVE_TOKEN: expected one token alone/,
      token,
    );
  t.end();
});

t.test("a misspelt variable is told", (t) => {
  t.strictSame(load({ RADSERVE_Q: "1" }).warnings, [
    "The environment variable RADSERVE_Q means nothing here.",
  ]);
  t.strictSame(load({ RADSERVE_INPUT_ROOT: "/a" }).warnings, [
    "The environment variable RADSERVE_INPUT_ROOT means nothing here; the nearest known is RADSERVE_INPUT_ROOTS.",
  ]);
  t.end();
});

t.test("the setting that 0.6 called doors is understood, with a warning", (t) => {
  const gateway = [{ "Files over HTTP": { gateway: z.string().optional() } }];
  const read = (environment: Record<string, string>, file?: object) => {
    const { warnings, ...values } = load(environment, file, gateway);
    return { value: (values as { gateway?: string }).gateway, warnings };
  };
  const later = "Rename it: the next version will not know the earlier name.";
  t.strictSame(read({ RADSERVE_DOORS: "/a" }), {
    value: "/a",
    warnings: [`RADSERVE_DOORS is now called RADSERVE_GATEWAY. ${later}`],
  });
  const file = path.join(directory, "radserve.config.json");
  t.strictSame(read({}, { doors: "/b" }), {
    value: "/b",
    warnings: [`${file}: doors is now called gateway. ${later}`],
  });
  t.equal(read({ RADSERVE_DOORS: "/a" }, { gateway: "/b" }).value, "/a", "the environment wins");
  t.equal(read({ RADSERVE_GATEWAY: "/a" }, { doors: "/b" }).value, "/a");
  t.equal(read({ RADSERVE_GATEWAY: "/a", RADSERVE_DOORS: "/a" }).value, "/a");
  t.strictSame(read({ RADSERVE_GATEWAY: "/a" }), { value: "/a", warnings: [] });
  const refused = {
    name: "ConfigError",
    message: /RADSERVE_GATEWAY: expected the value of RADSERVE_DOORS, .* Remove RADSERVE_DOORS\.$/,
  };
  t.throws(() => read({ RADSERVE_GATEWAY: "/a", RADSERVE_DOORS: "/b" }), refused);
  t.throws(() => read({}, { gateway: "/a", doors: "/b" }), {
    message: /radserve\.config\.json: gateway: expected the value of doors, .* Remove doors\.$/,
  });
  t.end();
});

t.test("models may go to all GPUs that are named", (t) => {
  const several = load({
    RADSERVE_PROVIDERS: "cuda,cpu",
    RADSERVE_GPUS: "2,0",
    RADSERVE_GPU_MEMORY: "8GiB",
  });
  t.strictSame(engineSettings(several), { provider: "cuda", gpus: [2, 0], gpuMemory: 8 * 2 ** 30 });
  t.strictSame(several.warnings, []);
  t.strictSame(load({ RADSERVE_PROVIDERS: "cuda", RADSERVE_GPUS: "1" }).warnings, []);
  t.strictSame(engineSettings(load({})), { provider: "cpu" });
  t.end();
});

t.test("every setting has a name and a meaning", (t) => {
  for (const row of settingsTable())
    t.ok(row.meaning.length > 10 && /^[A-Z_]+$/.test(row.variable), row.variable);
  t.match(
    settingsTable().find((row) => row.key === "port"),
    { variable: "RADSERVE_PORT", default: "8500" },
  );
  t.end();
});
