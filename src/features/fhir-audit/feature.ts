/** The audit in the form of FHIR R4 (IHE BALP), for a record repository. */
import type { AuditRange } from "../../commands/audit.js";
import type { CommandLine } from "../../commands/command-line.js";
import type { Feature } from "../../commands/feature.js";
import type { Config } from "../../config.js";

function commands(line: CommandLine): void {
  line
    .group("audit")
    .command("export")
    .description("print FHIR R4 AuditEvents (IHE BALP), one per line")
    .option("--from <day>", "the first day, for example 2026-11-21 (UTC)")
    .option("--to <day>", "the last day")
    .option("--folder <folder>", "export these files (default: audit in the state directory)")
    .action(
      line.does(async () => {
        const { auditExport } = await import("./export.js");
        const interactionOf = await line.interactions();
        return (config: Config, options: AuditRange) => auditExport(config, options, interactionOf);
      }),
    );
}

export const fhirAudit: Feature = { name: "fhir-audit", commands };
