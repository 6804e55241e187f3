/**
 * Coded concepts for labels, by name: those of models/codes.json, which come from context groups of
 * PS3.16.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { table } from "../base/table.js";
import type { Code } from "../manifest/texts.js";
import type { CommandResult } from "./command-result.js";
import { packageRoot } from "./files.js";

const triple = [z.string(), z.string(), z.string()] as const;
const bookSchema = z.object({
  source: z.string(),
  categories: z.record(z.string(), z.tuple(triple)),
  codes: z.array(z.tuple(triple, z.string())),
});

/** A concept that a label can have, and the categories (CID 7150) that segments of it can have. */
export interface Concept {
  code: Code;
  categories: Code[];
}

/** How many concepts `models codes` lists. */
const MOST_LISTED = 40;

export async function readConcepts(): Promise<Concept[]> {
  const text = await readFile(join(packageRoot(), "models", "codes.json"), "utf8");
  const { categories, codes } = bookSchema.parse(JSON.parse(text));
  return codes.map(([value, scheme, meaning, ...its]) => ({
    code: { value, scheme, meaning },
    categories: its.flatMap((category) => {
      const [v, s, m] = categories[category] ?? [];
      return v === undefined || s === undefined || m === undefined
        ? []
        : [{ value: v, scheme: s, meaning: m }];
    }),
  }));
}

/** Spelling that does not matter: case, and what stands between words. */
const plain = (name: string) =>
  name
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== "")
    .join(" ");

/** Concepts whose meaning is the name, and nothing more or less. */
export function conceptsNamed(name: string, concepts: readonly Concept[]): Concept[] {
  return concepts.filter(({ code }) => plain(code.meaning) === plain(name));
}

/**
 * Concepts whose meaning holds every word of the name; those with the fewest letters first. A word
 * without letters has to be a word of the meaning, and a name without any is like nothing: 1 is no
 * first vertebra.
 */
export function conceptsLike(name: string, concepts: readonly Concept[]): Concept[] {
  const words = plain(name).split(" ");
  const lettered = (word: string) => /\p{L}/u.test(word);
  if (!words.some(lettered)) return [];
  return concepts
    .filter(({ code }) => {
      const meaning = plain(code.meaning);
      return words.every((word) =>
        lettered(word) ? meaning.includes(word) : meaning.split(" ").includes(word),
      );
    })
    .sort((a, b) => a.code.meaning.length - b.code.meaning.length);
}

/** `radserve models codes`: what a name may mean. */
export async function modelsCodes(name: string): Promise<CommandResult> {
  const found = conceptsLike(name, await readConcepts());
  const rows = found
    .slice(0, MOST_LISTED)
    .map(({ code, categories }) => [
      code.value,
      code.scheme,
      code.meaning,
      categories.map(({ value, meaning }) => `${value} ${meaning}`).join(", ") || "-",
    ]);
  if (rows.length === 0)
    return {
      text: `No concept of the list holds "${name}". The list is short: search a browser of SNOMED CT or PS3.16 too.`,
      exitCode: 1,
      data: [],
    };
  const more = found.length - rows.length;
  const text = table([["CODE", "SCHEME", "MEANING", "CATEGORY AS A SEGMENT"], ...rows]);
  return {
    text: more === 0 ? text : `${text}\n${more} more: name more words.`,
    exitCode: 0,
    data: found,
  };
}
