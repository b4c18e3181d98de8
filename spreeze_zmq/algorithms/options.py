"""The options that algorithms share, each group a frozen dataclass; how they are read from a table, and how
some follow the batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, TypeVar

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import Option, Unfit, check, mapped, option, options_of, suggestion

OptionsT = TypeVar("OptionsT")

#: Size of the largest return after rewards are divided: G_max of SimbaV2 (2502.15280).
LARGEST_RETURN = 5.0
#: Bounds of a learning rate that a loss multiplies, those of rsl_rl.
LEAST_RATE, MOST_RATE = 1e-5, 1e-2

#: How an option follows a batch that is ``kappa`` times as large as the one that it is stated for: there are
#: ``kappa`` times fewer updates for the same samples, so each must go further.
#:
#: - ``"sqrt"``: the square root scaling rule of adaptive optimisers (Malladi et al. 2022, arXiv 2205.10287).
#:   That rule also shortens Adam's averages; here the betas stay as stated, since the first one, 0.9, would
#:   become negative beyond ``kappa = 10``.
#: - ``"average"``: the EMA scaling rule (Busbridge et al. 2023, arXiv 2307.13813): a moving average keeps the
#:   same share of itself over the same samples.
RULES: dict[str, Callable[[float, float], float]] = {
    "sqrt": lambda value, kappa: value * math.sqrt(kappa),
    "average": lambda value, kappa: 1.0 - (1.0 - value) ** kappa,
}
#: The rules for a log line.
WORDS = {
    "sqrt": "{stated:g} x sqrt({kappa:g}) = {scaled:.4g} (arXiv 2205.10287)",
    "average": "1 - (1 - {stated:g})^{kappa:g} = {scaled:.4g} (arXiv 2307.13813)",
}


def check_limits(options: object) -> None:
    """Check every option of a dataclass against its declaration.

    Raises:
        InputError: names the option, its value and what is expected.
    """
    for declared in options_of(type(options)):
        value = getattr(options, declared.name)
        if not (declared.schedule and type(value).__name__ == "Tensor"):  # what a learner makes of a schedule
            _checked(declared, value)


def check_below(options: object, low: str, high: str) -> None:
    """Raise InputError unless the option ``low`` is smaller than the option ``high``."""
    below, above = getattr(options, low), getattr(options, high)
    if below >= above:
        raise InputError(f"{low} = {below:g} must lie below {high} = {above:g}")


def _checked(declared: Option, value: Any) -> Any:
    try:
        return check(declared, value)
    except Unfit as unfit:
        hint = f" ({unfit.hint})" if unfit.hint else ""
        raise InputError(f"{declared.name}: {unfit.problem}{hint}") from None


@dataclass(frozen=True)
class TrainingOptions:
    """Options of every algorithm: the optimiser, the discount, the observations, the number format."""

    learning_rate: float = option(
        3e-4, "Adam's step size", minimum=0.0, follows="sqrt", schedule=True, by_network=True
    )
    gamma: float = option(0.99, "discount of one step", minimum=0.0, maximum=1.0)
    normalize_observations: bool = option(
        False,
        "to mean 0 and deviation 1 over all so far, but for one-hot choices; published with the policy (a "
        "topology that does not say it: true for ppo, and what inherits it, in a box of vectors)",
        fixed=True,
    )
    frame_stack: int = option(
        1,
        "number of newest images of an episode that the networks take at once",
        minimum=1,
        maximum=64,
        fixed=True,
    )
    weight_decay: float = option(
        0.0, "decoupled from the gradient (1711.05101)", minimum=0.0, schedule=True, by_network=True
    )
    adam_beta1: float = option(
        0.9, "decay of Adam's mean gradient; 0.5 in CrossQ", minimum=0.0, maximum=0.9999, by_network=True
    )
    adam_beta2: float = option(
        0.999,
        "decay of Adam's mean square; 0.95 adapts faster with large batches",
        minimum=0.0,
        maximum=0.9999,
        by_network=True,
    )
    max_gradient_norm: float = option(
        0.0,
        "longer gradients are scaled down to this; 0 for never",
        minimum=0.0,
        schedule=True,
        by_network=True,
    )
    average_policy: float = option(
        0.0,
        "share of the policy's updates so far over which its weights are averaged, too (2312.02696): the "
        "evaluator plays and keeps whichever are better; samplers act by the newest; 0 for no average",
        minimum=0.0,
        maximum=0.5,
    )
    precision: str = option(
        "auto",
        "of the products; auto is bf16 where that is faster and learns as well, else on a GPU tf32 in "
        "convolutions; tf32, for GPUs, is so in all products, fp32 in none",
        choices=("auto", "fp32", "bf16", "tf32"),
    )

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True)
class ReplayOptions(TrainingOptions):
    """Options of an off-policy algorithm, which draws transitions from a replay many times."""

    batch_size: int | Literal["auto"] = option(
        256,
        "transitions in an update; auto takes what this machine trains fastest",
        minimum=1,
        words=("auto",),
    )
    reference_batch_size: int = option(
        256,
        "batch that the options which follow it are stated for; auto scales them from it",
        minimum=1,
        only_with="batch_size",
        only_at=("auto",),
    )
    max_batch_size: int = option(
        2_048,
        "largest batch that auto may take; beyond 8 times the reference scaled rates learn little",
        minimum=64,
        only_with="batch_size",
        only_at=("auto",),
    )
    n_step: int = option(1, "rewards summed before the value is bootstrapped", minimum=1)
    policy_delay: int = option(1, "critic updates for each policy update", minimum=1)
    replay_capacity: int = option(1_000_000, "transitions kept", minimum=1)
    learning_starts: int = option(1_000, "transitions that only fill the replay, before training", minimum=1)
    prioritized: bool = option(False, "draw transitions by the size of their error (1511.05952)")
    priority_alpha: float = option(
        0.6,
        "0 draws all transitions alike, 1 in proportion to their errors",
        minimum=0.0,
        maximum=1.0,
        only_with="prioritized",
        idle_at=(False,),
    )
    priority_beta: float = option(
        0.4,
        "1 corrects the bias of that draw in the loss, 0 does not",
        minimum=0.0,
        maximum=1.0,
        only_with="prioritized",
        idle_at=(False,),
        schedule=True,
    )
    normalize_rewards: bool | Literal["auto"] = option(
        "auto",
        "divide rewards so that the largest discounted return so far is 5 (2502.15280); auto where critics "
        "learn distributions of returns whose range is not stated",
        words=("auto",),
        fixed=True,
    )

    hindsight: str = option(
        "off",
        "keep transitions once more with goals that were reached: of later steps of the episode, its end, "
        "any of its steps, or any in the replay (1707.01495)",
        choices=("off", "future", "final", "episode", "random"),
    )
    hindsight_goals: int = option(
        4,
        "goals that each transition is kept with beside its own",
        minimum=1,
        only_with="hindsight",
        idle_at=("off",),
    )

    @property
    def largest_return(self) -> float | None:
        """Size of the largest discounted return that losses see; None where rewards are not divided."""
        return LARGEST_RETURN if self.normalize_rewards is True else None

    def drawn(self, part: str) -> Self:
        """These, as the learner of a part draws by them: the policy's evenly, as errors are the critics'."""
        return replace(self, prioritized=False) if part == "policy" else self

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learning_starts > self.replay_capacity:
            raise InputError(
                f"learning_starts = {self.learning_starts} can never be reached with replay_capacity = "
                f"{self.replay_capacity}"
            )


@dataclass(frozen=True)
class RolloutOptions(TrainingOptions):
    """Options of an on-policy algorithm, which trains on each round of rollouts for some epochs."""

    batch_size: int = option(64, "transitions in an update; a round is cut into batches of it", minimum=1)
    epochs: int = option(10, "times that each transition is trained on", minimum=1)
    normalize_rewards: bool = option(
        False,
        "divide rewards by the deviation of the running return (a topology that does not say it: true for "
        "ppo, and what inherits it, in a box of vectors)",
        fixed=True,
    )


def options_from(kind: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """Make an options dataclass from a plain table such as the ``[algorithm]`` of a topology.

    Lists become tuples, and whole numbers become floats where the option is one.

    Raises:
        InputError: an unknown name (with the nearest known one) or a value outside the option's limits.
    """
    known = {declared.name: declared for declared in options_of(kind)}
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise InputError(f"unknown option {name!r}; {suggestion(name, known)}")
        checked = _checked(known[name], value)
        arguments[name] = tuple(checked) if isinstance(checked, list) else checked
    return kind(**arguments)


def following(kind: type[Any]) -> dict[str, str]:
    """The options of an algorithm's ``Options`` that follow the batch size, and the rule of each."""
    return {option.name: option.follows for option in options_of(kind) if option.follows}


def scaled(kind: type[Any], options: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
    """The values of the options that follow, for updates of ``batch_size`` transitions; of a schedule both
    ends, of a table each network's.

    Args:
        kind: the algorithm's ``Options``, which inherit ``ReplayOptions``.
        options: their values for batches of ``reference_batch_size``.
        batch_size: transitions of one update.
    """
    kappa = batch_size / options["reference_batch_size"]
    return {
        name: mapped(options[name], partial(_followed, rule, kappa)) for name, rule in following(kind).items()
    }


def _followed(rule: str, kappa: float, value: float) -> float:
    return RULES[rule](value, kappa)
