/** Transforms in words, for the command line and for the page. */
import type { TransformStep } from "./image.js";

/** One step: its name, then its parameters. */
export function stepText({ step, ...parameters }: TransformStep): string {
  const text = (value: unknown): string =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? `{${Object.entries(value).map(pairText).join(", ")}}`
      : Array.isArray(value)
        ? value.map(text).join(" ")
        : String(value);
  const pairText = ([key, value]: [string, unknown]) =>
    `${key.replaceAll("_", " ")} ${text(value)}`;
  const all = Object.entries(parameters).map(pairText);
  return [step.replaceAll("_", " "), ...(all.length === 0 ? [] : [all.join(", ")])].join(": ");
}
