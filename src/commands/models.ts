/** `radserve models list | init | check | try`: what models-cli.ts says, with its exit status. */
import path from "node:path";
import type { Config } from "../config.js";
import {
  modelsCheck,
  modelsInit,
  modelsList,
  modelsTry,
  type CommandResult,
} from "../models/developer-tools.js";
import { withEngine } from "../server/start-engine.js";
import { withImageFile } from "./files.js";
import { print } from "./run.js";

function say({ text, exitCode, data }: CommandResult, json = false): number {
  print(json ? JSON.stringify(data, null, 2) : text);
  return exitCode;
}

export const list = async (config: Config, json: boolean) => say(await modelsList(config.models_dir), json);

export const init = (config: Config, graph: string) =>
  withEngine(config, async (engine) => say(await modelsInit(path.resolve(graph), engine)));

export const check = (config: Config, folder: string, json: boolean) =>
  withEngine(config, async (engine, providers) =>
    say(await modelsCheck(path.resolve(folder), { engine, providers }), json),
  );

export interface TryCommand {
  frame?: string;
  dump?: string;
  expect?: string;
  json?: boolean;
}

export const tryModel = (config: Config, folder: string, image: string, options: TryCommand) =>
  withImageFile(path.resolve(image), (read) =>
    withEngine(config, async (engine, providers) => {
      const { frame, json, ...files } = options;
      return say(
        await modelsTry(path.resolve(folder), read, {
          engine,
          providers,
          ...(frame === undefined ? {} : { frame: Number(frame) }),
          ...files,
        }),
        json,
      );
    }),
  );
