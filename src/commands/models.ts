/** `radserve models list | init | check | try`: what models-cli.ts says, with its exit status. */
import type { Config } from "../config.js";
import { createEngine, type Engine } from "../engine.js";
import { modelsCheck, modelsInit, modelsList, modelsTry, type CommandResult } from "../models-cli.js";
import { readImageFile } from "./files.js";
import { print } from "./run.js";

function say({ text, data, exitCode }: CommandResult, json = false): number {
  print(json ? JSON.stringify(data, null, 2) : text);
  return exitCode;
}

async function withEngine(config: Config, work: (engine: Engine) => Promise<number>): Promise<number> {
  const engine = createEngine({ provider: config.providers.includes("cuda") ? "cuda" : "cpu" });
  try {
    return await work(engine);
  } finally {
    await engine.close();
  }
}

export const list = async (config: Config, json: boolean) => say(await modelsList(config.models_dir), json);

/** @param graph absolute path of an .onnx file */
export const init = (config: Config, graph: string) =>
  withEngine(config, async (engine) => say(await modelsInit(graph, engine)));

/** @param folder absolute path of a model's folder */
export const check = (config: Config, folder: string) =>
  withEngine(config, async (engine) =>
    say(await modelsCheck(folder, { engine, providers: config.providers })),
  );

export interface TryCommand {
  frame?: number;
  dump?: string;
  expect?: string;
}

/** @param image absolute path; so are the files in `options` */
export const tryModel = (config: Config, folder: string, image: string, options: TryCommand) =>
  withEngine(config, async (engine) =>
    say(
      await modelsTry(folder, image, {
        engine,
        providers: config.providers,
        readImage: readImageFile,
        ...options,
      }),
    ),
  );
