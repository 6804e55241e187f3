#!/usr/bin/env node
/** The command line. Each command is a thin line here; what it does is in commands/. */
import { Argument, Command, CommanderError, Option } from "commander";
import type { Shell } from "./commands/completion.js";
import type { JobAction } from "./commands/jobs.js";
import type { Config } from "./config.js";
import { CommandLine, several } from "./commands/command-line.js";
import { FEATURES, checks, interactions, readSettings } from "./features.js";
import { PassingFault } from "./base/errors.js";
import { VERSION } from "./base/version.js";

// A reader that has had enough (`| head`) ends the command without a word, with the status of
// SIGPIPE; a full disk is said. The server's log does not come this way.
process.stdout.on("error", ({ code }: NodeJS.ErrnoException) => {
  if (code === "EPIPE") process.exit(141);
  process.stderr.write(`Standard output cannot be written (${code ?? ""}).\n`);
  process.exit(1);
});
// If the reader of the remarks has gone, nobody is left to tell, and the work goes on.
process.stderr.on("error", () => undefined);

const program = new Command("radserve")
  .description(
    "Medical image inference server: runs ONNX models on DICOM images and writes results for PACS, people and programs",
  )
  .version(VERSION)
  .option(
    "--config <file>",
    "configuration file (default: RADSERVE_CONFIG, ./radserve.config.json, STATE_DIR/radserve.config.json)",
  )
  .exitOverride()
  .configureHelp({ showGlobalOptions: true })
  .configureOutput({ outputError: (text, write) => write(sentenceOf(text)) });

/**
 * Commander's message about a wrong call ("error: missing required argument 'job'"), as a sentence.
 */
function sentenceOf(text: string): string {
  const [first = "", ...more] = text.replace(/^error: /, "").split("\n");
  const sentence = `${first.charAt(0).toUpperCase()}${first.slice(1)}`;
  return [/[.?]$/.test(sentence) ? sentence : `${sentence}.`, ...more].join("\n");
}

const line = new CommandLine(program, config, interactions);
const does = line.does.bind(line);

async function config(): Promise<Config> {
  const { useResultKeys } = await import("./results/receipt/seal.js");
  const file = { file: program.opts<{ config?: string }>().config };
  const { silentSettings } = await import("./config.js");
  const silent = await silentSettings(file);
  if (silent !== undefined) {
    // The look at it does not come back, and nobody waits for that
    (await import("./commands/run.js")).endAfterwards();
    throw new PassingFault(
      `${silent}: expected a folder for settings; its share or disk does not answer. Mount it again, or name another in RADSERVE_STATE_DIR or --config.`,
    );
  }
  const settings = await readSettings(file);
  useResultKeys(settings.keys_dir);
  return settings;
}

const GROUP = new Option(
  "--group <what>",
  "series: treat each series of a folder as one item, also for models of single images",
).choices(["series"]);

const BULK_HELP = `
Ctrl-C detaches: the job continues; radserve jobs shows or cancels it. While the server restarts, the command
waits.`;

/**
 * Meanings of exit statuses, by the words of the command, where they mean more than done and
 * failed.
 */
const STATUSES: Readonly<Record<string, Readonly<Record<number, string>>>> = {
  serve: {
    0: "stopped on request",
    1: "failed, or cannot start as things are now (a share, a disk, a GPU); standard error or the log says why",
  },
  "audit verify": { 0: "every line is unchanged", 1: "a line was changed or is missing" },
  infer: {
    0: "the results are written; some models may have failed",
    1: "nothing was written; standard error says why",
  },
  bulk: {
    0: "every image succeeded or was skipped",
    1: "some failed or are partial, or the job was cancelled",
    2: "usage error, or the server refused the job",
    130: "detached: the job continues",
  },
  "jobs reconcile": {
    0: "every result is complete and unchanged, and there is nothing else",
    1: "something differs",
  },
  verify: { 0: "verified", 1: "something differs, is missing or cannot be replayed" },
  "models check": { 0: "no mistake", 1: "there are mistakes, or the folder cannot be read" },
  "models reload": {
    0: "every changed model is loaded",
    1: "some failed; their previous versions stay",
  },
  status: {
    0: "the server is ready; with --fleet: nothing is wrong with the nodes",
    1: "it is not ready, or does not answer; with --fleet: something is wrong with them",
  },
  explain: { 0: "something was found", 1: "nothing was found" },
  doctor: { 0: "no problem", 1: "problems, each with its fix" },
};
for (const [words, meanings] of Object.entries(STATUSES)) line.statuses(words, meanings);

