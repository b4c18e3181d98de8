"""``[algorithm]``: which one, its options, what follows for the run, and what does not go with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms import Algorithm, ReplayOptions, RolloutOptions, TrainingOptions
from spreeze_zmq.base.errors import InputError, InvalidEnvironment
from spreeze_zmq.base.schema import did_you_mean, one_of, options_of, schedules_in, show
from spreeze_zmq.envs import EnvironmentSpec, Look
from spreeze_zmq.envs.goals import LACK, goal_places
from spreeze_zmq.plan.moves import movable
from spreeze_zmq.plan.parts import LearningPlan, StopPlan
from spreeze_zmq.plan.processes import ComponentPlan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, LEARNERS, MOST_PROCESSES, PART_OF, SAMPLER
from spreeze_zmq.plan.topology.reference import key_hint
from spreeze_zmq.plan.topology.tables import Mistakes, read_table

#: Steps of a rollout for which nothing else speaks.
ROLLOUT_STEPS = 16
#: Least of them where "auto" samplers share a round: advantages of shorter rollouts rest on the values alone.
SHARED_ROUND_STEPS = 128
#: Where a step of one environment takes longer, sampling is what a round waits for: samplers share that, and
#: their rollouts are short.
SLOW_STEP_S = 250e-6
#: What somebody may call the name of the algorithm in its own table.
_NAMES_OF_ONE = frozenset({"name", "type", "class", "algorithm", "algo"})


def chosen_algorithm(name: str, table: Any, environment: EnvironmentSpec | None, mistakes: Mistakes) -> str:
    """The algorithm's name; "auto" becomes the one that suits the environment's spaces, "" if none does.

    If the environment has a mistake, "auto" is an algorithm that has all keys of ``table``, so that the
    mistakes of its values are found too.
    """
    if name != "auto":
        return name
    if environment is None:
        return next((kind for kind in ("sac", *algorithms.names()) if _has_all(kind, table)), "")
    try:
        return algorithms.suited(environment)
    except InvalidEnvironment as error:
        mistakes.add(("run", "env"), str(error))
        return ""


def _has_all(algorithm: str, table: Any) -> bool:
    """Whether an algorithm has every key of an ``[algorithm]`` table."""
    known = {option.name for option in options_of(algorithms.get(algorithm).Options)}
    return isinstance(table, Mapping) and known.issuperset(table)


def find_algorithm(name: str, mistakes: Mistakes) -> type[Algorithm] | None:
    """The class of that name; None, and a mistake, where there is none."""
    if not name:
        return None
    known = algorithms.names()
    if name in known or ":" in name:
        try:
            return algorithms.get(name)
        except InputError as error:
            mistakes.add(("run", "algorithm"), str(error))
            return None
    problem = f'expected one of {one_of(known)} or "my_module:MyAlgorithm", got {show(name)}'
    mistakes.add(("run", "algorithm"), problem, did_you_mean(name, known))
    return None


def learners_of(algorithm: type[Algorithm] | None) -> tuple[str, ...]:
    """The roles that train; all for an unknown algorithm."""
    if algorithm is None or algorithm.has_policy_loss():
        return LEARNERS
    return (CRITIC_LEARNER,)


def learning_plan(algorithm: type[Algorithm], options: TrainingOptions) -> LearningPlan:
    """The facts about the algorithm that processes need."""
    batch_size = getattr(options, "batch_size", 0)
    return LearningPlan(
        learners=learners_of(algorithm),
        on_policy=algorithm.on_policy(),
        batch_size=batch_size if isinstance(batch_size, int) else 0,
        learning_starts=options.learning_starts if isinstance(options, ReplayOptions) else 1,
        policy_delay=options.policy_delay if isinstance(options, ReplayOptions) else 1,
        epochs=options.epochs if isinstance(options, RolloutOptions) else 0,
        rows_each=algorithm.rows_each(options),
        movable=movable(options_of(type(options))),
    )


def with_suited(algorithm: type[Algorithm] | None, table: Any, env: EnvironmentSpec | None) -> Any:
    """``[algorithm]`` with the options that are not stated and that suit the environment."""
    if algorithm is None or env is None or not isinstance(table, Mapping):
        return table
    written = {option.name: option.default for option in options_of(algorithm.Options)} | dict(table)
    if not _is_box_of_vectors(env, written.get("network", "auto")):
        return table
    suits = algorithm.suits_box()
    return {**{name: suits[name] for name in written.keys() & suits.keys()}, **table}


def _is_box_of_vectors(env: EnvironmentSpec, network: Any) -> bool:
    return env.action_kind == "box" and algorithms.takes_vectors(env, network)


def read_algorithm(
    algorithm: type[Algorithm] | None, table: Any, name: str, mistakes: Mistakes
) -> tuple[dict[str, Any], TrainingOptions | None]:
    """``[algorithm]`` as a table and as the algorithm's options; None if it has mistakes."""
    if algorithm is None:
        return {}, None
    before = len(mistakes.found)
    shipped = name if name in algorithms.names() else ""

    def hint(key: str) -> str:
        return "write algorithm in [run]" if key in _NAMES_OF_ONE else key_hint(key, shipped)

    values = read_table(options_of(algorithm.Options), table, ("algorithm",), mistakes, hint)
    if len(mistakes.found) == before:
        try:
            options = algorithms.options_from(algorithm.Options, values)
        except InputError as error:
            mistakes.add(("algorithm",), str(error))
        else:
            _check_batch(options, mistakes)
            return values, options
    return values, None


