/**
 * Files that somebody gives by hand: chosen, or let fall on the page; single ones, folders with all
 * that lies below them, and ZIP files, which are unpacked here.
 */
import { Fault, faultOfPage, unreadable } from "./api.js";
import type { Given, GivenFile } from "./given.js";
import { zipped } from "./zip.js";

const MOST_FILES = 20_000;

const tooMany = (): Fault =>
  faultOfPage(
    `Expected at most ${MOST_FILES} files at a time; found more. Give them in parts, or copy them to the server.`,
  );

/** Hidden files, and what else file managers leave in folders. */
const isLitter = (path: string): boolean =>
  path.split("/").some((part) => part.startsWith(".") || part === "__MACOSX") ||
  /(^|\/)(Thumbs\.db|desktop\.ini)$/i.test(path);

const ofFile = (file: File, path: string): GivenFile => ({
  path,
  bytes: file.size,
  read: () => Promise.resolve(file),
});

/** Files of an input, with their paths where a folder was chosen. */
export function chosenFiles(files: FileList | null): Promise<Given> {
  const all = [...(files ?? [])].map((file) => ofFile(file, file.webkitRelativePath || file.name));
  return unpacked({ files: all, refused: [] });
}

/**
 * What was let fall. It can be asked for in the moment of the drop alone; reading it takes longer.
 */
export function droppedFiles({ items, files }: DataTransfer): Promise<Given> {
  const entries = [...items].flatMap((item) => item.webkitGetAsEntry() ?? []);
  if (entries.length === 0) return chosenFiles(files);
  return (async () => {
    const given: Given = { files: [], refused: [] };
    for (const entry of entries) await walk(entry, given);
    return unpacked(given);
  })();
}

/** @throws Fault where there are more files than are taken: a part of a folder is no folder */
async function walk(entry: FileSystemEntry, given: Given): Promise<void> {
  const path = entry.fullPath.replace(/^\//, "");
  if (isLitter(path)) return;
  if (given.files.length > MOST_FILES) throw tooMany();
  try {
    if (entry.isFile) {
      const file = await new Promise<File>((resolve, reject) =>
        (entry as FileSystemFileEntry).file(resolve, reject),
      );
      given.files.push(ofFile(file, path));
    } else {
      const reader = (entry as FileSystemDirectoryEntry).createReader();
      // It gives a hundred at a time
      for (;;) {
        const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
          reader.readEntries(resolve, reject),
        );
        if (some.length === 0) return;
        for (const one of some) await walk(one, given);
      }
    }
  } catch (thrown) {
    if (thrown instanceof Fault) throw thrown;
    given.refused.push({ path, why: "The browser cannot read it." });
  }
}

const ZIP = [0x50, 0x4b, 0x03, 0x04];

/** Each ZIP file is replaced by the files in it, and what file managers leave is left out. */
async function unpacked({ files, refused }: Given): Promise<Given> {
  const found: Given = { files: [], refused: [...refused] };
  for (const file of files) {
    try {
      const blob = await file.read();
      const begin = new Uint8Array(await blob.slice(0, ZIP.length).arrayBuffer());
      if (ZIP.every((byte, i) => begin[i] === byte)) {
        const inside = await zipped(blob, file.path.replace(/\.zip$/i, ""));
        found.files.push(...inside.files);
        found.refused.push(...inside.refused);
      } else found.files.push(file);
    } catch (thrown) {
      const { message } = thrown instanceof Fault ? thrown : unreadable();
      found.refused.push({ path: file.path, why: message });
    }
  }
  const images = found.files.filter(({ path }) => !isLitter(path));
  if (images.length > MOST_FILES) throw tooMany();
  return { files: images, refused: found.refused };
}
