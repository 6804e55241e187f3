/**
 * The software bill of materials: what npm knows of the installed production packages, and what
 * they hold inside.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { v5 as uuidV5 } from "uuid";
import { z } from "zod";
import { installedPackages, root } from "./installed.js";
import { HOLDERS, NODE, nodeParts, ONNX_RUNTIME, VIPS, vipsParts, type Part } from "./parts.js";

/** For serial numbers that follow from what they number. */
const NAMESPACE = "6f3f8f2e-6a2b-5c0e-9d2c-1f6a0f1f7c11";

const componentSchema = z.looseObject({
  "bom-ref": z.string(),
  name: z.string(),
  version: z.string(),
  externalReferences: z.array(z.looseObject({ url: z.string() })).optional(),
});
const dependencySchema = z.object({ ref: z.string(), dependsOn: z.array(z.string()).optional() });

/** What is read of the output of `npm sbom` (CycloneDX 1.5); the rest is kept as it is. */
const npmSchema = z.looseObject({
  metadata: z.looseObject({
    component: componentSchema,
    tools: z.unknown(),
    timestamp: z.unknown(),
  }),
  components: z.array(componentSchema),
  dependencies: z.array(dependencySchema),
});

type Licence = { license: { id: string } } | { license: { name: string } } | { expression: string };

/** A component of CycloneDX 1.5, as far as it is used here. */
export interface Component {
  "bom-ref": string;
  type?: string;
  name: string;
  version: string;
  licenses?: unknown;
  hashes?: unknown;
  components?: Component[];
  [key: string]: unknown;
}

export interface Sbom {
  serialNumber: string;
  metadata: { component: Component; [key: string]: unknown };
  components: Component[];
  dependencies: { ref: string; dependsOn?: string[] | undefined }[];
  [key: string]: unknown;
}

const sha256 = (data: Buffer | string) => createHash("sha256").update(data).digest("hex");
const byRef = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

function licencesOf(expression: string): Licence[] {
  if (expression.startsWith("LicenseRef-"))
    return [{ license: { name: expression.slice("LicenseRef-".length).replaceAll("-", " ") } }];
  return /\s/.test(expression) ? [{ expression }] : [{ license: { id: expression } }];
}

/** The SPDX expression of a component, or undefined where it names none. */
export function licenceOf(component: Component): string | undefined {
  const shape = z.array(
    z.object({
      license: z.object({ id: z.string().optional(), name: z.string().optional() }).optional(),
      expression: z.string().optional(),
    }),
  );
  const all = shape.parse(component.licenses ?? []).map(({ license, expression }) => {
    const name = license?.name;
    return (
      expression ??
      license?.id ??
      (name === undefined ? undefined : `LicenseRef-${name.replaceAll(" ", "-")}`)
    );
  });
  return all.length === 0 ? undefined : all.join(" AND ");
}

/**
 * A part inside a package.
 * @throws Error if its file does not show the version
 */
function partComponent(holder: string, folder: string, part: Part): Component {
  const { name, version, licence, purl, type = "library", description, file, evidence } = part;
  const data = file === undefined ? undefined : readFileSync(path.join(folder, file));
  if (data !== undefined && evidence !== undefined && !data.includes(evidence))
    throw new Error(
      `${holder}/${file}: expected "${evidence}" in it, for ${name} ${version}; look again at what the package holds, and change scripts/sbom/parts.ts.`,
    );
  return {
    "bom-ref": `${holder}#${name}@${version}`,
    type,
    name,
    version,
    ...(description === undefined ? {} : { description }),
    ...(data === undefined ? {} : { hashes: [{ alg: "SHA-256", content: sha256(data) }] }),
    licenses: licencesOf(licence),
    ...(purl === undefined ? {} : { purl }),
    ...(file === undefined ? {} : { properties: [{ name: "radserve:file", value: file }] }),
  };
}

/**
 * The parts that a package holds, and its own licence where it does not name one; nothing for other
 * packages.
 */
function insideOf(name: string, version: string): Partial<Component> {
  const folder = path.join(root, "node_modules", name);
  if (name === VIPS) {
    const versions = JSON.parse(
      readFileSync(path.join(folder, "versions.json"), "utf8"),
    ) as unknown;
    const parts = vipsParts(z.record(z.string(), z.string()).parse(versions));
    return { components: parts.map((part) => partComponent(name, folder, part)) };
  }
  if (name === NODE) {
    const words = ["-p", "JSON.stringify(process.versions)"];
    const versions = JSON.parse(
      execFileSync(path.join(folder, "bin/node"), words, { encoding: "utf8" }),
    ) as unknown;
    const parts = nodeParts(z.record(z.string(), z.string()).parse(versions));
    return {
      components: parts.map((part) => partComponent(name, folder, { ...part, file: "bin/node" })),
    };
  }
  const holder = HOLDERS[name];
  if (holder === undefined) return {};
  if (holder.version !== version)
    throw new Error(
      `scripts/sbom/parts.ts lists what ${name} ${holder.version} holds; found ${version}. Look what that one holds, and change the list.`,
    );
  return {
    ...(holder.licence === undefined ? {} : { licenses: licencesOf(holder.licence) }),
    components: holder.parts.map((part) => partComponent(name, folder, part)),
  };
}

