/**
 * The Helm chart: Helm takes it, and what comes of it, with the usual values and with others, is
 * what the schemas of Kubernetes ask for. What the pods are told is read out of that.
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { commandsAre, PYTHON, pythonHas } from "../support/needs.js";
import { root } from "../support/server.js";

const chart = path.join(root, "deploy/helm");
const skip = commandsAre("helm") || pythonHas("kubernetes_validate", "yaml");

/** Checks each document of a stream, and prints all of them as JSON. */
const VALIDATE = `
import json, sys, yaml, kubernetes_validate
found = [one for one in yaml.safe_load_all(sys.stdin) if one]
for one in found:
    kubernetes_validate.validate(one, sys.argv[1], strict=True)
print(json.dumps(found))
`;
/** The oldest version that the chart is for, and the newest that is known. */
const VERSIONS = ["1.27.0", kubernetes()];

function kubernetes(): string {
  const { stdout } = spawnSync(
    PYTHON,
    ["-c", "import kubernetes_validate as k; print(k.latest_version())"],
    { encoding: "utf8" },
  );
  return stdout.trim();
}

interface Resource {
  kind: string;
  metadata: { name: string };
  spec: Record<string, unknown>;
}

function rendered(t: Test, ...words: string[]): Resource[] {
  let found: Resource[] = [];
  for (const version of VERSIONS) {
    const { status, stdout, stderr } = spawnSync(
      "helm",
      ["template", "rs", chart, "--kube-version", version, ...words],
      { encoding: "utf8" },
    );
    t.equal(status, 0, stderr);
    const checked = spawnSync(PYTHON, ["-c", VALIDATE, version], {
      input: stdout,
      encoding: "utf8",
    });
    t.equal(checked.status, 0, `Kubernetes ${version}: ${checked.stderr}`);
    found = JSON.parse(checked.stdout) as Resource[];
  }
  return found;
}

interface Pod {
  terminationGracePeriodSeconds: number;
  securityContext: object;
  containers: {
    env: { name: string; value?: string; valueFrom?: object }[];
    securityContext: object;
    volumeMounts: { name: string; mountPath: string; readOnly?: boolean }[];
    readinessProbe: object;
  }[];
}

const podOf = (found: Resource[], name: string): Pod => {
  const set = found.find((one) => one.kind === "StatefulSet" && one.metadata.name === name)!;
  return (set.spec["template"] as { spec: Pod }).spec;
};

t.test("the chart with its usual values", { skip }, (t) => {
  const lint = spawnSync("helm", ["lint", "--strict", chart], { encoding: "utf8" });
  t.equal(lint.status, 0, lint.stdout + lint.stderr);
  const found = rendered(t);
  t.strictSame(
    found.map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort(),
    ["PodDisruptionBudget", "Service", "StatefulSet"].flatMap((kind) =>
      ["rs-api", "rs-worker"].map((name) => `${kind} ${name}`),
    ),
  );
  const pod = podOf(found, "rs-api");
  t.equal(pod.terminationGracePeriodSeconds, 15 + 60 + 30, "longer than draining and finishing");
  t.match(pod.securityContext, { runAsNonRoot: true, runAsUser: 8500 });
  const [container] = pod.containers;
  t.match(container, {
    securityContext: { readOnlyRootFilesystem: true, allowPrivilegeEscalation: false },
    readinessProbe: { httpGet: { path: "/health/ready" } },
  });
  const told = Object.fromEntries(container!.env.map(({ name, value }) => [name, value]));
  t.match(told, {
    RADSERVE_ROLE: "api",
    RADSERVE_DRAIN_SECONDS: "15",
    RADSERVE_GRACE_SECONDS: "60",
  });
  t.notOk(JSON.stringify(found).includes("postgresql://"), "the database's address is a Secret's");
  const images = container!.volumeMounts.find(({ mountPath }) => mountPath === "/srv/images");
  t.equal(images?.readOnly, true);
  t.end();
});

t.test("nodes of both roles, other claims and settings", { skip }, (t) => {
  const values = path.join(t.testdir(), "values.yaml");
  writeFileSync(
    values,
    JSON.stringify({
      nodes: { api: null, worker: null, both: { replicas: 3 } },
      state: { storageClass: "fast", size: "20Gi" },
      settings: { RADSERVE_THREADS: 4, RADSERVE_LOG_LEVEL: "debug" },
      drainSeconds: 0,
    }),
  );
  const found = rendered(t, "--values", values);
  t.equal(found.length, 3);
  const [container] = podOf(found, "rs-both").containers;
  const told = Object.fromEntries(container!.env.map(({ name, value }) => [name, value]));
  t.match(told, { RADSERVE_ROLE: "both", RADSERVE_THREADS: "4", RADSERVE_DRAIN_SECONDS: "0" });
  t.end();
});
