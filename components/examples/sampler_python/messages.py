"""The messages that come, as PROTOCOL.md has them, and why one is passed over ("What is refused")."""

import sys

import msgpack
import numpy as np

DTYPES = {"float16", "float32", "float64", "bool"}
DTYPES |= {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
#: The greatest number that is learned from.
LARGEST = 1e15
NEEDED = {
    "stop": {"roles": list, "reason": str},
    "policy": {
        "version": int,
        "critic_updates": int,
        "actor_updates": int,
        "description": dict,
        "extras": dict,
    },
}


refused = {}  # messages of each sender, kind and word that were passed over


class Refused(Exception):
    """A message is passed over: the protocol's word for it, and what came."""


def unique(pairs):
    if len({key for key, _ in pairs if type(key) is str}) != len(pairs):
        raise Refused("duplicate_key", "keys that are no texts, or twice there")
    return dict(pairs)


def read_header(frame):
    """The header; raises something where it breaks a rule."""
    if len(frame) > 65536:
        raise Refused("oversize_header", f"{len(frame)} bytes")
    return msgpack.unpackb(frame, object_pairs_hook=unique, max_ext_len=0)


def read_arrays(header, frames):
    """The arrays of a message, once all else in it is checked; raises something where it breaks a rule."""
    if header["protocol"] != 1:
        raise Refused("unknown_version", f"protocol {header['protocol']!r:.40}")
    if type(header["sequence"]) is not int:
        raise Refused("wrong_key_type", f"sequence {header['sequence']!r:.40}")
    for key, wanted in NEEDED.get(header["kind"], {}).items():
        if type(header["fields"][key]) is not wanted:
            raise Refused("wrong_field_type", f"{key} is no {wanted.__name__}")
    arrays = {}
    for (key, dtype, shape), frame in zip(header["arrays"], frames, strict=True):
        if dtype not in DTYPES or key in arrays or len(shape) > 8 or min(shape, default=0) < 0:
            raise Refused("bad_array_entry", f"array {key!r:.40}")
        arrays[key] = np.frombuffer(frame, dtype).reshape(shape)
    if header["kind"] == "policy":
        check_policy(header["fields"], arrays)
    if header["kind"] == "stop" and not all(type(role) is str for role in header["fields"]["roles"]):
        raise Refused("wrong_field_type", "roles that are no texts")
    return arrays


def check_policy(fields, arrays):
    """Whether it suits the environment is another question: see ``act``."""
    counts = (fields["version"], *fields.get("collect_until", {}).values())
    if not all(type(count) is int and count >= 0 for count in counts):
        raise Refused("wrong_field_type", "version and the positions of collect_until are counts")
    if "parameters" not in arrays:
        raise Refused("missing_array", "a policy without parameters")
    pairs = ("action_low", "action_high"), ("observation_mean", "observation_std")
    for one, other in pairs:
        if (one in arrays) != (other in arrays):
            raise Refused("missing_array", f"a policy with only one of {one} and {other}")
        if one in arrays and arrays[one].shape != arrays[other].shape:
            raise Refused("wrong_shape", f"{one} and {other} are of two shapes")
    for name in {"parameters", *sum(pairs, ())} & arrays.keys():
        if arrays[name].dtype != np.float32:
            raise Refused("wrong_dtype", f"policy.{name} is {arrays[name].dtype}")
        lowest = 0 if name == "observation_std" else -np.inf
        if not ((np.abs(arrays[name]) <= LARGEST) & (arrays[name] > lowest)).all():
            raise Refused("not_finite", f"policy.{name} holds a number that is not finite, or no spread")


def pass_over(header, error):
    """Count a message that breaks a rule: the run shows the first one of each kind."""
    about = header if isinstance(header, dict) else {}
    sender, kind = (str(about.get(key, ""))[:64] for key in ("sender", "kind"))
    word, why = error.args if isinstance(error, Refused) else ("bad_header", repr(error)[:200])
    print(f"a message of {sender or 'somebody'} is passed over: {word}: {why}", file=sys.stderr)
    row = {"sender": sender, "kind": kind, "word": word, "count": 0, "first": why}
    if (sender, kind, word) in refused or len(refused) < 64:
        refused.setdefault((sender, kind, word), row)["count"] += 1
