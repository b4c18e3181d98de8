// Random numbers that do not repeat within a run: xoshiro128** (Blackman and Vigna, arXiv 1805.01407).
"use strict";

const rotated = (x, by) => (x << by) | (x >>> (32 - by));

/** Uniform numbers from 0 up to 1 and normal ones, of four words of 32 bits that are not all 0; the period is 2^128 - 1. */
function randomOf([a, b, c, d]) {
  const uniform = () => {
    const [drawn, shifted] = [Math.imul(rotated(Math.imul(b, 5), 7), 9), b << 9];
    [c, d] = [c ^ a, d ^ b];
    [b, a] = [b ^ c, a ^ d];
    [c, d] = [c ^ shifted, rotated(d, 11)];
    return (drawn >>> 0) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return { uniform, normal };
}

module.exports = { randomOf };
