/** `radserve infer`: the use-case of POST /single_inference without a server and without roots. */
import { randomUUID } from "node:crypto";
import path from "node:path";
import type { Config } from "../config.js";
import { infer } from "../inference/infer-image.js";
import { createLog } from "../base/log.js";
import { loadModels, withoutEntry } from "../models/set.js";
import type { Answer } from "../results/receipt/receipt.js";
import { withEngine } from "../server/start-engine.js";
import { print, remark, type ExitStatus } from "./run.js";

const placeOf = ({ frame }: { frame?: number | undefined }) =>
  frame === undefined ? "" : `frame ${frame}: `;

function summary(answer: Answer): string {
  const lines = answer.models.flatMap((model) => {
    const head = `${model.name} ${model.version}: ${model.status}`;
    const why = model.error === undefined ? [] : [`  ${model.error.message}`];
    const reasons = (model.reasons ?? []).map((reason) => `  ${reason.message}`);
    const found = model.findings
      .filter((finding) => finding.present)
      .map(
        (finding) =>
          `  ${placeOf(finding)}${finding.label}${finding.score === undefined ? "" : ` (score ${finding.score.toFixed(2)})`}`,
      );
    const measured = model.measurements.map(
      ({ name, label, value, unit, frame }) =>
        `  ${placeOf({ frame })}${name}${label === undefined ? "" : `, ${label}`}: ${value} ${unit.value}`,
    );
    const warned = model.warnings.map(({ message }) => `  Warning: ${message}`);
    return [
      head,
      ...why,
      ...reasons,
      ...found,
      ...measured,
      ...warned,
      ...model.outputs.map((output) => `  ${output.path}`),
    ];
  });
  return [
    `${answer.status}${answer.reused ? " (was there already)" : ""}: ${answer.receipt_path}`,
    ...answer.warnings.map(({ message }) => `Warning: ${message}`),
    ...lines,
  ].join("\n");
}

export interface InferCommand {
  model?: string[];
  json?: boolean;
}

export async function inferFile(
  config: Config,
  input: string,
  outputFolder: string,
  options: InferCommand,
): Promise<ExitStatus> {
  return withEngine<ExitStatus>(config, async (engine, providers) => {
    const models = await loadModels({
      directory: config.models_dir,
      engine,
      providers,
      log: createLog("silent"),
    });
    for (const { error } of withoutEntry(models)) remark(error.message);
    try {
      const answer = await infer(
        {
          requestId: randomUUID(),
          inputPath: path.resolve(input),
          outputFolder: path.resolve(outputFolder),
          ...(options.model === undefined ? {} : { models: options.model }),
          priority: "routine",
          cancelId: 1,
          roots: { input: undefined, output: undefined },
        },
        { engine, models: models.entries, outputs: config.outputs, overlayOpacity: config.overlay_opacity },
      );
      print(options.json === true ? JSON.stringify(answer, null, 2) : summary(answer));
      return 0;
    } finally {
      await models.close();
    }
  });
}
