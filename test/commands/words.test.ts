/**
 * What commands say to people: errors in sentences, numbers that can be read, help with exit
 * statuses, completion.
 */
import { execFile, spawnSync } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { samples } from "../../scripts/demo/samples.js";
import { figure } from "../../src/commands/infer.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { makePlace, radserve, root } from "../support/server.js";

const skip = needs(ADDON);
const main = path.join(root, "dist/src/main.js");
const place = makePlace({ RADSERVE_MODELS_DIR: path.join(root, "models") });
t.teardown(() => place.remove());
t.setTimeout(600_000);

t.test("numbers have as many digits as anybody reads", (t) => {
  const shown = [13.72345, 0.0123456, 126.275, 1234567, 1234.5, 7, 0, -0.5, 99.96];
  t.same(shown.map(figure), [
    "13.7",
    "0.0123",
    "126",
    "1,234,567",
    "1,235",
    "7",
    "0",
    "-0.5",
    "100",
  ]);
  t.end();
});

t.test("an error is a sentence, and an object where --json asks for it", { skip }, async (t) => {
  const text = path.join(place.input, "text.dcm");
  writeFileSync(text, "no image at all, but some words\n".repeat(40));
  const told = await radserve(place, "inspect", text);
  t.equal(told.status, 1);
  t.match(told.stderr, /^The file is neither .+ \(unsupported_format\)\n$/);
  const object = await radserve(place, "inspect", text, "--json");
  t.match(JSON.parse(object.stdout), { error: "unsupported_format", message: /neither DICOM/ });
  t.equal(object.stderr, "");
  const ultrasound = path.join(place.input, "us.dcm");
  writeFileSync(ultrasound, (await samples()).ultrasound);
  const output = path.join(place.output, "none");
  const refused = await radserve(place, "infer", ultrasound, output, "--model", "ct-tissue");
  t.equal(refused.status, 1);
  t.match(
    refused.stderr,
    /\(no_model_accepts\)\n {2}ct-tissue: Modality is US; the model takes CT\.$/m,
    "with each model's reasons",
  );
});

t.test(
  "a path that leads nowhere is named, and is no fault of the program",
  { skip },
  async (t) => {
    const file = path.join(place.input, "there.dcm");
    writeFileSync(file, (await samples()).ct);
    const nowhere = path.join(place.input, "nowhere");
    const model = path.join(root, "models/ct-tissue");
    for (const words of [
      ["models", "init", `${nowhere}.onnx`],
      ["models", "try", model, file, "--dump", `${nowhere}/in.npy`],
      ["inspect", file, "--preview", `${nowhere}/a.png`],
      ["results", "index", nowhere],
      ["drift", nowhere],
      ["audit", "verify"],
    ]) {
      const told = await radserve(place, ...words);
      t.match(told, { status: 2, stderr: /^.*(nowhere|audit).*\n$/ }, words.join(" "));
      t.notMatch(told.stderr, /internal|Create it[^]*audit/, words.join(" "));
    }
  },
);

t.test(
  "infer writes what --outputs names, and says it with readable numbers",
  { skip },
  async (t) => {
    const file = path.join(place.input, "ct.dcm");
    writeFileSync(file, (await samples()).ct);
    const output = path.join(place.output, "chosen");
    const wrong = await radserve(place, "infer", file, output, "--outputs", "json,sge");
    t.match(wrong, {
      status: 2,
      stderr: /^--outputs: expected kinds of json, .+; found "sge"\.\n$/,
    });
    t.notOk(existsSync(output));
    const ran = await radserve(
      place,
      "infer",
      file,
      output,
      "--model",
      "ct-tissue",
      "--outputs",
      "json,seg",
    );
    t.equal(ran.status, 0, ran.stderr);
    t.same(readdirSync(output).sort(), ["ct.dcm.ct-tissue.seg.dcm", "ct.dcm.json"]);
    t.match(ran.stdout, /^ {2}.*: \d+(\.\d+)? cm2$/m);
    t.notMatch(ran.stdout, /\d\.\d{4,} cm2/);
    t.equal(ran.stderr, "", "without a terminal nothing is said beside");
  },
);

/** The commands that a help text lists. */
const listed = (help: string) =>
  [...(help.split("\nCommands:\n")[1] ?? "").split("\n\n")[0]!.matchAll(/^ {2}([a-z][a-z-]*)/gm)]
    .map((match) => match[1]!)
    .filter((name) => name !== "help");

t.test("every help text says what the exit statuses mean", { skip }, async (t) => {
  const help = async (words: string[]) =>
    (await promisify(execFile)(process.execPath, [main, ...words, "--help"])).stdout;
  const visit = async (words: string[]): Promise<number> => {
    const text = await help(words);
    const below = listed(text);
    t.match(text, /\nExit status:\n {2}0 {4}.+\n {2}1 {4}.+\n {2}2 {4}/, words.join(" "));
    let seen = 1;
    for (const name of below) seen += await visit([...words, name]);
    return seen;
  };
  t.ok((await visit([])) > 30);
});

const script = (shell: string) =>
  spawnSync(process.execPath, [main, "completion", shell], { encoding: "utf8" }).stdout;

/** Words before the cursor, the last one begun, and what a shell has to offer. */
const TYPED: readonly [words: string[], offered: string[]][] = [
  [["mod"], ["models"]],
  [
    ["jobs", "re"],
    ["resume", "retry", "reconcile"],
  ],
  [["models", "check", "folder", "--j"], ["--json"]],
  [["serve", "--role", "a"], ["api"]],
  [
    ["completion", ""],
    ["bash", "zsh", "--version", "--config", "--help"],
  ],
];

t.test("completion for bash offers the commands and options that there are", (t) => {
  const made = script("bash");
  for (const [words, offered] of TYPED) {
    const typed = ["radserve", ...words].map((word) => `'${word}'`).join(" ");
    const asked = `${made}\nCOMP_WORDS=(${typed}); COMP_CWORD=${words.length}; _radserve; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { stdout, stderr } = spawnSync("bash", ["--norc", "-c", asked], { encoding: "utf8" });
    t.equal(stderr, "");
    t.same(stdout.trim().split("\n").sort(), [...offered].sort(), words.join(" "));
  }
  t.end();
});

t.test("completion for zsh offers the same", { skip: commandsAre("zsh") }, (t) => {
  const made = script("zsh");
  for (const [words, offered] of TYPED) {
    const typed = ["radserve", ...words].map((word) => `'${word}'`).join(" ");
    const asked = `compdef() { : }; compadd() { print -l -- "\${(@P)2}" }; _files() { : }
${made}
words=(${typed}); CURRENT=${words.length + 1}; _radserve`;
    const { stdout, stderr } = spawnSync("zsh", ["-f", "-c", asked], { encoding: "utf8" });
    t.equal(stderr, "");
    // zsh itself leaves out what does not begin with the word
    const fits = stdout
      .trim()
      .split("\n")
      .filter((word) => word.startsWith(words.at(-1)!));
    t.same(fits.sort(), [...offered].sort(), words.join(" "));
  }
  t.end();
});
