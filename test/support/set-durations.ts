/**
 * Loaded before a program that a test starts (node --import, in NODE_OPTIONS): gives it the lengths
 * of time that the test wants. withDurations() names this module in the program's environment.
 */
import { setDurations, type Durations } from "../../src/base/durations.js";

setDurations(JSON.parse(process.env["TEST_DURATIONS"] ?? "{}") as Partial<Durations>);
