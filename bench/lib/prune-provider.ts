/**
 * `node dist/bench/lib/prune-provider.js FROM TO ARCHITECTURE`: blanks the GPU code of all other
 * architectures in a library, which then packs to a fifth. The section .nv_fatbin holds containers
 * one after the other, each a header and entries of a header and code (seen in libraries of CUDA
 * 13; the layout is not documented).
 */
import { readFileSync, writeFileSync } from "node:fs";

const CONTAINER = 0xba55ed50;
/** Kinds of entries: intermediate code is 1. */
const MACHINE_CODE = 2;

/** Where a section lies in an ELF file of 64 bits (System V ABI, chapter 4). */
function section(file: Buffer, wanted: string): { at: number; end: number } {
  const headers = Number(file.readBigUInt64LE(0x28));
  const size = file.readUInt16LE(0x3a);
  const count = file.readUInt16LE(0x3c);
  const offset = (index: number) => Number(file.readBigUInt64LE(headers + index * size + 0x18));
  const names = offset(file.readUInt16LE(0x3e));
  for (let index = 0; index < count; index++) {
    const name = names + file.readUInt32LE(headers + index * size);
    if (file.toString("latin1", name, file.indexOf(0, name)) !== wanted) continue;
    const at = offset(index);
    return { at, end: at + Number(file.readBigUInt64LE(headers + index * size + 0x20)) };
  }
  throw new Error(`The library has no section ${wanted}.`);
}

/**
 * Blanks what is not for that architecture. @returns the bytes of code that stay, and those that go
 */
function prune(file: Buffer, architecture: number): { kept: number; blanked: number } {
  const done = { kept: 0, blanked: 0 };
  const { at, end } = section(file, ".nv_fatbin");
  for (let container = at; container < end - 16;) {
    if (file.readUInt32LE(container) !== CONTAINER) {
      // Containers begin at multiples of eight
      container += 8;
      continue;
    }
    let entry = container + file.readUInt16LE(container + 6);
    container = entry + Number(file.readBigUInt64LE(container + 8));
    while (entry < container) {
      const kind = file.readUInt16LE(entry);
      const code = entry + file.readUInt32LE(entry + 4);
      const bytes = Number(file.readBigUInt64LE(entry + 8));
      const stays = kind === MACHINE_CODE && file.readUInt32LE(entry + 28) === architecture;
      if (!stays) file.fill(0, code, code + bytes);
      done[stays ? "kept" : "blanked"] += bytes;
      entry = code + bytes;
    }
  }
  return done;
}

const [from = "", to = "", architecture = ""] = process.argv.slice(2);
const file = readFileSync(from);
const { kept, blanked } = prune(file, Number(architecture));
if (kept === 0) throw new Error(`The library has no code for architecture ${architecture}.`);
writeFileSync(to, file);
console.log(
  `${(kept / 1e6).toFixed(1)} MB for architecture ${architecture} stay, ${(blanked / 1e6).toFixed(1)} MB go`,
);