def asked_fields(
    algorithm: type[Algorithm] | None, options: Any, frame_stack: int, *, masked: bool
) -> dict[str, tuple[str, ...]]:
    """The rollout arrays that each learner asks for; none of an unknown algorithm."""
    if algorithm is None:
        return {}
    memory, relabels = algorithms.memory_size(algorithm, options), algorithm.relabels(options)
    return {
        role: algorithm.fields_of(PART_OF[role], frame_stack, memory, relabels=relabels, masked=masked)
        for role in learners_of(algorithm)
    }


def check_hindsight(
    options: TrainingOptions | None,
    environment: EnvironmentSpec | None,
    seen: Look | None,
    mistakes: Mistakes,
) -> None:
    """Note an environment without goals to relabel, or that does not say what they would have paid."""
    if not isinstance(options, ReplayOptions) or options.hindsight == "off" or environment is None:
        return
    try:
        goal_places(environment.obs_parts)
        problem = str((seen.facts if seen else {}).get(LACK, ""))
    except InvalidEnvironment as error:
        problem = str(error)
    if not problem and environment.obs_dtype == "uint8":
        problem = "goals of uint8 are not relabelled: give them as floats"
    if problem:
        mistakes.add(("algorithm", "hindsight"), problem)


def _check_batch(options: TrainingOptions, mistakes: Mistakes) -> None:
    """Note a batch that no replay of that capacity fills: it would have the same transitions many times."""
    if isinstance(options, ReplayOptions) and isinstance(options.batch_size, int):
        size, capacity = options.batch_size, options.replay_capacity
        if size > capacity:
            hint = "lower it, or raise replay_capacity"
            mistakes.add(("algorithm", "batch_size"), f"{size} exceeds replay_capacity = {capacity}", hint)


def with_rollouts(
    components: Mapping[str, ComponentPlan], algorithm: type[Algorithm], options: Any, env: EnvironmentSpec
) -> dict[str, ComponentPlan]:
    """The components, with a number of steps for rollouts that are "auto": those of a sequence of an
    off-policy algorithm with a memory, those of a round that suits the algorithm, else ``ROLLOUT_STEPS``.
    """
    sampler = components[SAMPLER]
    if sampler.options.get("rollout_steps") != "auto":
        return dict(components)
    length = getattr(options, "sequence_length", 0) if algorithm.memory_size(options) else 0
    round_size = _round_that_suits(algorithm, options, env)
    together = max(1, sampler.count.initial) * int(sampler.options.get("envs", 1))
    steps = length or max(ROLLOUT_STEPS, round_size // together)
    return {**components, SAMPLER: replace(sampler, options={**sampler.options, "rollout_steps": steps})}


def rollouts_of_round(
    algorithm: type[Algorithm],
    options: Any,
    env: EnvironmentSpec,
    sampler: Mapping[str, Any],
    step_s: float = 0.0,
) -> int:
    """The samplers that "auto" has at most for an on-policy algorithm: its round is a rollout of each, and
    more would make it longer, unless "auto" rollouts share one that suits it.

    Args:
        algorithm: on-policy.
        options: its own.
        env: that it acts in.
        sampler: the options of a sampler.
        step_s: seconds for a step of one environment; a slow one is worth longer rounds, or shorter rollouts.
    """
    is_slow = step_s > SLOW_STEP_S
    round_size = _round_that_suits(algorithm, options, env)
    if not round_size or sampler.get("rollout_steps") != "auto":
        return MOST_PROCESSES if is_slow else 1
    least = ROLLOUT_STEPS if is_slow else SHARED_ROUND_STEPS
    return max(1, round_size // (int(sampler.get("envs", 1)) * least))


def _round_that_suits(algorithm: type[Algorithm], options: Any, env: EnvironmentSpec) -> int:
    """Transitions of it; 0 where the algorithm says of none."""
    return algorithm.box_round if _is_box_of_vectors(env, getattr(options, "network", "auto")) else 0


def check_sequences(options: Any, sampler: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Note rollouts of a sampler that are no sequences of an off-policy algorithm with a memory."""
    length, steps = getattr(options, "sequence_length", None), sampler.get("rollout_steps")
    if length is not None and options.memory_size and steps not in (None, length):
        problem = f"{length} is not components.sampler.rollout_steps = {steps}: a sequence is one rollout"
        hint = "write the same number for both"
        mistakes.add(("algorithm", "sequence_length"), problem, hint)


def check_schedules(
    values: Mapping[str, Any], stop: StopPlan, in_order: bool, mistakes: Mistakes, *, offline: bool
) -> None:
    """Note a schedule that has no end, one of minutes in a run whose result must not depend on timing, or one
    of env steps in a run that takes none.
    """
    counts = "env_steps or trained_transitions"
    for name, value in values.items():
        for over in (schedule.get("over", "run") for schedule in schedules_in(value)):
            problem, hint = "", ""
            if over == "run" and not stop.counted(in_order):
                problem, hint = 'goes "over" the run, which has no such limit', f"give run.stop {counts}"
                if in_order and stop.minutes is not None:
                    problem = 'goes "over" the run, and one in a fixed order follows no clock'
                elif not in_order:
                    hint = f"give run.stop {counts.replace(' or ', ', ')} or minutes"
            elif over != "run" and in_order and "minutes" in over:
                problem = 'goes "over" minutes, and a run in a fixed order follows no clock'
                hint = f"let it go over {counts}"
            elif over != "run" and offline and "env_steps" in over:
                problem = 'goes "over" env_steps, and a run without samplers takes none'
                hint = "let it go over trained_transitions"
            if problem:
                mistakes.add(("algorithm", name), problem, hint)
