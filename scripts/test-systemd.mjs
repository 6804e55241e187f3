/**
 * `npm run trial -- systemd [DEB]`: installs the Debian package over this machine's own root (an
 * overlay, which goes away again), starts systemd there as process 1 (systemd-nspawn), and tries
 * the unit: start, reload, restart, stop, kill -9 of each process, wrong settings, a job that a
 * restart interrupts, commands of root, upgrades, and what it may write to. Needs root, and
 * Debian's systemd, systemd-container and dpkg. Ends with 1 where something is not as it should be.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { samples } from "../dist/scripts/demo/samples.js";
import { packDebian } from "./deb.mjs";
import { check, until } from "./trial.mjs";

const IMAGES = 60;
const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-systemd-"));
const [upper, work, root] = ["upper", "work", "root"].map((name) => {
  const made = path.join(folder, name);
  mkdirSync(made, { mode: 0o755 });
  return made;
});

function run(program, parameters, timeout = 240_000) {
  const { status, stdout, stderr } = spawnSync(program, parameters, { encoding: "utf8", timeout });
  return { status, text: `${stdout}${stderr}`.trim() };
}

const childOf = (pid) =>
  Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ")[0]);
let init = 0;
/** A line of a shell of root beside systemd. */
const inside = (line) => run("nsenter", ["-t", String(init), "-a", "sh", "-c", line]);
const shown = (property) => inside(`systemctl show -p ${property} --value radserve`).text;
const ready = () =>
  until("it is ready", () =>
    Promise.resolve(
      inside("curl -s -m 20 -o /dev/null -w '%{http_code}' http://127.0.0.1:8500/health/ready")
        .text === "200",
    ),
  );

let token = "";
function ask(page, body) {
  const data = body === undefined ? "" : `-d '${JSON.stringify(body)}'`;
  const { text } = inside(
    `curl -s -m 120 -H 'Authorization: ${token}' -H 'Content-Type: application/json' ${data} http://127.0.0.1:8500${page}`,
  );
  return JSON.parse(text);
}

async function killed(what, line) {
  const before = inside(
    "cat /proc/$(systemctl show -p MainPID --value radserve)/task/*/children",
  ).text;
  inside(line);
  await until("another process serves", () =>
    Promise.resolve(
      inside("cat /proc/$(systemctl show -p MainPID --value radserve)/task/*/children").text !==
        before,
    ),
  );
  await ready();
  check(`it serves again after kill -9 of ${what}`, shown("ActiveState") === "active");
}

async function unit() {
  inside("systemctl enable --now radserve");
  await ready();
  check("it starts", true);
  token = inside("radserve token issue --subject trial 2>/dev/null").text;
  const strangers = inside("find /var/lib/radserve ! -user radserve | head").text;
  check("what root's commands write belongs to the service", strangers === "", strangers);
  const one = ask("/single_inference", {
    input_image_path: "/srv/images/0.dcm",
    output_folder_path: "/srv/results/one",
  });
  check("a single request", one.status === "completed", JSON.stringify(one));
  check(
    "doctor finds nothing",
    inside("radserve doctor").status === 0,
    inside("radserve doctor").text,
  );

  const { job_id: id } = ask("/bulk_inference", {
    input_folder_path: "/srv/images",
    output_folder_path: "/srv/results/job",
  });
  const job = () => ask(`/bulk_inference/${id}`);
  await until("a result of the job", () => Promise.resolve(job().counts.succeeded > 0));
  check("restart in the middle of a job", inside("systemctl restart radserve").status === 0);
  await ready();
  const ended = await until("the job has ended", () => {
    const found = job();
    // Whose database is starting answers with an error, which has no such field
    return Promise.resolve(typeof found.finished_at === "string" && found);
  });
  check("the job goes on to its end", ended.counts.succeeded === IMAGES, JSON.stringify(ended));

  check("reload", inside("systemctl reload radserve").status === 0);
  const main = "$(systemctl show -p MainPID --value radserve)";
  await killed("the serving process", `kill -9 $(pgrep -P ${main} -f src/serving.js)`);
  await killed("the supervisor", `kill -9 ${main}`);
  await killed("all", "systemctl kill -s SIGKILL radserve");
  const places = ["/opt/radserve", "/etc", "/srv/images", "/home"];
  const written = places.filter(
    (place) => inside(`nsenter -t ${main} -m touch ${place}/stranger`).status === 0,
  );
  check("it may not write elsewhere", written.length === 0, written.join(" "));

  await reinstalled();
  inside("systemctl stop radserve");
  check("stop", shown("Result") === "success" && shown("ExecMainStatus") === "0", shown("Result"));
  check("the audit is whole", inside("radserve audit verify").status === 0);
  inside("echo RADSERVE_PORT=none > /etc/radserve/environment; systemctl start radserve");
  await until("it has failed", () => Promise.resolve(shown("ActiveState") === "failed"));
  check(
    "wrong settings are not tried again",
    shown("ExecMainStatus") === "2" && shown("NRestarts") === "0",
  );
  inside(
    "echo RADSERVE_OUTPUT_ROOTS=/srv/results/late > /etc/radserve/environment; systemctl reset-failed radserve; systemctl start radserve",
  );
  await until("it was tried again", () => Promise.resolve(Number(shown("NRestarts")) > 1));
  inside("install -d -o radserve -g radserve /srv/results/late");
  await ready();
  check("a root that comes late is found", shown("ActiveState") === "active");
  const security = inside("systemd-analyze security --no-pager radserve | tail -1").text;
  check(security, /: [01]\.[0-5] /.test(security), security);
}

