#!/usr/bin/env node
/** The command line. Each command is a thin line here; what it does is in commands/. */
import type { BulkCommand } from "./commands/bulk.js";
import type { InspectCommand } from "./commands/inspect.js";
import type { JobAction } from "./commands/jobs.js";
import { Command, CommanderError, Option } from "commander";
import type { CanaryCommand, InitCommand, TryCommand } from "./commands/models.js";
import type { Config } from "./config.js";
import { VERSION } from "./base/version.js";

const program = new Command("radserve")
  .description(
    "Medical image inference server: DICOM in, ONNX models, results a PACS, a radiologist and a program can use",
  )
  .version(VERSION)
  .option(
    "--config <file>",
    "configuration file (default: RADSERVE_CONFIG, ./radserve.config.json, STATE_DIR/radserve.config.json)",
  )
  .exitOverride()
  .configureHelp({ showGlobalOptions: true })
  .showHelpAfterError("(radserve --help shows the commands)");

// Everything is loaded by the command that needs it: most of a command's start is the loading of modules.
async function run(command: () => Promise<number>, json?: boolean): Promise<void> {
  await (await import("./commands/run.js")).run(command, json);
}

async function config(): Promise<Config> {
  const { loadConfig } = await import("./config.js");
  return loadConfig({ file: program.opts<{ config?: string }>().config });
}

const BULK_HELP = `
Ctrl-C detaches: the job goes on, and radserve jobs shows and cancels it. While the server restarts, the command
waits for it.

Exit status:
  0    every image succeeded or was skipped
  1    some failed or are partial, or the job was cancelled
  2    wrongly called, or the server refused the job
  130  detached: the job goes on`;

const RECONCILE_HELP = `
Exit status:
  0    every result is there, with its size and hash, and nothing else
  1    something differs
  2    wrongly called, or the server refused`;

const several = (value: string, before: string[] | undefined) => [...(before ?? []), value];

program
  .command("init")
  .description("create the state directory, the first key and an example configuration")
  .option("--input-root <folder>", "write a configuration with this input root (repeatable)", several)
  .option("--output-root <folder>", "and this output root (repeatable)", several)
  .action((options: { inputRoot?: string[]; outputRoot?: string[] }) =>
    run(async () => (await import("./commands/init.js")).init(await config(), options)),
  );

program
  .command("serve")
  .description("start the server")
  .addOption(
    new Option(
      "--role <role>",
      "api takes requests, worker runs bulk items (default: RADSERVE_ROLE, else both)",
    ).choices(["api", "worker", "both"]),
  )
  .action((options: { role?: Config["role"] }) =>
    run(async () => (await import("./server/supervisor.js")).supervise({ ...(await config()), ...options })),
  );

program.command("serving-process", { hidden: true }).action(async () => {
  (await import("./server/serving-process.js")).serveUnderSupervisor();
});

const token = program.command("token").description("tokens of clients");
token
  .command("issue")
  .description("print a new token, alone, on standard output")
  .requiredOption("--subject <name>", "who it is for")
  .option("--expires <duration>", "for how long: a number with s, m, h, d, w or y", "365d")
  .option("--input-root <folder>", "narrow its inputs to this folder (repeatable)", several)
  .option("--output-root <folder>", "narrow its outputs to this folder (repeatable)", several)
  .option("--admin", "sees the jobs of all subjects")
  .action(
    (options: {
      subject: string;
      expires: string;
      inputRoot?: string[];
      outputRoot?: string[];
      admin?: boolean;
    }) => run(async () => (await import("./commands/token.js")).tokenIssue(await config(), options)),
  );
token
  .command("list")
  .description("issued tokens (never the tokens themselves)")
  .option("--json")
  .action((options: { json?: boolean }) =>
    run(async () => (await import("./commands/token.js")).tokenList(await config(), options.json === true)),
  );
token
  .command("revoke")
  .description("refuse a token from now on")
  .argument("<jti>", "as `token list` shows it")
  .action((jti: string) =>
    run(async () => (await import("./commands/token.js")).tokenRevoke(await config(), jti)),
  );

const key = program.command("key").description("keys that sign tokens");
key
  .command("new")
  .description("make a key that issues from now on; tokens of the others stay valid")
  .action(() => run(async () => (await import("./commands/key.js")).keyNew(await config())));
key
  .command("list")
  .description("the keys (never their secrets)")
  .option("--json")
  .action((options: { json?: boolean }) =>
    run(async () => (await import("./commands/key.js")).keyList(await config(), options.json === true)),
  );