/** A command below another: its name, which arguments may follow, and what it does. */
const command = (above: Command, name: string, description: string): Command =>
  above.command(name).description(description);

command(program, "init", "create the state directory, the first key and an example configuration")
  .option(
    "--input-root <folder>",
    "write a configuration with this input root (repeatable)",
    several,
  )
  .option("--output-root <folder>", "and this output root (repeatable)", several)
  .action(does(async () => (await import("./commands/init.js")).init));

command(program, "serve", "start the server")
  .addOption(
    new Option(
      "--role <role>",
      "api takes requests, worker runs bulk items (default: RADSERVE_ROLE, else both)",
    ).choices(["api", "worker", "both"]),
  )
  .action(async (options: { role?: Config["role"] }) => {
    // Until the supervisor reloads on it: without a listener the signal would end the process
    process.on("SIGHUP", () => undefined);
    // It loads its modules while this process loads its own and reads the settings
    const serving = (await import("./server/serving-child.js")).forkServing();
    try {
      await line.run(
        async () => {
          const { supervise } = await import("./server/supervisor.js");
          return supervise({ ...(await config()), ...options }, checks, serving);
        },
        { startsAgain: true },
      );
    } finally {
      serving.kill();
    }
  });

const token = program.command("token").description("issue, list and revoke tokens of clients");
command(token, "issue", "issue a token and print it")
  .requiredOption("--subject <name>", "who it is for")
  .addOption(
    new Option("--expires <duration>", "for how long: a number with s, m, h, d, w or y").default(
      "365d",
      "365d",
    ),
  )
  .option("--input-root <folder>", "read images only from this folder (repeatable)", several)
  .option("--output-root <folder>", "write results only to this folder (repeatable)", several)
  .option("--destination <name>", "deliver results only to this destination (repeatable)", several)
  .option("--no-deliver", "never deliver results")
  .option("--admin", "see the jobs of all subjects")
  .action(does(async () => (await import("./commands/token.js")).tokenIssue));
command(token, "list", "list issued tokens (not the tokens themselves)")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/token.js")).tokenList));
command(token, "revoke", "revoke a token")
  .argument("<jti>", "as `token list` shows it")
  .action(does(async () => (await import("./commands/token.js")).tokenRevoke));

const OF_RESULTS = "the keys of results instead of those of tokens";
const key = program.command("key").description("make and list keys that sign tokens or results");
command(key, "new", "make a key for what is signed from now on; what older keys signed stays valid")
  .option("--results", OF_RESULTS)
  .action(does(async () => (await import("./commands/key.js")).keyNew));
command(key, "list", "list keys (not their secrets)")
  .option("--results", OF_RESULTS)
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/key.js")).keyList));

const audit = program
  .command("audit")
  .description("verify and export the audit trail (docs/audit.md)");
command(audit, "verify", "check that no line was edited, removed, added or moved")
  .option(
    "--head <seq:mac>",
    "a head from a log kept elsewhere: its line must be there (repeatable)",
    several,
  )
  .option("--from <day>", "the days before this one are archived elsewhere, for example 2026-11-21")
  .option("--folder <folder>", "verify these files (default: audit in the state directory)")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/audit.js")).auditVerify));