/** Whether it runs and whether it is enabled stay as they were. */
async function reinstalled() {
  const enabled = () => inside("systemctl is-enabled radserve").text;
  inside("systemctl disable radserve && dpkg -i --force-unsafe-io /radserve.deb");
  await ready();
  check("an upgrade starts it again, and it stays disabled", enabled() === "disabled", enabled());
  inside(
    "systemctl enable radserve && dpkg -r radserve && dpkg -i --force-unsafe-io /radserve.deb",
  );
  check("removed and installed again, it is enabled", enabled() === "enabled", enabled());
  inside("systemctl mask --now radserve");
  const { status, text } = inside("dpkg -i --force-unsafe-io /radserve.deb");
  check(
    "an upgrade of a masked unit",
    status === 0 && enabled() === "masked",
    `${text} ${enabled()}`,
  );
  inside("systemctl unmask radserve && systemctl start radserve");
  await ready();
}

let machine;
try {
  const file = process.argv[2] ?? (await packDebian(folder));
  const layers = `lowerdir=/,upperdir=${upper},workdir=${work}`;
  const mounted = run("mount", ["-t", "overlay", "overlay", "-o", layers, root]);
  if (mounted.status !== 0) throw new Error(`An overlay over / is needed: ${mounted.text}`);
  const installed = run("chroot", [root, "dpkg", "-i", "--force-unsafe-io", file], 600_000);
  check("dpkg -i", installed.status === 0, installed.text);
  copyFileSync(file, path.join(root, "radserve.deb"));
  const images = path.join(root, "srv/images");
  writeFileSync(path.join(images, "0.dcm"), (await samples()).ct);
  for (let i = 1; i < IMAGES; i++)
    linkSync(path.join(images, "0.dcm"), path.join(images, `${i}.dcm`));
  machine = spawn(
    "systemd-nspawn",
    [
      "-q",
      "--boot",
      "-D",
      root,
      "--private-network",
      "--register=no",
      "--keep-unit",
      "--console=pipe",
    ],
    { stdio: "ignore" },
  );
  await until("systemd runs", () => {
    init = childOf(machine.pid);
    return Promise.resolve(/running|degraded/.test(inside("systemctl is-system-running").text));
  });
  await unit();
} catch (error) {
  check(error.message, false, error.stack);
} finally {
  if (machine !== undefined) {
    const gone = once(machine, "exit");
    inside("systemctl poweroff --force");
    await gone;
  }
  run("umount", [root]);
  rmSync(folder, { recursive: true, force: true });
}