const audit = program.command("audit").description("who did what (docs/operations.md)");
audit
  .command("verify")
  .description("whether any line was edited, removed, added or moved")
  .option(
    "--head <seq:mac>",
    "a head from the log that was kept elsewhere: its line must be there (repeatable)",
    several,
  )
  .option("--from <day>", "the days before this one are archived elsewhere, for example 2026-11-21")
  .option("--folder <folder>", "verify these files (default: audit in the state directory)")
  .option("--json")
  .action((options: { head?: string[]; from?: string; folder?: string; json?: boolean }) =>
    run(async () => (await import("./commands/audit.js")).auditVerify(await config(), options), options.json),
  );
audit
  .command("export")
  .description("AuditEvents of FHIR R4 by IHE BALP, one a line")
  .option("--from <day>", "the first day, for example 2026-11-21 (UTC)")
  .option("--to <day>", "the last day")
  .option("--folder <folder>", "export these files (default: audit in the state directory)")
  .action((options: { from?: string; to?: string; folder?: string }) =>
    run(async () => (await import("./commands/audit.js")).auditExport(await config(), options)),
  );
audit
  .command("hash")
  .description("by what lines name a patient, a study or a path")
  .option("--patient <PatientID>")
  .option("--study <StudyInstanceUID>")
  .option("--path <path>", "as the server names it")
  .action((options: { patient?: string; study?: string; path?: string }) =>
    run(async () => (await import("./commands/audit.js")).auditHash(await config(), options)),
  );

program
  .command("infer")
  .description("run the models on one image, without a server")
  .argument("<input>", "a file, or a folder that holds one series")
  .argument("<output-folder>")
  .option("--model <name>", "only this model (repeatable)", several)
  .option("--json", "print the answer of POST /single_inference")
  .action((input: string, output: string, options: { model?: string[]; json?: boolean }) =>
    run(
      async () => (await import("./commands/infer.js")).inferFile(await config(), input, output, options),
      options.json,
    ),
  );

program
  .command("bulk")
  .description("give a folder of images to a running server as one job, and show its progress")
  .argument("<input-folder>", "walked recursively; DICOM is recognised by content")
  .argument("<output-folder>")
  .option("--model <name>", "only this model (repeatable)", several)
  .option("--outputs <kinds>", "what to write: json, png, sr, seg, sc, separated by commas")
  .option("--detach", "print the job's id and leave it to the server")
  .option("--idempotency-key <key>", "the same key and folders give the same job, not a second one")
  .option("--json", "print the job, and what failed, as JSON at the end")
  .addHelpText("after", BULK_HELP)
  .action((input: string, output: string, options: BulkCommand) =>
    run(
      async () => (await import("./commands/bulk.js")).bulk(await config(), input, output, options),
      options.json,
    ),
  );

const jobs = program
  .command("jobs")
  .description("bulk jobs of a running server (RADSERVE_URL, RADSERVE_TOKEN)");
jobs
  .command("list")
  .description("newest first")
  .option("--state <state>", "scanning, running, paused, completed or cancelled")
  .option("--limit <number>", "how many", "50")
  .option("--json")
  .action((options: { state?: string; limit: string; json?: boolean }) =>
    run(async () => (await import("./commands/jobs.js")).jobsList(await config(), options), options.json),
  );
jobs
  .command("items")
  .description("the images of a job, what became of each and why")
  .argument("<job>")
  .option("--state <state>", "queued, running, succeeded, partial, failed, skipped or cancelled")
  .option("--limit <number>", "how many", "50")
  .option("--json")
  .action((id: string, options: { state?: string; limit: string; json?: boolean }) =>
    run(
      async () => (await import("./commands/jobs.js")).jobsItems(await config(), id, options),
      options.json,
    ),
  );
for (const [action, description] of Object.entries({
  show: "one job",
  pause: "start no more of its images",
  resume: "go on",
  cancel: "what runs ends, the rest never starts, written results stay",
  retry: "run its failed images again",
  purge: "forget a job that has ended; its results stay",
} satisfies Record<JobAction, string>))
  jobs
    .command(action)
    .description(description)
    .argument("<job>")
    .option("--json")
    .action((id: string, options: { json?: boolean }) =>
      run(
        async () =>
          (await import("./commands/jobs.js")).jobsAct(
            await config(),
            action as JobAction,
            id,
            options.json === true,
          ),
        options.json,
      ),
    );

