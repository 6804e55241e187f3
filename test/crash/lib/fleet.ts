/**
 * Three nodes of one database behind nginx: one takes requests, one runs images, one does both.
 * They have their folders and keys in common, and models folders of their own.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { Client } from "../../../src/commands/client.js";
import { freePort, issueToken, root } from "../../support/server.js";
import { until } from "../../support/until.js";
import type { Asked } from "./job.js";
import { processesOf, type Victims } from "./killing.js";
import { ServingNode, type NodeOptions } from "./node.js";
import { SharedPostgres } from "./postgres.js";

const ROLES = ["api", "both", "worker"] as const;

/** Each subject has its turn. */
const SUBJECTS = 5;

/** nginx as a balancer has it: what cannot be reached is asked again after two seconds. */
const configuration = (port: number, servers: readonly string[], folder: string) => `
pid ${folder}/nginx.pid;
daemon off;
${process.getuid?.() === 0 ? "user root;" : ""}
worker_processes 1;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  upstream nodes {
    ${servers.map((server) => `server ${server} max_fails=1 fail_timeout=2s;`).join(" ")}
    keepalive 16;
  }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://nodes;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_read_timeout 330s;
      client_max_body_size 2g;
    }
  }
}
`;

export class Fleet {
  #nginx: ChildProcess | undefined;
  readonly #folder = mkdtempSync(path.join(os.tmpdir(), "radserve-nginx-"));
  readonly #asked: Asked[] = [];

  private constructor(
    readonly postgres: SharedPostgres,
    readonly nodes: readonly ServingNode[],
    /** Where clients ask. */
    readonly url: string,
  ) {}

  /** Starts all of it. Each node has the models that it would have, in a folder of its own. */
  static async start(options: NodeOptions = {}): Promise<Fleet> {
    const postgres = await SharedPostgres.start();
    const nodes: ServingNode[] = [];
    for (const [i, role] of ROLES.entries()) {
      const [first] = nodes;
      nodes.push(
        await ServingNode.start({
          ...options,
          role,
          settings: {
            DATABASE_URL: postgres.url,
            RADSERVE_NODE_NAME: `node-${i + 1}-${role}`,
            ...(first === undefined
              ? {}
              : {
                  RADSERVE_INPUT_ROOTS: first.input,
                  RADSERVE_OUTPUT_ROOTS: first.output,
                  RADSERVE_KEYS_DIR: `${first.place.directory}/state/keys`,
                }),
            ...options.settings,
          },
          prepare: ({ directory }) => {
            const models = path.join(directory, "own-models");
            cpSync(path.join(root, "models/ct-tissue"), path.join(models, "ct-tissue"), {
              recursive: true,
            });
            return { RADSERVE_MODELS_DIR: models };
          },
        }),
      );
    }
    const url = `http://127.0.0.1:${await freePort()}`;
    const fleet = new Fleet(postgres, nodes, url);
    await fleet.#balance();
    return fleet;
  }

  get first(): ServingNode {
    return this.nodes[0]!;
  }

  token(number: number): Promise<string> {
    return issueToken(this.first.place, "--subject", `subject-${number}`);
  }

  /** The folders, asked for through nginx by one of the subjects. */
  asked(number: number): Asked {
    return this.#asked[number % SUBJECTS]!;
  }

  victims(): Victims {
    const ofNodes = this.nodes.map((node, i) => processesOf(node, ` of node ${i + 1}`));
    return Object.assign({ PostgreSQL: () => this.postgres.kill() }, ...ofNodes) as Victims;
  }

  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop()));
    await this.postgres.stop();
    const nginx = this.#nginx;
    if (nginx?.exitCode === null) {
      nginx.kill("SIGTERM");
      await once(nginx, "exit");
    }
    for (const node of [...this.nodes].reverse()) await node.remove();
    rmSync(this.#folder, { recursive: true });
  }

  async #balance(): Promise<void> {
    const { input, output } = this.first;
    for (let i = 0; i < SUBJECTS; i++) {
      this.#asked.push({ client: new Client(this.url, await this.token(i)), input, output });
    }
    const file = path.join(this.#folder, "nginx.conf");
    // A worker answers no requests
    const servers = this.nodes.slice(0, 2).map(({ url }) => new URL(url).host);
    writeFileSync(file, configuration(Number(new URL(this.url).port), servers, this.#folder));
    const words = ["--pdeathsig", "TERM", "--", "nginx", "-e", "stderr", "-c", file];
    this.#nginx = spawn("setpriv", words, { stdio: ["ignore", "ignore", "ignore"] });
    await until("nginx answers", async () => {
      if (this.#nginx?.exitCode !== null) throw new Error("nginx refused its configuration.");
      const answer = await fetch(`${this.url}/health/live`).catch(() => undefined);
      return answer?.ok;
    });
  }
}
