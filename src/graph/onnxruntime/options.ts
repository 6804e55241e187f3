/**
 * Options of sessions and runs as onnxruntime-node has them. What means nothing else than the
 * engine does is taken, what onnxruntime-node passes over is passed over, and all else is refused
 * by name.
 */
import type { InferenceSession } from "onnxruntime-common";
import { EngineError, type LoadOptions } from "../index.js";

type Options = InferenceSession.SessionOptions;
type RunOptions = InferenceSession.RunOptions;

/** Of the engine's face: in a bundle that is another class than the one of errors.ts. */
export const { unlike } = EngineError;

/** What is expected of an option, and whether a value is that. */
type Rule = readonly [expected: string, fits: (value: unknown) => boolean];

const among = (...values: readonly (string | number | boolean)[]): Rule => [
  values.map((value) => JSON.stringify(value)).join(", "),
  (value) => values.some((one) => one === value),
];
const only = (value: string | boolean, why: string): Rule => [
  `${JSON.stringify(value)} (${why})`,
  (found) => found === value,
];
const nothing = (why: string): Rule => [
  `nothing (${why})`,
  (value) => typeof value === "object" && value !== null && Object.keys(value).length === 0,
];
const count: Rule = [
  "a whole number from 0",
  (value) => Number.isSafeInteger(value) && (value as number) >= 0,
];
const text: Rule = ["text", (value) => typeof value === "string"];
const flag = among(true, false);
const severity = among(0, 1, 2, 3, 4);

const LOGS = { logSeverityLevel: severity, logVerbosityLevel: count } as const;

const SESSION_RULES: { readonly [Name in keyof Options]: Rule } = {
  intraOpNumThreads: count,
  // ONNX Runtime itself uses them in parallel mode alone
  interOpNumThreads: count,
  executionMode: only("sequential", "the engine runs the nodes of a graph one after the other"),
  graphOptimizationLevel: only("all", "the engine optimises every graph"),
  // How memory is kept is the engine's affair, and no result depends on it
  enableCpuMemArena: flag,
  enableMemPattern: flag,
  enableProfiling: only(false, "the engine writes no profile"),
  optimizedModelFilePath: ["nothing (the engine writes no model)", (value) => value === ""],
  preferredOutputLocation: [
    '"cpu" (outputs of the engine lie there)',
    (value) =>
      value === "cpu" ||
      (typeof value === "object" && Object.values(value ?? {}).every((place) => place === "cpu")),
  ],
  externalData: nothing("load the model by its path, with its weights beside it"),
  extra: nothing("the engine has no other settings of ONNX Runtime"),
  // The engine has no log
  ...LOGS,
  logId: text,
  profileFilePrefix: text,
};

const RUN_RULES: { readonly [Name in keyof RunOptions]: Rule } = { ...LOGS, tag: text };

function check(what: string, options: object, rules: Readonly<Record<string, Rule>>): void {
  for (const [name, [expected, fits]] of Object.entries(rules)) {
    const value: unknown = Reflect.get(options, name);
    if (value === undefined || fits(value)) continue;
    throw unlike(`${what} "${name}"`, expected, JSON.stringify(value));
  }
}

/** @throws EngineError bad_request with the option's name */
export function loadOptionsOf(options: Options): LoadOptions {
  check("The option", options, SESSION_RULES);
  // The first decides, as it does where a graph is divided among several
  const [first = "cpu"] = options.executionProviders ?? [];
  const provider = typeof first === "string" ? { name: first } : first;
  const threads = options.intraOpNumThreads ?? 0;
  return {
    ...(threads === 0 ? {} : { threads }),
    // What CUDA computes with unless it is told otherwise, in onnxruntime-node
    ...(provider.name === "cuda"
      ? { provider: "cuda", precision: "tf32", gpus: [deviceOf(provider)] }
      : {}),
  };
}

function deviceOf(provider: object): number {
  const { deviceId = 0 } = provider as { deviceId?: unknown };
  if (typeof deviceId !== "number")
    throw unlike('The option "deviceId"', "a number", JSON.stringify(deviceId));
  return deviceId;
}

/** @throws EngineError bad_request with the option's name */
export const checkRunOptions = (options: RunOptions): void =>
  check("The run option", options, RUN_RULES);