command(audit, "hash", "print the keyed hash that stands for a patient, a study or a path")
  .option("--patient <PatientID>")
  .option("--study <StudyInstanceUID>")
  .option("--path <path>", "as the server names it")
  .action(does(async () => (await import("./commands/audit.js")).auditHash));

command(program, "infer", "run the models on one image, without a server")
  .argument("<input>", "a file, or a folder of slices")
  .argument("<output-folder>")
  .option("--series <uid>", "which series of a folder is meant (SeriesInstanceUID)")
  .option("--model <name>", "only this model (repeatable)", several)
  .option("--label <label>", "only this label of segmentations (repeatable)", several)
  .option(
    "--outputs <kinds>",
    "what to write: json, png, sr, seg, rtstruct, sc, separated by commas",
  )
  .addOption(GROUP)
  .option("--json", "print the answer of POST /single_inference")
  .action(does(async () => (await import("./commands/infer.js")).inferFile));

command(
  program,
  "bulk",
  "send a folder of images to a running server as one job, and show its progress",
)
  .argument("<input-folder>", "searched with its subfolders; DICOM is recognised by content")
  .argument("<output-folder>")
  .option("--model <name>", "only this model (repeatable)", several)
  .option("--label <label>", "only this label of segmentations (repeatable)", several)
  .option(
    "--outputs <kinds>",
    "what to write: json, png, sr, seg, rtstruct, sc, separated by commas",
  )
  .addOption(GROUP)
  .option("--detach", "print the job's id and leave it to the server")
  .option("--idempotency-key <key>", "the same key and folders give the same job, not a second one")
  .option("--json", "print the job, and what failed, as JSON at the end")
  .addHelpText("after", BULK_HELP)
  .action(does(async () => (await import("./commands/bulk.js")).bulk));

const jobs = program
  .command("jobs")
  .description("list and control bulk jobs of a running server (RADSERVE_URL, RADSERVE_TOKEN)");
command(jobs, "list", "list jobs, newest first")
  .option("--state <state>", "scanning, running, paused, completed or cancelled")
  .addOption(line.limit("how many", "50"))
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/jobs.js")).jobsList));
command(jobs, "items <job>", "list the images of a job, each with its outcome")
  .option("--state <state>", "queued, running, succeeded, partial, failed, skipped or cancelled")
  .addOption(line.limit("how many", "50"))
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/jobs.js")).jobsItems));
for (const [action, description] of Object.entries({
  show: "show one job",
  pause: "pause a job: no more of its images start",
  resume: "resume a paused job",
  cancel: "cancel a job: running images end, the rest never starts, results stay",
  retry: "run failed images again; of a cancelled job, the cancelled ones too",
  purge: "remove an ended job from the list; its results stay",
} satisfies Record<JobAction, string>))
  jobs
    .command(`${action} <job>`)
    .description(description)
    .option("--json", line.jsonHelp)
    .action(does(async () => (await import("./commands/jobs.js")).jobsAct(action as JobAction)));

command(jobs, "reconcile <job>", "compare a job with the files in its output folders")
  .option("--retry", "run images again whose results are missing or damaged")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/jobs.js")).jobsReconcile));

command(
  program,
  "inspect [file]",
  "show what a file holds, its decoded pixels, and which models accept it or why not",
)
  .option("--json", line.jsonHelp)
  .option("--series <uid>", "which series of a folder is meant (SeriesInstanceUID)")
  .option("--preview <file.png>", "write the first frame as a picture, with the file's window")
  .option(
    "--dump-frame <number-and-file...>",
    "N FILE: write the stored values of frame N (from 1)",
  )
  .action(does(async () => (await import("./commands/inspect.js")).inspectFile));

command(
  program,
  "verify",
  "verify a result: compare its files with the receipt and compute it again, byte for byte",
)
  .argument("<NAME.json>", "the receipt of a result")
  .option("--input <path>", "the source, or a folder that it lies in (default: beside the receipt)")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/verify.js")).verify));

