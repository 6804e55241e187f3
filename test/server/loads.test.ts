/** What a serving process loads before it knows its settings: of a feature only what all need. */
import path from "node:path";
import { build } from "esbuild";
import t from "tap";
import { root } from "../support/server.js";

/** The files of features that are loaded with this one, in the order of their names. */
async function loadedWith(entry: string): Promise<string[]> {
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: [entry],
    outdir: path.join(root, "dist/never-written"),
    bundle: true,
    splitting: true,
    packages: "external",
    format: "esm",
    platform: "node",
    write: false,
    metafile: true,
  });
  const found = new Set<string>();
  const add = (file: string) => {
    if (found.has(file)) return;
    found.add(file);
    // What is imported by import() is loaded when somebody asks
    for (const { kind, path: to, external } of metafile.inputs[file]?.imports ?? [])
      if (kind === "import-statement" && external !== true) add(to);
  };
  add(entry);
  return [...found].filter((file) => file.startsWith("src/features/")).sort();
}

t.test("with the list of features comes one file of each", async (t) => {
  const loaded = await loadedWith("src/serving.ts");
  t.not(loaded.length, 0);
  t.strictSame(
    loaded.filter((file) => !/^src\/features\/[^/]+\/feature\.ts$/.test(file)),
    [],
  );
});

t.test(
  "of the gateway that is off come its endpoints, and nothing that receives or sends",
  async (t) => {
    const loaded = await loadedWith("src/features/gateway/serving.ts");
    t.strictSame(loaded, [
      "src/features/gateway/content-type.ts",
      "src/features/gateway/deliver/endpoints.ts",
      "src/features/gateway/deliver/messages.ts",
      "src/features/gateway/gateway.ts",
      "src/features/gateway/receive/endpoints.ts",
      "src/features/gateway/receive/received.ts",
      "src/features/gateway/receive/senders.ts",
      "src/features/gateway/serving.ts",
      "src/features/gateway/setting.ts",
      "src/features/gateway/subject.ts",
    ]);
  },
);
