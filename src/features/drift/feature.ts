/** Results of models from week to week, from receipts: a command, and an endpoint for the page. */
import type { CommandLine } from "../../commands/command-line.js";
import type { Feature } from "../../commands/feature.js";

function commands(line: CommandLine): void {
  line.program
    .command("drift")
    .description("compare results of models from week to week, from receipts")
    .argument("[folders...]", "folders with receipts (default: RADSERVE_OUTPUT_ROOTS)")
    .option(
      "--week <day>",
      "compare the week of this day, YYYY-MM-DD (default: the last one with receipts)",
    )
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await import("./command.js")).drift));
  line.statuses("drift", { 0: "no change beyond chance", 1: "a change beyond chance" });
}

export const drift: Feature = {
  name: "drift",
  commands,
  serving: async () => (await import("./serving.js")).serving,
};
