"""The entry points of the environment engine; they import Gymnasium and MuJoCo when they are called."""

from __future__ import annotations

import json
import math
import operator
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.trust import TIME_LIMIT
from spreeze_zmq.envs.engines import ENGINES
from spreeze_zmq.envs.failures import TOLERATED
from spreeze_zmq.envs.probing import look
from spreeze_zmq.envs.spec import EnvironmentSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spreeze_zmq.envs.batched import BatchedEnv
    from spreeze_zmq.envs.failures import EnvironmentFault
    from spreeze_zmq.envs.in_process import EngineChoice

#: What ``make`` takes as ``backend``.
BACKENDS = ("auto", *ENGINES)
#: Longest time for workers to make their environments, and how much longer each may take than one did here.
START_TIMEOUT_S, LONGER = 60.0, 10.0


def probe(
    env_id: str, env_kwargs: Mapping[str, Any] | None = None, randomize: Mapping[str, Any] | None = None
) -> EnvironmentSpec:
    """The spec of an environment; the arguments and errors are those of ``look``."""
    return look(env_id, env_kwargs, randomize).spec


def try_out(
    env_id: str, env_kwargs: Mapping[str, Any] | None = None, randomize: Mapping[str, Any] | None = None
) -> NDArray[Any] | None:
    """The observations of an environment's first steps, as of ``look``, whose arguments it takes.

    Raises:
        InvalidEnvironment: it cannot be trained in; names the reason, and the user's file and line.
        Unguarded: as for ``look``.
    """
    return look(env_id, env_kwargs, randomize).tried()


