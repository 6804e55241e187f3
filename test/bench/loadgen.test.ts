/** The summary of MLCommons' loadgen: which of its lines are read, and in which unit. */
import t from "tap";
import { figuresOf } from "../../bench/loadgen/summary.js";

const latencies = {
  "50.00 percentile latency (ns)": "24945879",
  "90.00 percentile latency (ns)": "52457933",
  "99.00 percentile latency (ns)": "83010022",
};

t.test("rates and latencies by scenario", (t) => {
  const single = { "QPS w/o loadgen overhead": "33.97", ...latencies, "Result is": "VALID" };
  const ms = { p50_ms: 24.945879, p90_ms: 52.457933, p99_ms: 83.010022 };
  t.same(figuresOf("SingleStream", single), { samples_per_second: 33.97, ...ms, valid: 1 });
  const server = { "Completed samples per second": "34.24", ...latencies, "Result is": "INVALID" };
  t.same(figuresOf("Server", server), { samples_per_second: 34.24, ...ms, valid: 0 });
  const offline = { "Samples per second": "44.93", ...latencies, "Result is": "VALID" };
  t.same(figuresOf("Offline", offline), { samples_per_second: 44.93, valid: 1 });
  t.end();
});

t.test("a summary without the line is an error that names it", (t) => {
  t.throws(() => figuresOf("Offline", {}), { message: /"Samples per second".*nothing/ });
  t.end();
});
