"""Whether an environment is still the one that a run was begun with: its code may have changed since."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.schema import show
from spreeze_zmq.envs.failures import close
from spreeze_zmq.envs.forms import part_in_words
from spreeze_zmq.envs.make import make
from spreeze_zmq.envs.spec import OWN_SPACES, EnvironmentSpec, spec_of

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv

#: Fields of a spec that give a policy's numbers their place and meaning, by which networks, replays and
#: policies fit an environment.
SPACES = (
    *("obs_shape", "obs_dtype", "obs_parts", "action_kind", "action_shape", "action_sizes", "action_start"),
    *("action_low", "action_high", "action_mask"),
)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each field of ``SPACES`` that differs between two specs as plain data, and its value
    in both; of lists of one length the first number that differs, as ``action_high[2]``. What the earlier
    one does not say differs from nothing, but for the fields that are left out where they are empty.
    """
    for name in (name for name in SPACES if name in before or name in OWN_SPACES):
        old, new = before.get(name) or None, _as_said(name, before.get(name), now.get(name)) or None
        if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            pairs = zip(map(_plain, old), map(_plain, new), strict=True)
            unlike = ((f"{name}[{place}]", *pair) for place, pair in enumerate(pairs) if pair[0] != pair[1])
            yield from itertools.islice(unlike, 1)
        elif old != new:
            yield name, _plain(old), _plain(new)


def _as_said(name: str, old: Any, new: Any) -> Any:
    """A present value with what an earlier release said of it: of numbers that are no pixels no ``max``."""
    if name != "obs_parts" or not (isinstance(old, list) and isinstance(new, list) and len(old) == len(new)):
        return new
    return [
        {key: value for key, value in part.items() if key != "max" or key in then or part.get("pixels")}
        for then, part in zip(old, new, strict=True)
        if isinstance(then, Mapping)
    ]


def is_same_id(before: object, now: str) -> bool:
    """Whether the id that a run or a policy file has kept is that of an environment which is made here. An
    earlier release kept a registered name without its version as it was written: which one it stood for is
    not known, and it may be any.
    """
    return before == now or (":" not in now and "-v" in now and before == now.rpartition("-v")[0])


def remade(spec: EnvironmentSpec, num_envs: int, **options: Any) -> BatchedEnv:
    """A batch of the environments that a spec describes, with episodes of at most its number of steps.

    Args:
        spec: from the plan of a run, or from a policy file.
        num_envs: number of environments.
        options: further arguments of ``make``.

    Raises:
        InvalidEnvironment: it cannot be made, or has other spaces than the spec, also of the same shapes.
        EnvironmentFailure: the workers did not start.
    """
    own: dict[str, Any] = {"action_mask": spec.action_mask, "step_cap": spec.max_episode_steps}
    batch = make(spec.id, num_envs, env_kwargs=spec.kwargs, **own, **options)
    try:
        check_same(spec, batch)
    except InvalidEnvironment:
        close(batch)
        raise
    return batch


def check_same(spec: EnvironmentSpec, batch: BatchedEnv) -> None:
    """Raise InvalidEnvironment unless the environments of a batch have the spaces that a spec describes."""
    spaces = batch.single_observation_space, batch.single_action_space
    found = spec_of(spec.id, spec.kwargs, *spaces, batch.episode_limit, batch.own_spaces)
    now = {**found.to_dict(), "action_mask": spec.action_mask}
    for name, old, new in differences(spec.to_dict(), now):
        raise InvalidEnvironment(
            f"{spec.id}: its {name} is {show(new)} here and was {show(old)} when its run began: "
            "bring back the code and the packages that it was begun with (see packages in its run.json), "
            "or train again; where neither has changed, it must be made with the same spaces each time"
        )


def _plain(value: Any) -> Any:
    """A field's value for a line."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, Mapping):
        return "none" if value is None else value
    return part_in_words(value)
