/**
 * Rearrangements of sample bytes (PS3.5 section 8.1, PS3.3 C.7.6.3.1.3); each gives a new buffer.
 */

/** Colour by plane to colour by pixel. */
export function interleaved(planes: Uint8Array, samples: number, bytes: number): Uint8Array {
  const out = new Uint8Array(planes.length);
  const pixels = planes.length / samples / bytes;
  for (let sample = 0; sample < samples; sample++) {
    let from = sample * pixels * bytes;
    let to = sample * bytes;
    const step = samples * bytes - bytes;
    for (let pixel = 0; pixel < pixels; pixel++, to += step)
      for (let b = 0; b < bytes; b++) out[to++] = planes[from++] ?? 0;
  }
  return out;
}

/**
 * Bytes reversed in units of 2, 4 or 8: big endian to little endian. A last unit that is cut short
 * stays as it is.
 */
export function swapped(data: Uint8Array, unit: number): Uint8Array {
  const out = Buffer.from(data);
  const whole = out.subarray(0, out.length - (out.length % unit));
  if (unit === 2) whole.swap16();
  else if (unit === 4) whole.swap32();
  else if (unit === 8) whole.swap64();
  return out;
}

/**
 * Samples of `from` bytes in containers of `to` bytes, little endian, sign-extended if `signed`.
 */
export function widened(data: Uint8Array, from: number, to: number, signed: boolean): Uint8Array {
  const count = data.length / from;
  const out = new Uint8Array(count * to);
  for (let i = 0; i < count; i++) {
    for (let b = 0; b < from; b++) out[i * to + b] = data[i * from + b] ?? 0;
    if (signed && ((data[i * from + from - 1] ?? 0) & 0x80) !== 0)
      out.fill(0xff, i * to + from, (i + 1) * to);
  }
  return out;
}

/** The low bytes of 16-bit samples that are known to fit 8 bits. */
export function narrowed(data: Uint8Array): Uint8Array {
  const out = new Uint8Array(data.length / 2);
  for (let i = 0; i < out.length; i++) out[i] = data[i * 2] ?? 0;
  return out;
}