command(program, "adopt", "sign results that are yours and have no right MAC, after verifying them")
  .argument("[paths...]", "receipts, or folders with receipts (default: RADSERVE_OUTPUT_ROOTS)")
  .option("--input <path>", "the sources, in a folder at any depth (default: RADSERVE_INPUT_ROOTS)")
  .option("--without-replay", "sign also what cannot be computed again here, by its hashes alone")
  .option("--dry-run", "verify, and change nothing")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/adopt.js")).adopt));

const models = program.command("models").description("list, add, check and try models");
command(models, "list", "list models and the state of their files")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/models.js")).list));
command(models, "init <model.onnx>", "write a draft manifest beside a graph")
  .option("--like <name>", "copy accepted images, preparation and outputs from this model")
  .option("--labels <file>", "one label per line, with its threshold after a comma")
  .action(does(async () => (await import("./commands/models.js")).init));
command(models, "card <name>", "print a model card in Markdown, from the manifest")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/models.js")).card));
command(models, "codes <name...>", "find coded concepts for labels by name")
  .option("--json", line.jsonHelp)
  .action((name: string[], options: { json?: boolean }) =>
    line.run(async () => (await import("./commands/models.js")).codes(name.join(" "), options), {
      json: options.json,
    }),
  );
command(models, "check <folder>", "check a model folder and explain every mistake")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/models.js")).check));
command(models, "compare <folder>", "run a model on ONNX Runtime and on OpenVINO by turns")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/models.js")).compare));
command(models, "try <folder> <image>", "run one model on one image and show its tensors")
  .addOption(new Option("--frame <number>", "which frame, from 1").default("1", "1"))
  .option("--dump <file.npy>", "write the tensor that goes in")
  .option(
    "--expect <file.npy>",
    "compare the tensor that comes out, or probabilities or labels on the source's grid",
  )
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/models.js")).tryModel));
command(
  models,
  "canary <folder> <image>",
  "make a model's canary (a reference input and output) from an image",
)
  .addOption(new Option("--frame <number>", "which frame, from 1").default("1", "1"))
  .option("--absolute <number>", "largest absolute difference that passes on another machine")
  .option("--relative <number>", "largest difference as a share of the expected value")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/models.js")).canary));
command(models, "reload", "let the running server load changed models without interruption")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/reload.js")).reload));

command(program, "status", "show whether a running server is ready, and its models")
  .option("--fleet", "show the nodes of its database beside each other, and in what they differ")
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/status.js")).status));

command(program, "explain", "say why a request, an image or a job failed, and what to do")
  .argument(
    "<id-or-path>",
    "a request id, the id of a job, or the path of an image, an output folder or a receipt",
  )
  .option("--output <folder>", "with the path of an image: its output folder")
  .addOption(line.limit("number of latest events", "10"))
  .option("--json", line.jsonHelp)
  .action(does(async () => (await import("./commands/explain.js")).explain));

command(program, "doctor", "check everything that serving needs; each problem comes with its fix")
  .option("--json", line.jsonHelp)
  .option("--report", "print it for a public report of a fault: without paths, names and addresses")
  .action((options: { json?: boolean; report?: boolean }) =>
    line.run(async () => (await import("./commands/doctor.js")).doctor(config, FEATURES, options), {
      json: options.json,
    }),
  );

command(program, "completion", "print a completion script for bash or zsh")
  .addArgument(new Argument("<shell>").choices(["bash", "zsh"]))
  .addHelpText("after", "\nFor example: radserve completion bash > /etc/bash_completion.d/radserve")
  .action((shell: Shell) =>
    line.run(async () => {
      const { completionScript } = await import("./commands/completion.js");
      (await import("./commands/run.js")).print(completionScript(program, shell));
      return 0;
    }),
  );
for (const feature of FEATURES) feature.commands?.(line);
line.tellStatuses();

try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof CommanderError)) throw error;
  process.exitCode = error.exitCode === 0 ? 0 : 2;
}
