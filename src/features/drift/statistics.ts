/**
 * Tests of whether two samples differ by more than chance gives. None assumes a form of the
 * distributions: scores of networks pile up near 0 and 1 and are far from normal.
 */

/**
 * Mann-Whitney U (Wilcoxon rank sum), two-sided, by its normal approximation with corrections for
 * ties and continuity.
 * @returns p, and the probability that a value of the second sample is above one of the first (0.5:
 * no shift)
 */
export function mannWhitney(
  first: readonly number[],
  second: readonly number[],
): { p: number; above: number } {
  const [n, m] = [first.length, second.length];
  const all = [
    ...first.map((value) => ({ value, of: 0 })),
    ...second.map((value) => ({ value, of: 1 })),
  ];
  all.sort((a, b) => a.value - b.value);
  let ranks = 0;
  let ties = 0;
  for (let from = 0; from < all.length;) {
    let to = from;
    while (to < all.length && all[to]?.value === all[from]?.value) to += 1;
    const tied = to - from;
    // Ranks from 1; those of equal values are shared
    for (let i = from; i < to; i++) if (all[i]?.of === 1) ranks += (from + 1 + to) / 2;
    ties += tied ** 3 - tied;
    from = to;
  }
  const u = ranks - (m * (m + 1)) / 2;
  const total = n + m;
  const variance = ((n * m) / 12) * (total + 1 - ties / (total * (total - 1)));
  if (!(variance > 0)) return { p: 1, above: 0.5 };
  const z = Math.max(0, Math.abs(u - (n * m) / 2) - 0.5) / Math.sqrt(variance);
  return { p: 2 * normalTail(z), above: u / (n * m) };
}

/**
 * P(Z > z) of the standard normal distribution, z >= 0, to 1.2e-7 of its value (Numerical Recipes'
 * rational Chebyshev approximation of erfc).
 */
function normalTail(z: number): number {
  const x = z / Math.SQRT2;
  const t = 1 / (1 + x / 2);
  const coefficients = [
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
    1.48851587, -0.82215223, 0.17087277,
  ];
  const sum = coefficients.reduceRight((rest, each) => each + t * rest, 0);
  return (t * Math.exp(-x * x + sum)) / 2;
}

/**
 * Tables with the same margins count whose probability is above that of the table by less than
 * rounding.
 */
const ROUNDING = 1 + 1e-7;

/**
 * Fisher's exact test, two-sided: whether a of n and b of m are shares of one whole. Exact for few
 * cases too, which refusals and caveats are.
 */
export function fisher(a: number, n: number, b: number, m: number): number {
  const hits = a + b;
  const log = (k: number) => logChoose(n, k) + logChoose(m, hits - k) - logChoose(n + m, hits);
  const own = Math.exp(log(a)) * ROUNDING;
  let p = 0;
  for (let k = Math.max(0, hits - m); k <= Math.min(n, hits); k++) {
    const probability = Math.exp(log(k));
    if (probability <= own) p += probability;
  }
  return Math.min(1, p);
}

/**
 * McNemar's exact test: of pairs that differ, whether either way is more frequent (a binomial of
 * one half).
 */
export function mcNemar(onlyFirst: number, onlySecond: number): number {
  const n = onlyFirst + onlySecond;
  let tail = 0;
  for (let k = 0; k <= Math.min(onlyFirst, onlySecond); k++)
    tail += Math.exp(logChoose(n, k) - n * Math.LN2);
  return Math.min(1, 2 * tail);
}

const logFactorials: number[] = [0];

function logFactorial(n: number): number {
  for (let i = logFactorials.length; i <= n; i++)
    logFactorials.push((logFactorials[i - 1] ?? 0) + Math.log(i));
  return logFactorials[n] ?? 0;
}

const logChoose = (n: number, k: number): number =>
  logFactorial(n) - logFactorial(k) - logFactorial(n - k);

/**
 * Benjamini and Hochberg's adjusted p of each test: marking those of at most q keeps the expected
 * share of false marks among all marks at most q, however many comparisons there are.
 */
export function benjaminiHochberg(ps: readonly number[]): number[] {
  const order = ps.map((p, i) => ({ p, i })).sort((a, b) => b.p - a.p);
  const adjusted = new Array<number>(ps.length).fill(1);
  let least = 1;
  for (const [place, { p, i }] of order.entries()) {
    least = Math.min(least, (p * ps.length) / (ps.length - place));
    adjusted[i] = least;
  }
  return adjusted;
}
