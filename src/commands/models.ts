/** `radserve models list | init | check | try`: what models-cli.ts says, with its exit status. */
import type { Config } from "../config.js";
import { modelsCheck, modelsInit, modelsList, modelsTry } from "../models-cli.js";
import { print } from "./run.js";

interface Said {
  text: string;
  exitCode: number;
}

function say({ text, exitCode }: Said): number {
  print(text);
  return exitCode;
}

export const list = async (config: Config, json: boolean) =>
  say(await modelsList({ directory: config.models_dir, providers: config.providers, json }));

export const init = async (graph: string, options: { name?: string; output?: string }) =>
  say(await modelsInit(graph, options));

export const check = async (folder: string) => say(await modelsCheck(folder));

export const tryModel = async (folder: string, image: string, options: { dump?: string; expect?: string }) =>
  say(await modelsTry(folder, image, options));