def make(
    env_id: str,
    num_envs: int,
    *,
    batch_size: int | None = None,
    num_workers: int = 0,
    backend: str = "auto",
    seed: int = 0,
    step_info: bool | Literal["final"] = True,
    max_failures: int = TOLERATED,
    step_timeout_s: float | None = 60.0,
    on_failure: Callable[[EnvironmentFault], None] | None = None,
    on_tick: Callable[[], None] = lambda: None,
    randomize: Mapping[str, Any] | None = None,
    first_index: int = 0,
    action_mask: bool = False,
    step_cap: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> BatchedEnv:
    """Make a batch of environments, a ``gymnasium.vector.VectorEnv`` in same-step autoreset mode.

    Args:
        env_id: a registered id; ``module:id``, where importing the module registers it; ``module:callable``,
            which returns a ``gymnasium.Env``; ``module:Class``, a native task; a name of EnvPool's.
        num_envs: number of environments.
        batch_size: number of finished environments that ``recv`` waits for; by default all. Fewer need
            ``num_workers`` or EnvPool.
        num_workers: number of processes that step the environments; 0 steps them in this one. With workers,
            ``kwargs`` must be plain data, in which a tuple comes as a list, and ``step_info`` gathers nothing
            or ``"final"``. Native tasks of which ``recv`` waits for all stay in this process, and MuJoCo
            steps them in as many threads.
        backend: one of ``BACKENDS``; ``auto`` takes the fastest that can step this environment. The batch's
            ``backend`` and ``backend_reason`` name it and the reason.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether ``step`` gathers the environments' own infos; ``"final"`` gathers only those of the
            last step of each episode. Final observations and episode statistics are always returned.
        max_failures: failures in 100 episodes that are tolerated. An environment that raises, hangs or gives
            a number that is not finite is logged, its episode is truncated, and the next one begins.
        step_timeout_s: with workers, seconds after which one environment's step, or reset, counts as hanging;
            ``None`` for never.
        on_failure: called with each tolerated failure.
        on_tick: the batch's ``on_tick``, also called while the batch is made.
        randomize: ranges from which each reset draws parameters of a MuJoCo task's model, such as
            ``{"body_mass": [0.8, 1.2]}``; see ``spreeze_zmq.envs.mujoco.randomization``.
        first_index: environment ``i`` gets the number ``first_index + i`` where ``kwargs`` have ``{index}``
            in a text; a text that is nothing else becomes an integer.
        action_mask: whether to read which actions are legal, as the spec of an environment that says so
            states; infos then have them.
        step_cap: steps after which the batch truncates an episode. Where that is ``episode_limit`` anyway,
            what wraps a ``TimeLimit`` may still go on beyond it. Not of EnvPool's first-finished batches,
            which take ``max_episode_steps``.
        env_kwargs: arguments of the environment's constructor, of any names; ``max_episode_steps`` overrides
            its time limit.
        kwargs: more of them, of names that are none of these.

    Raises:
        InvalidEnvironment: it cannot be made in this way; names the reason.
        EnvironmentFailure: the workers did not start.
    """
    kwargs = {**(env_kwargs or {}), **kwargs}
    given = {"num_envs": num_envs, "num_workers": num_workers, "seed": seed, "first_index": first_index}
    given["batch_size"] = num_envs if batch_size is None else batch_size
    num_envs, num_workers, seed, first_index, size = _whole(env_id, given)
    step_cap = None if step_cap is None else next(_whole(env_id, {"step_cap": step_cap}))
    limit = kwargs.get(TIME_LIMIT)
    if type(limit) is not bool and isinstance(limit, Integral):  # a bool is none
        kwargs[TIME_LIMIT] = operator.index(limit)
    _check_numbers(env_id, num_envs, size, num_workers, step_cap, backend)
    from spreeze_zmq.envs.failures import Failures
    from spreeze_zmq.envs.in_process import choose

    choice = choose(env_id, kwargs, backend)
    if randomize and choice.task is None:
        raise InvalidEnvironment(
            f"{env_id}: randomize needs a MuJoCo task that is stepped natively, but its backend is"
            f" '{choice.backend}' ({choice.reason})"
        )
    options: dict[str, Any] = {
        **{"step_info": step_info, "randomize": randomize},
        **{"first_index": first_index, "step_cap": step_cap},
    }
    if action_mask and choice.masked:
        options["action_mask"] = True
    if num_workers and not (size == num_envs and choice.task is not None):
        options["step_info"] = "final" if step_info == "final" else False
        env = _in_workers(choice, num_envs, size, num_workers, seed, options, step_timeout_s, on_tick)
    else:
        env = choice.make(num_envs, seed, size, **options, num_threads=max(1, num_workers), on_tick=on_tick)
    env.on_tick = on_tick
    env.failures = Failures(max_failures, on_failure)
    return env


def _in_workers(
    choice: EngineChoice,
    num_envs: int,
    size: int,
    num_workers: int,
    seed: int,
    options: dict[str, Any],
    step_timeout_s: float | None,
    on_tick: Callable[[], None],
) -> BatchedEnv:
    from spreeze_zmq.envs.failures import close
    from spreeze_zmq.envs.parallel.worker_batch import WorkerBatch
    from spreeze_zmq.envs.processes import plain

    names = ("env_id", "kwargs", "backend")
    settings = {"options": options, **{name: getattr(choice, name) for name in names}}
    text = plain(settings, f"{choice.env_id}: with num_workers its arguments are sent to other processes")
    settings = json.loads(text)  # so that the one here is made of what they get
    folder, began_s = os.getcwd(), time.monotonic()
    like = replace(choice, kwargs=settings["kwargs"]).make(1, seed, **settings["options"])
    make_s = (time.monotonic() - began_s) * math.ceil(num_envs / num_workers)
    close(like)  # it may hold what the first of them needs, such as a port
    os.chdir(folder)  # and what it changed is not what they begin with
    start_s = max(START_TIMEOUT_S, LONGER * make_s)
    env = WorkerBatch(like, num_envs, num_workers, size, seed, settings, step_timeout_s, on_tick, start_s)
    env.backend_reason = f"{choice.reason}; in {num_workers} workers"
    return env


def _whole(env_id: str, numbers: Mapping[str, Any]) -> Iterator[int]:
    """Numbers as Python's own integers, whichever library's they were; environments are given no others.

    Raises:
        InvalidEnvironment: one is not whole.
    """
    for name, number in numbers.items():
        try:
            yield operator.index(number)
        except TypeError:
            raise InvalidEnvironment(f"{env_id}: {name} is a whole number, not {number!r:.60}") from None


def _check_numbers(
    env_id: str, num_envs: int, batch_size: int, num_workers: int, step_cap: int | None, backend: str
) -> None:
    """Raise InvalidEnvironment for numbers out of range and unknown backends."""
    if num_envs < 1:
        raise InvalidEnvironment(f"{env_id}: num_envs is at least 1, not {num_envs}")
    if backend not in BACKENDS:
        raise InvalidEnvironment(f"{env_id}: backend is one of {', '.join(BACKENDS)}, not '{backend}'")
    if not 0 <= num_workers <= num_envs:
        raise InvalidEnvironment(
            f"{env_id}: num_workers is from 0 (in this process) to num_envs ({num_envs}), not {num_workers}"
        )
    if not 1 <= batch_size <= num_envs:
        raise InvalidEnvironment(f"{env_id}: batch_size is from 1 to num_envs ({num_envs}), not {batch_size}")
    if step_cap is not None and step_cap < 1:
        raise InvalidEnvironment(f"{env_id}: step_cap is at least 1, not {step_cap}")
