/**
 * The gateway: images come in from modalities and PACS (C-STORE, STOW-RS) and become jobs by rules;
 * results go out to destinations. Off unless the settings name its file.
 */
import type { CommandLine } from "../../commands/command-line.js";
import type { Feature } from "../../commands/feature.js";

const deliver = () => import("./deliver/commands.js");
const receive = () => import("./receive/commands.js");
const own = () => import("./commands.js");

function commands(line: CommandLine): void {
  const whole = line.group("gateway", "try the gateway's rules and destinations (docs/gateway.md)");
  whole
    .command("try <paths...>")
    .description("say which rule takes DICOM files or folders of them, and why the others do not")
    .option("--from <peer>", "as if this peer sent them; without it nothing is asked of the sender")
    .option("--called <title>", "as if this AE title was called; without it, the first of the file")
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await own()).gatewayTry));
  whole
    .command("echo [names...]")
    .description(
      "call destinations by C-ECHO or a query, and webhooks by a ping (default: all); nothing of a patient is sent",
    )
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await own()).gatewayEcho));
  line.statuses("gateway try", {
    0: "a rule takes each series",
    1: "no rule takes one of them, or there is none",
  });
  line.statuses("gateway echo", {
    0: "every destination and webhook answers",
    1: "one does not answer, or not as it should",
  });
  const came = line.group("received", "list, remove and replace received series (docs/gateway.md)");
  const ofStudy = (name: string, description: string) =>
    came
      .command(`${name} <study>`)
      .description(`${description} (RADSERVE_URL, RADSERVE_TOKEN)`)
      .option("--json", line.jsonHelp);
  const some = (name: string, description: string) =>
    ofStudy(name, description)
      .option("--peer <name>", "only what this peer sent")
      .option("--series <uid>", "only this series");
  came
    .command("list")
    .description("list received series, and what becomes of them (RADSERVE_URL, RADSERVE_TOKEN)")
    .option("--peer <name>", "only what this peer sent")
    .option("--state <state>", "only those that are waiting, job or unused")
    .addOption(line.limit("how many series", "100"))
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await receive()).receivedList));
  ofStudy(
    "show",
    "say of each series of a study which rules take it, and why others do not",
  ).action(line.does(async () => (await receive()).receivedShow));
  some("remove", "remove received series; results of their jobs stay").action(
    line.does(async () => (await receive()).receivedRemove),
  );
  some("replace", "let corrected objects take the place of those that lie there, for a day").action(
    line.does(async () => (await receive()).receivedReplace),
  );
  const group = line.group("deliver", "list, retry and verify deliveries (docs/gateway.md)");
  group
    .command("list")
    .description("list objects that wait or were set aside, and why (RADSERVE_URL, RADSERVE_TOKEN)")
    .option("--destination <name>", "only this destination")
    .addOption(line.limit("how many results", "50"))
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await deliver()).deliverList));
  group
    .command("retry [id]")
    .description(
      "send set-aside objects again, of one result or of all (RADSERVE_URL, RADSERVE_TOKEN)",
    )
    .option("--destination <name>", "only what was set aside for this destination")
    .option("--to <name>", "send it to this destination in place of that one")
    .option("--all", "of all results; without an id or --destination it has to be named")
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await deliver()).deliverRetry));
  group
    .command("drop [id]")
    .description(
      "give up set-aside objects, of one result or of a destination (RADSERVE_URL, RADSERVE_TOKEN)",
    )
    .option("--destination <name>", "only what was set aside for this destination")
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await deliver()).deliverDrop));
  group
    .command("verify <paths...>")
    .description("read delivered objects back, of receipts (NAME.json) or of folders of them")
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await deliver()).deliverVerify));
  group
    .command("scan [folders...]")
    .description("queue undelivered results that no queue has (default: RADSERVE_OUTPUT_ROOTS)")
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await deliver()).deliverScan));
  line.statuses("deliver verify", {
    0: "every object is at its destination, unchanged",
    1: "one is missing, differs or could not be read back",
  });
}

export const gateway: Feature = {
  name: "gateway",
  settings: async () => (await import("./setting.js")).TOPICS,
  commands,
  check: async (config) => (await import("./check.js")).check(config),
  serving: async () => (await import("./serving.js")).serving,
  doctor: async (config) => (await import("./doctor.js")).doctor(config),
};
