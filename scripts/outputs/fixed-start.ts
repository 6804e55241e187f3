/**
 * Loaded into a server by NODE_OPTIONS --import, in every process and thread: all work starts at
 * one moment. Objects hold the start of their analysis, so that two runs write the same bytes only
 * with the same start.
 *
 * Clocks run on, because tokens, leases and deadlines need them. Only the text of a moment is
 * fixed: every start, that of a request and that of a bulk item, becomes text before it reaches a
 * result.
 */
const START = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
const A_DAY = 86_400_000;

const now = Date.now.bind(Date);
// oxlint-disable-next-line typescript/unbound-method -- it is called on a Date below
const toISOString = Date.prototype.toISOString;

Date.prototype.toISOString = function (this: Date): string {
  const isOfToday = Math.abs(this.getTime() - now()) < A_DAY;
  return toISOString.call(isOfToday ? new Date(START) : this);
};
