/**
 * The viewer: results with their images for people, and the list of results. What it may show is
 * the setting files_by_http.
 */
import type { CommandLine } from "../../commands/command-line.js";
import type { Feature } from "../../commands/feature.js";

function commands(line: CommandLine): void {
  line
    .group("results", "rebuild the list of results")
    .command("index")
    .description("rebuild the list of results from the receipts in output roots")
    .argument("[roots...]", "output roots (default: RADSERVE_OUTPUT_ROOTS)")
    .action(line.does(async () => (await import("./index-results.js")).indexResults));
}

export const viewer: Feature = {
  name: "viewer",
  commands,
  serving: async () => (await import("./serving.js")).serving,
  doctor: async (config) => (await import("./doctor.js")).doctor(config),
};
