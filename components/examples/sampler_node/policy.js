// Policies over a box of actions as messages describe them (PROTOCOL.md, "Weights").
"use strict";

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const mean = (xs) => xs.reduce((sum, x) => sum + x, 0) / xs.length;
const activations = {
  relu: (x) => Math.max(x, 0),
  elu: (x) => (x > 0 ? x : Math.expm1(x)),
  tanh: Math.tanh,
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** Says why a policy cannot act here. */
function unfit(why) {
  throw new Error(why);
}

/** The numbers that the last layer gives for one observation. */
function network({ observation, layers }, { parameters, observation_mean: middle, observation_std: std }, obs) {
  const { normalize, clip, stack = 1 } = observation;
  if (stack !== 1) unfit(`it takes stacks of ${stack} observations`);
  if (normalize && std?.length !== obs.length) unfit(`it scales ${std?.length} numbers, ${obs.length} come to it`);
  let [x, at] = [obs.map((v, i) => (normalize ? clamp((v - middle[i]) / std[i], -clip, clip) : v)), 0];
  const take = (count) => [...parameters.subarray(at, (at += count))];
  for (const { kind, in: size, out, size: count, eps } of layers) {
    const taken = { linear: size, layer_norm: count }[kind] ?? x.length;
    if (taken !== x.length) unfit(`a ${kind} layer takes ${taken} numbers, ${x.length} come to it`);
    if (kind === "linear") {
      const weight = parameters.subarray(at, (at += size * out));
      x = take(out).map((bias, j) => x.reduce((sum, v, i) => sum + weight[j * size + i] * v, bias));
    } else if (kind === "layer_norm") {
      const [weight, bias, centre] = [take(count), take(count), mean(x)];
      const scale = 1 / Math.sqrt(mean(x.map((v) => (v - centre) ** 2)) + eps);
      x = x.map((v, i) => (v - centre) * scale * weight[i] + bias[i]);
    } else if (kind === "append") x = [...x, ...take(count)];
    else if (Object.hasOwn(activations, kind)) x = x.map(activations[kind]);
    else unfit(`unknown layer ${kind}`);
  }
  if (at !== parameters.length) unfit(`it has ${parameters.length} parameters, its layers take ${at}`);
  return x;
}

/** Where each of a sampler's N environments stands among all, 0 to 1; those of the first samplers are spread evenly. */
function places(index, N) {
  const shift = (0.5 + (index * (Math.sqrt(5) - 1)) / 2) % 1;
  return Array.from({ length: N }, (_, n) => (n + shift) / N);
}

/** The action as it is drawn and its log density; without `random` the deterministic one. */
function act({ version, description }, arrays, obs, random = null, place = 0) {
  if (description.class) unfit(`it is the Python class ${description.class}`);
  const { action_low: low, action_high: high } = arrays;
  const { kind, log_std_min: a, log_std_max: b, noise_min: p, noise_max: q } = description.distribution;
  if (!["deterministic", "normal", "tanh_normal"].includes(kind)) unfit(`unknown distribution ${kind}`);
  const out = network(description, arrays, obs);
  const size = kind === "deterministic" ? out.length : out.length / 2;
  if (low && low.length !== size) unfit(`its bounds are of ${low?.length} numbers, its network gives ${out.length}`);
  const stretch = (unit, i) => (low ? (low[i] + high[i]) / 2 + ((high[i] - low[i]) / 2) * unit : unit);
  if (version === 0 && random && low)
    return { action: [...low].map((_, i) => stretch(2 * random.uniform() - 1, i)), logProb: -Math.LN2 * low.length };
  const noise = out.map(() => (random ? random.normal() : 0));
  if (kind === "deterministic")
    return { action: out.map((o, i) => stretch(clamp(Math.tanh(o) + (p + (q - p) * place) * noise[i], -1, 1), i)) };
  const [means, raw] = [out.slice(0, size), out.slice(size)];
  const squashes = kind === "tanh_normal";
  const logStd = raw.map((r) => (squashes ? a + ((b - a) * (Math.tanh(r) + 1)) / 2 : clamp(r, a, b)));
  const u = means.map((m, i) => m + Math.exp(logStd[i]) * noise[i]);
  const squash = (v) => 2 * (Math.LN2 - Math.abs(v) - Math.log1p(Math.exp(-2 * Math.abs(v))));
  const density = (v, i) => -(noise[i] ** 2) / 2 - logStd[i] - Math.log(2 * Math.PI) / 2 - (squashes ? squash(v) : 0);
  const unit = (v) => (squashes ? Math.tanh(v) : random || !low ? v : clamp(v, -1, 1));
  return { action: u.map((v, i) => stretch(unit(v), i)), logProb: mean(u.map(density)) * u.length };
}

module.exports = { act, clamp, places };
