/**
 * The load generator: a process of its own that holds so many connections, sends on each the next
 * request when the one before is answered, and looks at every answer.
 */
import { mkdirSync } from "node:fs";
import http from "node:http";
import { basename, join } from "node:path";
import { answer } from "../lib/measured-process.js";
import { quantile } from "../lib/statistics.js";

export interface LoadSetting {
  port: number;
  token: string;
  inputs: string[];
  /**
   * Each pass through the inputs gets a folder of its own below it, so that no result is there
   * before.
   */
  output: string;
  /** Members of each request beside its paths. */
  more: object;
  concurrency: number;
  /** Ends after so long; what is on the way then is waited for. */
  seconds: number;
}

export interface LoadResult {
  images: number;
  seconds: number;
  p50: number;
  p99: number;
  /** Answers without status 200 or without a completed result, and the first of them. */
  wrong: number;
  firstWrong?: string;
}

function post(
  agent: http.Agent,
  { port, token }: LoadSetting,
  body: string,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      {
        agent,
        host: "127.0.0.1",
        port,
        method: "POST",
        path: "/single_inference",
        headers: {
          Authorization: token,
          "Content-Type": "application/json",
          "Content-Length": Buffer.byteLength(body),
        },
      },
      (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (part: string) => (text += part));
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
      },
    );
    request.on("error", reject);
    request.end(body);
  });
}

async function load(setting: LoadSetting): Promise<LoadResult> {
  const { inputs, output, concurrency, seconds } = setting;
  const agent = new http.Agent({ keepAlive: true, maxSockets: concurrency });
  const latencies: number[] = [];
  const wrong: string[] = [];
  let sent = 0;
  let folder = "";
  const next = () => {
    if (sent % inputs.length === 0) {
      folder = join(output, String(sent / inputs.length));
      mkdirSync(folder, { recursive: true });
    }
    return { input_image_path: inputs[sent++ % inputs.length]!, output_folder_path: folder };
  };
  const began = performance.now();
  const loop = async () => {
    while (performance.now() - began < seconds * 1000) {
      const body = next();
      const start = performance.now();
      const { status, text } = await post(
        agent,
        setting,
        JSON.stringify({ ...body, ...setting.more }),
      ).catch((error: unknown) => ({ status: 0, text: String(error) }));
      latencies.push(performance.now() - start);
      if (
        status !== 200 ||
        !/"status": ?"completed"/.test(text) ||
        !text.includes(basename(body.input_image_path))
      )
        wrong.push(`${status} ${text.slice(0, 300)}`);
      // Nobody listens any more
      if (status === 0) return;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, loop));
  const elapsed = (performance.now() - began) / 1000;
  agent.destroy();
  return {
    images: latencies.length,
    seconds: elapsed,
    p50: quantile(latencies, 0.5),
    p99: quantile(latencies, 0.99),
    wrong: wrong.length,
    ...(wrong[0] === undefined ? {} : { firstWrong: wrong[0] }),
  };
}

answer(load);
