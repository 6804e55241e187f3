/** The inputs, models and cases that all recordings share: drawn once, into a folder that stays. */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join, relative } from "node:path";
import { sha256 } from "../../src/files/durable-files.js";
import { casesOf, type Case, type Input } from "./cases.js";
import { drawnImages, type Drawn } from "./images.js";
import { writeModels } from "./models.js";

export interface Workplace {
  input: string;
  models: string;
  cases: Case[];
  /**
   * Over the names and bytes of all inputs and models, and the cases: recordings of others cannot
   * be compared.
   */
  sha256: string;
}

const HEAVY_BYTES = 600_000;
/** Files of many frames, or of large ones under a strong compression. */
const MANY_FRAMES = /frame|15tile|chest|supplemental|segmented|rtdose|phantom|p14|too-short/;
/** What a folder job walks: small inputs of all kinds. */
const IN_BULK =
  /^(odd-(plain|left|chest|rescaled|utf8)|series-(even|one|gap)|slice|grey|pages|mutant-rle-[1-4]|rle-)/;

function write(folder: string, images: Record<string, Drawn>): void {
  for (const [name, drawn] of Object.entries(images)) {
    const path = join(folder, name);
    if (drawn instanceof Uint8Array) writeFileSync(path, drawn);
    else {
      mkdirSync(path);
      write(path, drawn);
    }
  }
}

function inputsOf(folder: string): Input[] {
  return ["shared", "drawn", "damaged"].flatMap((part) =>
    readdirSync(join(folder, part))
      .sort()
      .filter((name) => !/^(MANIFEST|README|LICENSES)/.test(name))
      .map((name): Input => {
        const path = `${part}/${name}`;
        const found = statSync(join(folder, path));
        const isHeavy = found.size > HEAVY_BYTES || MANY_FRAMES.test(name);
        const kind = part === "damaged" ? "damaged" : found.isDirectory() ? "series" : "image";
        return { path, kind, isHeavy };
      }),
  );
}

/** Every file below a folder, by its path there, in order. */
export function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .sort();
}

function digestOf(folder: string, cases: string): string {
  const parts = ["input", "models"].flatMap((part) =>
    filesBelow(join(folder, part)).map(
      (file) => `${part}/${file} ${sha256(readFileSync(join(folder, part, file)))}`,
    ),
  );
  return sha256(Buffer.from([...parts, cases].join("\n")));
}

/** Fills the folder if it is not there yet. */
export async function workplace(folder: string, shared: string): Promise<Workplace> {
  const [input, models, list] = [
    join(folder, "input"),
    join(folder, "models"),
    join(folder, "cases.json"),
  ];
  if (!existsSync(list)) {
    for (const part of ["shared", "drawn", "damaged", "bulk"])
      mkdirSync(join(input, part), { recursive: true });
    cpSync(shared, join(input, "shared"), { recursive: true });
    const { images, damaged } = await drawnImages();
    write(join(input, "drawn"), images);
    write(join(input, "damaged"), damaged);
    for (const [from, name] of [
      ...Object.keys(images).map((name) => ["drawn", name] as const),
      ...Object.keys(damaged).map((name) => ["damaged", name] as const),
    ])
      if (IN_BULK.test(name))
        cpSync(join(input, from, name), join(input, "bulk", name), { recursive: true });
    const cases = casesOf(inputsOf(input), await writeModels(models), ["bulk"]);
    writeFileSync(list, JSON.stringify(cases, null, 1));
  }
  const text = readFileSync(list, "utf8");
  return { input, models, cases: JSON.parse(text) as Case[], sha256: digestOf(folder, text) };
}
