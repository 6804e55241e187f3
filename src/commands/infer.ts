/** `radserve infer`: the use-case of POST /single_inference without a server and without roots. */
import { randomUUID } from "node:crypto";
import { stat } from "node:fs/promises";
import path from "node:path";
import { resultForms, type Config } from "../config.js";
import { infer } from "../inference/infer-image.js";
import { checkGroup } from "../inference/request.js";
import { ConfigError } from "../base/errors.js";
import { outputKindSchema, type OutputKind } from "../manifest/manifest.js";
import { monotonic } from "../base/monotonic.js";
import { during } from "./activity.js";
import { count } from "../base/table.js";
import { withoutEntry } from "../models/set.js";
import type { Answer } from "../results/receipt/receipt.js";
import { withEngine } from "./engine.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

const placeOf = ({ frame }: { frame?: number | undefined }) =>
  frame === undefined ? "" : `frame ${frame}: `;

/**
 * A number with as many digits as anybody reads: three that mean something, or all before the
 * point.
 */
export function figure(value: number): string {
  return Math.abs(value) >= 100 ? count(Math.round(value)) : String(Number(value.toPrecision(3)));
}

/** Scores are called scores: they are probabilities only where the model says so. */
function scoreOf({
  score,
  threshold,
}: {
  score?: number | undefined;
  threshold?: number | undefined;
}): string {
  if (score === undefined) return "";
  const limit = threshold === undefined ? "" : `, threshold ${threshold.toFixed(2)}`;
  return `: score ${score.toFixed(2)}${limit}`;
}

function summary(answer: Answer): string {
  const lines = answer.models.flatMap((model) => {
    const shadow = model.shadow === true ? " (shadow: recorded, not to be shown)" : "";
    const head = `${model.name} ${model.version}${shadow}: ${model.status}`;
    const why = model.error === undefined ? [] : [`  ${model.error.message}`];
    const reasons = (model.reasons ?? []).map((reason) => `  ${reason.message}`);
    const found = model.findings
      .filter((finding) => finding.present)
      .map((finding) => `  ${placeOf(finding)}${finding.label}${scoreOf(finding)}`);
    const measured = model.measurements.map(
      ({ name, label, value, unit, frame }) =>
        `  ${placeOf({ frame })}${name}${label === undefined ? "" : `, ${label}`}: ${figure(value)} ${unit.value}`,
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
    `${answer.status}${answer.reused ? " (reused)" : ""}: ${answer.receipt_path}`,
    ...answer.warnings.map(({ message }) => `Warning: ${message}`),
    ...lines,
  ].join("\n");
}

export interface InferCommand extends JsonOption {
  model?: string[];
  label?: string[];
  /** Kinds, separated by commas. */
  outputs?: string;
  /** SeriesInstanceUID. */
  series?: string;
  group?: "series";
}

/** @throws ConfigError that names the kind which is none */
function outputKinds(text: string): OutputKind[] {
  const known = outputKindSchema.options;
  return text.split(",").map((one) => {
    const kind = outputKindSchema.safeParse(one.trim());
    if (kind.success) return kind.data;
    throw new ConfigError(
      `--outputs: expected kinds of ${known.join(", ")}, separated by commas; found "${one.trim()}".`,
    );
  });
}

export async function inferFile(
  config: Config,
  input: string,
  outputFolder: string,
  options: InferCommand,
): Promise<ExitStatus> {
  const named = await stat(path.resolve(input)).catch(() => undefined);
  if (named?.isFile() === true) checkGroup(options.group, "file");
  const outputs = options.outputs === undefined ? undefined : outputKinds(options.outputs);
  return withEngine<ExitStatus>(config, async ({ engine, models }) => {
    const loaded = await during("Loading the models", models);
    for (const { error } of withoutEntry(loaded)) remark(error.message);
    const task = {
      requestId: randomUUID(),
      inputPath: path.resolve(input),
      outputFolder: path.resolve(outputFolder),
      ...(options.model === undefined ? {} : { models: options.model }),
      ...(outputs === undefined ? {} : { outputs }),
      ...(options.label === undefined ? {} : { labels: options.label }),
      ...(options.series === undefined ? {} : { seriesInstanceUid: options.series }),
      ...(options.group === undefined ? {} : { group: options.group }),
      priority: "routine" as const,
      cancelId: 1,
      deadline: monotonic() + config.deadline_seconds * 1000,
      roots: { input: undefined, output: undefined },
    };
    const answer = await during("Reading the image and running the models", () =>
      infer(task, {
        engine,
        models: loaded.entries,
        outputs: config.outputs,
        forms: resultForms(config),
      }),
    );
    print(options.json === true ? JSON.stringify(answer, null, 2) : summary(answer));
    return 0;
  });
}
