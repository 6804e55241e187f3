/**
 * A process that looks at one place after the other as `radserve doctor` does, as an account that
 * the modes of files bind. Each message is a DoctorTask, each answer the exit status and the
 * findings. It ends with its channel.
 */
import { doctorFindings, statusOf } from "../../src/commands/doctor.js";
import { setDurations } from "../../src/base/durations.js";
import { FEATURES, readSettings } from "../../src/features.js";

export interface DoctorTask {
  environment: Record<string, string>;
  /** The working directory. */
  directory: string;
}

// A database, or a program of one, may be slow to answer on a machine with much other work
setDurations({ commandAnswer: 60_000 });

process.on("message", ({ environment, directory }: DoctorTask) => {
  for (const name of Object.keys(process.env)) Reflect.deleteProperty(process.env, name);
  Object.assign(process.env, environment);
  void doctorFindings(() => readSettings({ directory }), FEATURES).then((findings) =>
    process.send?.({ status: statusOf(findings), findings }),
  );
});
