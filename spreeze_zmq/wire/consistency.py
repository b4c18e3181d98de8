"""Checks the fields and arrays of one message against each other, once their types and ranks are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import ARRAY_FIELDS, FIXED_ENTRIES, LARGEST, odd_number

Arrays = Mapping[str, NDArray[np.generic]]

#: The arrays with a row for each ended episode, and what their rows are.
_FINALS = (("final_obs", "final observations"), ("final_action_mask", "final action masks"))


def check_rollout(fields: Mapping[str, Any], arrays: Arrays) -> None:
    """Shapes must agree with T and N, final observations with the episodes that ended."""
    steps, envs = fields["num_steps"], fields["num_envs"]
    if steps < 1 or envs < 1:
        raise WireError("wrong_shape", f"a rollout of {steps} steps and {envs} environments is empty")
    obs = arrays.get("obs")
    sizes = {"T": steps, "T + 1": steps + 1, "N": envs}
    entries = {**FIXED_ENTRIES, **({} if obs is None else {"obs": obs.shape[2:]})}
    for name, form in ARRAY_FIELDS.items():
        if (array := arrays.get(name)) is None:
            continue
        if misfit := form.misfit(array.shape, sizes, entries):
            raise WireError("wrong_shape", f"rollout.{name} {misfit}")
        if form.entry == "obs" and obs is not None and array.dtype != obs.dtype:
            raise WireError("wrong_dtype", f"rollout.{name} is {array.dtype}, rollout.obs {obs.dtype}")
        if array.dtype == np.bool_ and array.size and (largest := array.view(np.uint8).max()) > 1:
            raise WireError("bad_flag", f"rollout.{name} holds a byte {largest}, not 0 or 1")
    index = arrays.get("final_index")
    if index is not None:
        _check_final_index(index, steps, envs, arrays)
    elif lone := next((name for name, _ in _FINALS if name in arrays), ""):
        raise WireError("bad_final_index", f"rollout.{lone} came without rollout.final_index")


def _check_final_index(index: NDArray[np.generic], steps: int, envs: int, arrays: Arrays) -> None:
    """``index`` [K, 2] must name the ended steps, sorted by step and environment."""
    terminated, truncated = (arrays.get(name) for name in ("terminated", "truncated"))
    num_ended = index.shape[0]
    for name, words in _FINALS:
        if name in arrays and (rows := arrays[name].shape[0]) != num_ended:
            raise WireError("bad_final_index", f"{rows} {words} for {num_ended} indices")
    if terminated is not None and truncated is not None:
        step, env = np.nonzero(np.logical_or(terminated, truncated))
        same = len(step) == num_ended and (step == index[:, 0]).all() and (env == index[:, 1]).all()
        if not same:
            raise WireError(
                "bad_final_index",
                f"{num_ended} indices do not name, in order, the {len(step)} steps that ended",
            )
        return
    places = index.astype(np.int64)
    if bool((places < 0).any() or (places >= (steps, envs)).any()):
        raise WireError("bad_final_index", f"an index is outside [0, {steps}) x [0, {envs})")
    flat = places[:, 0] * envs + places[:, 1]
    if bool((flat[1:] <= flat[:-1]).any()):
        raise WireError("bad_final_index", "the indices are not strictly sorted by step and environment")


def check_policy(fields: Mapping[str, Any], arrays: Arrays) -> None:
    """Bounds must be a pair of one shape, as must observation statistics; an average is of all parameters;
    numbers must be finite.
    """
    numbers = ("parameters", "average", "auxiliary", "observation_mean", "observation_std")
    check_weights("policy", arrays, numbers)
    average = arrays.get("average", arrays["parameters"])
    if average.shape != arrays["parameters"].shape:
        shape = arrays["parameters"].shape
        raise WireError("wrong_shape", f"policy.average is {average.shape}, policy.parameters {shape}")
    for name, value in fields.get("extras", {}).items():
        if not abs(value) <= LARGEST:
            raise WireError(
                "not_finite", f"policy.extras has {name[:40]!r} = {value}, expected a finite number"
            )
    std = arrays.get("observation_std")
    if std is not None and std.size and not std.min() > 0:
        raise WireError(
            "not_finite", f"policy.observation_std holds {std.min():g}, expected positive numbers"
        )
    for first, second in (("action_low", "action_high"), ("observation_mean", "observation_std")):
        one, other = arrays.get(first), arrays.get(second)
        if (one is None) != (other is None):
            raise WireError("missing_array", f"policy has only one of {first!r} and {second!r}")
        if one is not None and other is not None and one.shape != other.shape:
            raise WireError("wrong_shape", f"policy.{first} is {one.shape}, policy.{second} {other.shape}")


def check_critic(fields: Mapping[str, Any], arrays: Arrays) -> None:
    """All parameters must be finite."""
    check_weights("critic", arrays, ("parameters",))


def check_model(fields: Mapping[str, Any], arrays: Arrays) -> None:
    """What a group has learned must be finite, no more of it stepped than there is, and its shares as in
    :func:`_check_shares`.
    """
    _check_shares("model", fields)
    check_weights("model", arrays, ("change",))
    _check_statistics("model", arrays)
    if fields["stepped"] > arrays["change"].size:
        stepped, size = fields["stepped"], arrays["change"].size
        raise WireError("wrong_shape", f"model.stepped is {stepped}, model.change has {size} numbers")


def check_fused(fields: Mapping[str, Any], arrays: Arrays) -> None:
    """All numbers must be finite, and its shares as in :func:`_check_shares`."""
    _check_shares("fused", fields)
    check_weights("fused", arrays, ("parameters",))
    _check_statistics("fused", arrays)


def _check_shares(kind: str, fields: Mapping[str, Any]) -> None:
    """Each must be of one schedule: its first and last value, its shape, and how far it is, from 0 to 1."""
    shares = fields.get("shares", [])
    if not isinstance(shares, list) or not all(map(_is_share, shares)):
        raise WireError(
            "wrong_field_type",
            f"{kind}.shares is {shares!r:.60}, expected a list of [first, last, shape, share from 0 to 1]",
        )


def _is_share(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 4 or not isinstance(value[2], str):
        return False
    return all(type(value[place]) in (int, float) for place in (0, 1, 3)) and 0 <= value[3] <= 1


def _check_statistics(kind: str, arrays: Arrays) -> None:
    """Sums over all observations may be very large."""
    statistics = arrays.get("statistics")
    if statistics is not None and not np.isfinite(statistics).all():
        raise WireError("not_finite", f"{kind}.statistics holds a number that is not finite")


def check_weights(kind: str, arrays: Arrays, names: Iterable[str]) -> None:
    """Raise WireError if one of these arrays holds a NaN or a number beyond ``LARGEST``: a learner that took
    it could not recover.
    """
    for name in names:
        array = arrays.get(name)
        if array is not None and (odd := odd_number(array)):
            raise WireError("not_finite", f"{kind}.{name} holds {odd}")


def check_episodes(fields: Mapping[str, Any], arrays: Arrays) -> None:
    """There must be as many lengths as returns."""
    if arrays["returns"].shape != arrays["lengths"].shape:
        raise WireError(
            "wrong_shape", f"episodes has {len(arrays['returns'])} returns, {len(arrays['lengths'])} lengths"
        )