/** What the addon is compiled with and linked to. */
const LINKED = ["node-addon-api@", `${ONNX_RUNTIME}#onnxruntime@`];

function addonComponent(version: string): Component {
  return {
    "bom-ref": `addon@${version}`,
    type: "library",
    name: "radserve-addon",
    version,
    description:
      "The native addon (native/), built from the sources at install time, for Node-API 8.",
    licenses: licencesOf("Apache-2.0"),
  };
}

/** The models that come with Radserve. */
function modelComponents(): Component[] {
  const folder = path.join(root, "models");
  return readdirSync(folder)
    .filter((name) => existsSync(path.join(folder, name, "model.json")))
    .map((name) => {
      const manifest = readFileSync(path.join(folder, name, "model.json"));
      const { version } = z
        .object({ version: z.string() })
        .parse(JSON.parse(manifest.toString("utf8")));
      return {
        "bom-ref": `model#${name}@${version}`,
        type: "machine-learning-model",
        name,
        version,
        description: "The hash is that of model.json, which pins each file of the model.",
        hashes: [{ alg: "SHA-256", content: sha256(manifest) }],
        licenses: licencesOf("Apache-2.0"),
      };
    });
}

/** A form that some packages name their repository in, and that is no URL. */
const SCP_FORM = /^git@([^:/]+):/;

/**
 * What npm says of the installed packages. Its own `--omit dev` leaves out packages that
 * development needs as well, so that those of the lock file are taken instead. Fails where the tree
 * is not whole.
 */
function npmSbom() {
  const text = execFileSync("npm", ["sbom", "--sbom-format", "cyclonedx"], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  const npm = npmSchema.parse(JSON.parse(text));
  const installed = installedPackages();
  const kept = new Set([...installed.keys(), npm.metadata.component["bom-ref"]]);
  const components = npm.components
    .filter((component) => kept.has(component["bom-ref"]))
    .map((component) => ({
      ...component,
      externalReferences: component.externalReferences?.map((reference) => ({
        ...reference,
        url: reference.url.replace(SCP_FORM, "ssh://git@$1/"),
      })),
    }));
  const dependencies = npm.dependencies
    .filter(({ ref }) => kept.has(ref))
    .map(({ ref, dependsOn = [] }) => ({
      ref,
      dependsOn: dependsOn.filter((other) => kept.has(other)),
    }));
  if (components.length !== installed.size)
    throw new Error(
      `The lock file has ${installed.size} installed production packages, npm sbom ${components.length}.`,
    );
  return { ...npm, components, dependencies };
}

/**
 * The bill of the installed production packages, as CycloneDX 1.5. Equal packages give equal bytes:
 * it has no time, and its serial number is derived from its content.
 * @throws Error if a package is not the version that scripts/sbom/parts.ts knows
 */
export function makeSbom(): Sbom {
  const npm = npmSbom();
  const { component: self } = npm.metadata;
  const components = npm.components.map((component): Component => ({
    ...component,
    ...insideOf(component.name, component.version),
  }));
  const missing = [NODE, VIPS, ...Object.keys(HOLDERS)].filter(
    (name) => !components.some((component) => component["bom-ref"].startsWith(`${name}@`)),
  );
  if (missing.length > 0)
    throw new Error(
      `scripts/sbom/parts.ts lists parts of ${missing.join(", ")}, not installed here.`,
    );
  const addon = addonComponent(self.version);
  const own = [addon, ...modelComponents()];
  const linked = [...components, ...components.flatMap((component) => component.components ?? [])]
    .map((component) => component["bom-ref"])
    .filter((ref) => LINKED.some((start) => ref.startsWith(start)));
  const dependencies = npm.dependencies
    .map(({ ref, dependsOn }) => ({
      ref,
      dependsOn: [
        ...dependsOn,
        ...(ref === self["bom-ref"] ? own.map((component) => component["bom-ref"]) : []),
      ].sort(byRef),
    }))
    .concat({ ref: addon["bom-ref"], dependsOn: linked.sort(byRef) })
    .sort((a, b) => byRef(a.ref, b.ref));
  const content = {
    $schema: "http://cyclonedx.org/schema/bom-1.5.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    version: 1,
    metadata: {
      lifecycles: [{ phase: "build" }],
      // npm names the root after its folder, which differs from clone to clone
      component: { ...self, type: "application", name: "radserve" },
    },
    components: [...components, ...own].sort((a, b) => byRef(a["bom-ref"], b["bom-ref"])),
    dependencies,
  };
  return { ...content, serialNumber: `urn:uuid:${uuidV5(JSON.stringify(content), NAMESPACE)}` };
}

export function packagesOf(sbom: Sbom): Component[] {
  return sbom.components.filter(
    ({ purl }) => typeof purl === "string" && purl.startsWith("pkg:npm/"),
  );
}

/** Every component with its parts, under the name by which scripts/sbom/licences.ts knows it. */
export function named(sbom: Sbom): { name: string; component: Component }[] {
  return sbom.components.flatMap((component) => [
    { name: component.name, component },
    ...(component.components ?? []).map((part) => ({
      name: `${component.name} > ${part.name}`,
      component: part,
    })),
  ]);
}
