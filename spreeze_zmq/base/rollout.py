"""The rollout: the experience that samplers send to learners, on-policy and off-policy alike; and which
numbers can be trained on: finite ones of at most ``LARGEST``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The largest rank of an array in a message.
MAX_RANK = 8
#: The shapes of those entries that are the same in every run.
FIXED_ENTRIES: Mapping[str, tuple[int, ...]] = {"number": (), "index": (2,)}
_OBS = ("float32", "uint8")


@dataclass(frozen=True)
class ArrayForm:
    """The form of one array of a rollout.

    Attributes:
        leading: the names of its leading dimensions: ``T`` steps, ``N`` environments, ``K`` episodes that
            ended, ``B`` bytes, and sums such as ``T + 1``.
        entry: what stands at each place of these: ``obs``, ``action``, ``mask`` or ``memory``, whose shapes
            are the environment's and the algorithm's, an ``index`` ``(t, n)``, or one ``number``.
        dtypes: those that it may have.
    """

    leading: tuple[str, ...]
    entry: str
    dtypes: tuple[str, ...]

    @property
    def ranks(self) -> tuple[int, int]:
        """The least and the greatest number of dimensions; an observation or action may have any."""
        least = len(self.leading)
        if self.entry in ("obs", "action"):
            return least, MAX_RANK
        return (least + len(FIXED_ENTRIES.get(self.entry, (0,))),) * 2

    def shape(self, sizes: Mapping[str, int], entries: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """The shape where all leading dimensions and entries are known."""
        return *(sizes[name] for name in self.leading), *entries[self.entry]

    def misfit(
        self, shape: tuple[int, ...], sizes: Mapping[str, int], entries: Mapping[str, tuple[int, ...]]
    ) -> str:
        """How an array's shape differs from the expected one; empty if it does not.

        Args:
            shape: of the array; its rank is within ``ranks``.
            sizes: of leading dimensions by name; those that it does not name may be any.
            entries: shapes by the name of an entry; likewise.
        """
        lead, entry = shape[: len(self.leading)], shape[len(self.leading) :]
        wanted = [sizes.get(name) for name in self.leading]
        if any(size not in (None, got) for size, got in zip(wanted, lead, strict=True)):
            expected = ", ".join(
                name if size is None else str(size) for name, size in zip(self.leading, wanted, strict=True)
            )
            return f"has shape {shape}, expected ({expected}) to lead it"
        if self.entry in entries and entry != tuple(entries[self.entry]):
            return f"is {entry} for each step, expected {tuple(entries[self.entry])}"
        return ""


def _array(leading: str, entry: str, *dtypes: str) -> Any:
    """A field for an array that a rollout may have; its leading dimensions are separated by commas."""
    form = ArrayForm(tuple(leading.split(", ")), entry, dtypes)
    return field(default=None, metadata={"form": form})


@dataclass(frozen=True)
class Rollout:
    """``T`` steps of ``N`` environments, time-major, under one policy version.

    Arrays that a learner did not ask for are ``None``; the form of each stands beside it, and whatever makes,
    sends or checks rollouts reads it there. ``obs[t + 1]`` is the observation that followed
    ``action[t]``, except where an episode ended at ``t``: there it is the first one of the next episode, and
    the episode's true final observation is the row of ``final_obs`` whose ``final_index`` is ``(t, n)``. A
    step that only resets an environment is never stored. Observations of images beside numbers may be packed
    (``envs.packed``).

    Attributes:
        sampler: name of the process that made it, such as ``"sampler-0"``.
        incarnation: numbers the starts of that process.
        sequence: counts the rollouts of one incarnation from 0; a gap is a loss.
        produced: transitions that this incarnation has pushed on this channel, this rollout included.
        policy_version: version of the policy that acted; 0 stands for uniformly random actions.
        num_steps: ``T``.
        num_envs: ``N``.
        action: in the environment's own units, float32 of a box, else int64.
        terminated: the episode ended in a state of value zero.
        truncated: the episode was cut and its value must be bootstrapped from ``final_obs``.
        final_obs: one row for each ended episode.
        final_index: of ``(t, n)``, sorted by ``t`` and then ``n``.
        log_prob: only if the algorithm asks for it.
        history: the observations before ``obs[0]``, oldest first; before an episode's first one, that one
            repeated. Only if the networks take stacks of ``k``.
        memory: the state of a recurrent policy before the first action; zeros at an episode's first step.
            Only if the algorithm asks for it.
        state: what its sampler goes on from, see ``run.sampler_state``; only to the critic-learner of a run
            in order, whatever that asks for.
        action_mask: which actions were legal at each observation, a flag for each choice; those of several
            discrete actions one after the other. Only if the environment gives them and the algorithm asks.
        final_action_mask: the same at each row of ``final_obs``; none need be legal where the episode
            terminated.
    """

    sampler: str
    incarnation: int
    sequence: int
    produced: int
    policy_version: int
    num_steps: int
    num_envs: int
    obs: NDArray[np.float32] | NDArray[np.uint8] | None = _array("T + 1, N", "obs", *_OBS)
    action: NDArray[np.float32] | NDArray[np.int64] | None = _array("T, N", "action", "float32", "int64")
    reward: NDArray[np.float32] | None = _array("T, N", "number", "float32")
    terminated: NDArray[np.bool_] | None = _array("T, N", "number", "bool")
    truncated: NDArray[np.bool_] | None = _array("T, N", "number", "bool")
    final_obs: NDArray[np.float32] | NDArray[np.uint8] | None = _array("K", "obs", *_OBS)
    final_index: NDArray[np.int32] | None = _array("K", "index", "int32")
    log_prob: NDArray[np.float32] | None = _array("T, N", "number", "float32")
    history: NDArray[np.float32] | NDArray[np.uint8] | None = _array("k - 1, N", "obs", *_OBS)
    memory: NDArray[np.float32] | None = _array("N", "memory", "float32")
    state: NDArray[np.uint8] | None = _array("B", "number", "uint8")
    action_mask: NDArray[np.bool_] | None = _array("T + 1, N", "mask", "bool")
    final_action_mask: NDArray[np.bool_] | None = _array("K", "mask", "bool")

    @property
    def num_transitions(self) -> int:
        """``T * N``."""
        return self.num_steps * self.num_envs

    @property
    def stream(self) -> str:
        """``NAME/INCARNATION`` of the sampler."""
        return f"{self.sampler}/{self.incarnation}"

    @property
    def acted_on(self) -> NDArray[np.float32] | NDArray[np.uint8]:
        """``[T * N, ...]``: the observations in which the actions were taken, as ``obs`` has them."""
        assert self.obs is not None
        return self.obs[:-1].reshape(self.num_transitions, *self.obs.shape[2:])

    @property
    def ended_at(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Steps ``[K]`` and environments ``[K]`` of the final observations, which have been checked against
        the ended episodes when the message was decoded.
        """
        assert self.final_index is not None
        return self.final_index[:, 0], self.final_index[:, 1]

    def arrays(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """The arrays in ``names``, by default all, that this rollout has, in the order of the wire."""
        wanted = ARRAY_FIELDS.keys() if names is None else set(names)
        found = ((name, getattr(self, name)) for name in ARRAY_FIELDS if name in wanted)
        return {name: array for name, array in found if array is not None}


#: The arrays of a rollout in the order of the wire, with their forms.
ARRAY_FIELDS: Mapping[str, ArrayForm] = {
    each.name: each.metadata["form"] for each in fields(Rollout) if "form" in each.metadata
}
#: Those with one entry for each step of each environment, which a replay keeps for learners that ask for
#: them.
STEP_FIELDS = tuple(name for name, form in ARRAY_FIELDS.items() if form.leading == ("T", "N"))


def next_observations(rollout: Rollout, last: NDArray[np.intp] | None = None) -> NDArray[Any]:
    """``[T, N, *obs_shape]``: the observation after step ``last`` ``[T, N]``, by default each step's own;
    after the last step of an episode, its true final observation. May be a view of the rollout's.
    """
    assert rollout.obs is not None
    assert rollout.final_obs is not None
    return after_steps(rollout, rollout.obs, rollout.final_obs, last)


def after_steps(
    rollout: Rollout, array: NDArray[Any], final: NDArray[Any], last: NDArray[np.intp] | None = None
) -> NDArray[Any]:
    """As :func:`next_observations`, of an ``array`` ``[T + 1, N, ...]`` with ``final`` rows ``[K, ...]``."""
    following: NDArray[Any] = array[1:]
    if len(final):
        following = np.array(following)
        following[rollout.ended_at] = final
    return following if last is None else following[last, np.arange(following.shape[1])]


#: The largest number to train on: its squares, summed over a batch, stay within float32.
LARGEST = 1e15
_LARGEST_SUM = LARGEST**2


def within_limits(array: NDArray[Any]) -> bool:
    """Whether all numbers are finite and at most ``LARGEST``; seldom False although they are.

    One dot product shows it: 0.02 to 0.5 ns a byte for float32, a fifth of ``np.isfinite``.
    """
    if array.dtype.kind != "f":
        if array.dtype.itemsize < 8 or not array.size:
            return True
        return bool(array.min() >= -LARGEST and array.max() <= LARGEST)  # the least int64 has no abs()
    flat = array.ravel() if array.dtype.itemsize > 2 else array.ravel().astype(np.float32)
    try:
        return bool(flat.dot(flat) <= _LARGEST_SUM)
    except (FloatingPointError, RuntimeWarning):  # an environment may have made such warnings errors
        return False


def odd_number(array: NDArray[Any]) -> str:
    """The first number that is NaN or beyond ``LARGEST``, with its index; empty if there is none."""
    with np.errstate(over="ignore", invalid="ignore"):
        if within_limits(array):
            return ""
        odd = ~((array >= -LARGEST) & (array <= LARGEST))  # NaN compares false
    if not odd.any():
        return ""
    index = np.unravel_index(int(odd.argmax()), array.shape)
    at = [int(i) for i in index]
    return f"{array[index]:.6g} at {at}, expected a finite number of at most {LARGEST:g}"
