// Messages: arrays as bytes and back, and the rules that a policy message keeps (PROTOCOL.md, "What is refused").
"use strict";

/** How the elements of each dtype are held; a float16 as its bits. */
const types = {
  ...{ float16: Uint16Array, float32: Float32Array, float64: Float64Array, bool: Uint8Array, int8: Int8Array },
  ...{ int16: Int16Array, int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array, uint16: Uint16Array },
  ...{ uint32: Uint32Array, uint64: BigUint64Array },
};
/** The greatest number that is learned from. */
const LARGEST = 1e15;

/** Throws why a message is passed over: the protocol's word for it, and what came. */
function refuse(word, why) {
  throw Object.assign(new Error(why.slice(0, 200)), { word });
}

const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isText = (value) => typeof value === "string";

/** Nothing is obeyed of a message that has a key of another type. */
function checkHeader({ protocol, kind, sender, incarnation, sequence, arrays, fields }) {
  if (protocol !== 1) refuse("unknown_version", `protocol ${protocol}`);
  const texts = isText(kind) && isText(sender);
  if (!texts || !isCount(incarnation) || !isCount(sequence) || !Array.isArray(arrays) || fields?.constructor !== Object)
    refuse("wrong_key_type", `kind ${kind}, sender ${sender}, incarnation ${incarnation}, sequence ${sequence}`);
}

/** Throws unless the fields are those of a stop. */
function checkStop({ roles, reason }) {
  const right = Array.isArray(roles) && roles.every(isText) && isText(reason);
  if (!right) refuse("wrong_field_type", "a stop of nobody");
}

/** An array to send. */
const array = (dtype, shape, values) => ({ dtype, shape, bytes: Buffer.from(types[dtype].from(values).buffer) });

/** The arrays that a header describes, by name, each flat. */
function arraysOf(described, frames) {
  if (described.length !== frames.length)
    refuse(described.length > frames.length ? "missing_frames" : "extra_frames", `${frames.length} frames of arrays`);
  const one = ([key, dtype, shape], i) => {
    if (!Object.hasOwn(types, dtype)) refuse("unknown_dtype", `${key} is ${dtype}`);
    if (!shape.every(isCount)) refuse("bad_shape", `${key} is [${shape}]`);
    const { buffer, byteOffset: at, length } = frames[i];
    const size = shape.reduce((product, side) => product * side, types[dtype].BYTES_PER_ELEMENT);
    if (length !== size) refuse("wrong_bytes", `${key}: ${dtype} [${shape}], ${length} bytes`);
    return [key, new types[dtype](buffer.slice(at, at + length))];
  };
  return Object.fromEntries(described.map(one));
}

/** Whether a policy suits the environment is another question: see `act`. */
function checkPolicy({ version, description, collect_until: limits = {} }, arrays) {
  const counts = [version, ...Object.values(limits ?? "?")];
  if (!counts.every(isCount)) refuse("wrong_field_type", `a policy of version ${version}, usable up to ${limits}`);
  if (description?.constructor !== Object) refuse("wrong_field_type", "a policy without a description");
  if (!arrays.parameters) refuse("missing_array", "a policy without parameters");
  const pairs = ["action_low action_high", "observation_mean observation_std"].map((pair) => pair.split(" "));
  for (const [one, other] of pairs) {
    if (!arrays[one] !== !arrays[other]) refuse("missing_array", `a policy with only one of ${one} and ${other}`);
    if (arrays[one]?.length !== arrays[other]?.length) refuse("wrong_shape", `${one} and ${other} are of two sizes`);
  }
  for (const name of ["parameters", ...pairs.flat()].filter((key) => arrays[key])) {
    if (!(arrays[name] instanceof Float32Array)) refuse("wrong_dtype", `policy.${name} is not float32`);
    const odd = arrays[name].find((x) => !(Math.abs(x) <= LARGEST) || (name === "observation_std" && x <= 0));
    if (odd !== undefined) refuse("not_finite", `policy.${name} holds ${odd}`);
  }
}

module.exports = { LARGEST, array, arraysOf, checkHeader, checkPolicy, checkStop };
