/**
 * `radserve models list | card | init | codes | check | compare | try | canary`: what src/models
 * says, with its exit status.
 */
import path from "node:path";
import { errors } from "../base/errors.js";
import type { Config } from "../config.js";
import type { Image } from "../images/image.js";
import type { CommandResult } from "../models/command-result.js";
import type { OnceOptions } from "../inference/infer-once.js";
import { modelsCard } from "../models/card.js";
import { modelsCodes } from "../models/codes.js";
import { withEngine } from "./engine.js";
import { withImageFile } from "./files.js";
import { during } from "./activity.js";
import { folderReading, modelsCanary } from "./models/canary.js";
import { modelsCheck } from "./models/check.js";
import { COMPARED, modelsCompare } from "./models/compare.js";
import { modelsInit } from "./models/init.js";
import { modelsList } from "./models/list.js";
import { modelsTry } from "./models/try.js";
import { print, type JsonOption } from "./run.js";

/** Prints what a command of models found, and gives its exit status. */
export function say({ text, exitCode, data }: CommandResult, json = false): number {
  print(json ? JSON.stringify(data, null, 2) : text);
  return exitCode;
}

export const list = async (config: Config, { json }: JsonOption) =>
  say(await modelsList(config.models_dir), json);

export const init = (
  config: Config,
  graph: string,
  { like, labels }: { like?: string; labels?: string },
) =>
  withEngine(config, async ({ trials }) =>
    say(
      await modelsInit(path.resolve(graph), trials, {
        models: config.models_dir,
        like,
        labels: labels && path.resolve(labels),
      }),
    ),
  );

export const card = async (config: Config, name: string, { json }: JsonOption) =>
  say(await modelsCard(config.models_dir, name), json);

export const codes = async (name: string, { json }: JsonOption) =>
  say(await modelsCodes(name), json);

export const check = (config: Config, folder: string, { json }: JsonOption) =>
  withEngine(config, async ({ engine, providers, trials }) =>
    say(
      await during("Loading the model", () =>
        modelsCheck(path.resolve(folder), { engine, providers, trials }),
      ),
      json,
    ),
  );

/** OpenVINO is opened whether or not the settings name it. */
export const compare = (config: Config, folder: string, { json }: JsonOption) =>
  withEngine({ ...config, providers: COMPARED }, async ({ engine, trials }) =>
    say(
      await during("Running the model by turns", () =>
        modelsCompare(path.resolve(folder), engine, trials),
      ),
      json,
    ),
  );

/**
 * Runs a model on an image, read as the model takes it: a folder may be a case of several, or a
 * stack that is not straight or not whole.
 */
const onImage = async (
  config: Config,
  { folder, image, frame, json }: { folder: string; image: string; frame?: string; json?: boolean },
  use: (folder: string, read: Image, options: OnceOptions) => Promise<CommandResult>,
) =>
  withImageFile(
    path.resolve(image),
    (read) =>
      withEngine(config, async ({ engine, providers, trials }) => {
        const options = {
          engine,
          providers,
          trials,
          timeoutMs: config.deadline_seconds * 1000,
          frame: frame === undefined ? undefined : Number(frame),
        };
        return say(await use(path.resolve(folder), read, options), json);
      }),
    await folderReading(folder),
  );

export interface CanaryCommand extends JsonOption {
  frame?: string;
  absolute?: string;
  relative?: string;
}

export const canary = (config: Config, folder: string, image: string, options: CanaryCommand) =>
  onImage(config, { folder, image, ...options }, (model, read, more) => {
    const absolute = limitOf(options.absolute, "--absolute");
    const relative = limitOf(options.relative, "--relative");
    return modelsCanary(model, read, { ...more, tolerance: { absolute, relative } });
  });

function limitOf(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text.trim() !== "" && value >= 0 && Number.isFinite(value)) return value;
  throw errors.bad_request(`Expected a number of at least 0 for ${option}, found "${text}".`);
}

export interface TryCommand extends JsonOption {
  frame?: string;
  dump?: string;
  expect?: string;
}

export const tryModel = (config: Config, folder: string, image: string, options: TryCommand) =>
  onImage(config, { folder, image, ...options }, (model, read, more) =>
    modelsTry(model, read, { ...more, dump: options.dump, expect: options.expect }),
  );