jobs
  .command("reconcile")
  .description("compare a job with what lies in its output folders")
  .argument("<job>")
  .option("--retry", "run images again whose results are missing or damaged")
  .option("--json")
  .addHelpText("after", RECONCILE_HELP)
  .action((id: string, options: { retry?: boolean; json?: boolean }) =>
    run(
      async () => (await import("./commands/jobs.js")).jobsReconcile(await config(), id, options),
      options.json,
    ),
  );

program
  .command("inspect")
  .description("what a file is, its decoded pixels, which models accept it and why others do not")
  .argument("[file]")
  .option("--json")
  .option("--preview <file.png>", "write the first frame as its window shows it")
  .option("--dump-frame <number-and-file...>", "N FILE: write the stored values of frame N (from 1)")
  .action((file: string | undefined, options: InspectCommand) =>
    run(
      async () => (await import("./commands/inspect.js")).inspectFile(await config(), file, options),
      options.json,
    ),
  );

program
  .command("verify")
  .description("replay a receipt: every file, every object and every result, byte for byte")
  .argument("<NAME.json>", "the receipt of a result")
  .option("--input <file>", "the source, or the folder of its series (default: beside the receipt)")
  .option("--json")
  .action((receipt: string, options: { input?: string; json?: boolean }) =>
    run(
      async () => (await import("./commands/verify.js")).verify(await config(), receipt, options),
      options.json,
    ),
  );

const models = program.command("models").description("models and their manifests");
models
  .command("list")
  .description("each model and how it is")
  .option("--json")
  .action((options: { json?: boolean }) =>
    run(
      async () => (await import("./commands/models.js")).list(await config(), options.json === true),
      options.json,
    ),
  );
models
  .command("init")
  .description("write a draft manifest beside a graph")
  .argument("<model.onnx>")
  .option("--like <name>", "take over how this model takes images and gives results")
  .option("--labels <file>", "with --like: one label a line, with its threshold after a comma")
  .action((graph: string, options: InitCommand) =>
    run(async () => (await import("./commands/models.js")).init(await config(), graph, options)),
  );
models
  .command("codes")
  .description("coded concepts by name, for labels")
  .argument("<name...>")
  .option("--json")
  .action((name: string[], options: { json?: boolean }) =>
    run(
      async () => (await import("./commands/models.js")).codes(name.join(" "), options.json === true),
      options.json,
    ),
  );
models
  .command("check")
  .description("explain every mistake of a model folder")
  .argument("<folder>")
  .option("--json")
  .action((folder: string, options: { json?: boolean }) =>
    run(
      async () => (await import("./commands/models.js")).check(await config(), folder, options.json === true),
      options.json,
    ),
  );
models
  .command("try")
  .description("run one model on one image and look at its tensors")
  .argument("<folder>")
  .argument("<image>")
  .option("--frame <number>", "which frame, from 1", "1")
  .option("--dump <file.npy>", "write the tensor that goes in")
  .option("--expect <file.npy>", "compare the tensor that comes out")
  .option("--json")
  .action((folder: string, image: string, options: TryCommand) =>
    run(
      async () => (await import("./commands/models.js")).tryModel(await config(), folder, image, options),
      options.json,
    ),
  );
models
  .command("canary")
  .description("make a model's canary from what it makes of an image here")
  .argument("<folder>")
  .argument("<image>")
  .option("--frame <number>", "which frame, from 1", "1")
  .option("--absolute <number>", "how far another machine's output may differ")
  .option("--relative <number>", "the same, as a share of the expected number")
  .option("--json")
  .action((folder: string, image: string, options: CanaryCommand) =>
    run(
      async () => (await import("./commands/models.js")).canary(await config(), folder, image, options),
      options.json,
    ),
  );
models
  .command("reload")
  .description("have the running server load what has changed, beside what serves, and swap")
  .option("--json")
  .action((options: { json?: boolean }) =>
    run(
      async () => (await import("./commands/reload.js")).reload(await config(), options.json === true),
      options.json,
    ),
  );

program
  .command("status")
  .description("how a running server is")
  .option("--json")
  .action((options: { json?: boolean }) =>
    run(
      async () => (await import("./commands/status.js")).status(await config(), options.json === true),
      options.json,
    ),
  );

program
  .command("doctor")
  .description("look at everything that serving needs; each problem with its fix")
  .option("--json")
  .action((options: { json?: boolean }) =>
    run(
      async () => (await import("./commands/doctor.js")).doctor(config, options.json === true),
      options.json,
    ),
  );

try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof CommanderError)) throw error;
  process.exitCode = error.exitCode === 0 ? 0 : 2;
}
