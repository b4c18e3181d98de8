"""How an algorithm declares its options: a frozen dataclass whose fields carry their limits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from spreeze_zmq.errors import InputError

OptionsT = TypeVar("OptionsT")


def option(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] | None = None,
    auto: bool = False,
    follows: str = "",
    fixed: bool = False,
) -> Any:
    """A dataclass field with its documentation and limits as metadata.

    Args:
        default: the value when the user says nothing; its type is the option's type.
        help: one line.
        minimum: smallest value allowed, itself included; of each element where the option is a tuple.
        maximum: largest value allowed, itself included.
        choices: the only words allowed.
        auto: whether the word ``"auto"`` is allowed beside the numbers.
        follows: how it is scaled with a measured batch size: ``"sqrt"`` or ``"average"``
            (:mod:`spreeze_zmq.algorithms.batch_scaling`); not at all by default.
        fixed: whether networks of another value are other networks, so that no checkpoint of them fits.
    """
    return field(
        default=default,
        metadata={
            "help": help,
            "minimum": minimum,
            "maximum": maximum,
            "choices": choices,
            "auto": auto,
            "follows": follows,
            "fixed": fixed,
        },
    )


def check_limits(options: object) -> None:
    """Hold every field of an options dataclass against its own metadata.

    Raises:
        InputError: names the option, its value and what is allowed.
    """
    for item in fields(options):  # type: ignore[arg-type]
        value, limits = getattr(options, item.name), item.metadata
        if limits["auto"] and value == "auto":
            continue
        if limits["choices"] is not None and value not in limits["choices"]:
            raise InputError(f"{item.name} = {value!r}: expected one of {', '.join(limits['choices'])}")
        for number in value if isinstance(value, tuple) else (value,):
            _check_range(item.name, number, limits)


def _check_range(name: str, number: object, limits: Mapping[str, Any]) -> None:
    minimum, maximum = limits["minimum"], limits["maximum"]
    if minimum is None and maximum is None and not limits["auto"]:
        return
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InputError(f"{name} = {number!r}: expected a number" + (' or "auto"' if limits["auto"] else ""))
    # Written so that NaN, which compares false with everything, is refused as well.
    if (minimum is not None and not number >= minimum) or (maximum is not None and not number <= maximum):
        low = "" if minimum is None else f"at least {minimum:g}"
        high = "" if maximum is None else f"at most {maximum:g}"
        raise InputError(
            f"{name} = {number:g}: expected {' and '.join(part for part in (low, high) if part)}"
        )


@dataclass(frozen=True)
class TrainingOptions:
    """What every algorithm shares: the optimiser, the discount and how observations come in."""

    learning_rate: float = option(3e-4, "Adam's step size", minimum=0.0, follows="sqrt")
    gamma: float = option(0.99, "discount of one step", minimum=0.0, maximum=1.0)
    normalize_observations: bool = option(
        False,
        "to mean 0 and deviation 1 of all that was seen; the statistics travel with the policy",
        fixed=True,
    )
    frame_stack: int = option(
        1,
        "images that the networks take at once, the newest of an episode",
        minimum=1,
        maximum=64,
        fixed=True,
    )
    weight_decay: float = option(0.0, "of the weights, apart from the gradient (1711.05101)", minimum=0.0)
    adam_beta2: float = option(
        0.999, "memory of Adam's mean square; 0.95 follows large batches faster", minimum=0.0, maximum=0.9999
    )
    max_gradient_norm: float = option(0.0, "longer gradients are shortened; 0 is never", minimum=0.0)
    precision: str = option(
        "auto",
        "of the products; auto is bf16 where the device has it and it is known to gain, tf32 is for GPUs",
        choices=("auto", "fp32", "bf16", "tf32"),
    )

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True)
class ReplayOptions(TrainingOptions):
    """Off-policy: transitions are kept in a replay and drawn many times."""

    batch_size: int | Literal["auto"] = option(
        256, "transitions in an update; auto takes what this machine trains fastest", minimum=1, auto=True
    )
    reference_batch_size: int = option(
        256, "batch that the options which follow it are stated for; auto scales them from it", minimum=1
    )
    max_batch_size: int = option(
        2_048,
        "largest batch that auto may take; beyond 8 times the reference, scaled rates teach little",
        minimum=64,
    )
    n_step: int = option(1, "rewards summed before the value is bootstrapped", minimum=1)
    policy_delay: int = option(1, "critic updates for each policy update", minimum=1)
    replay_capacity: int = option(1_000_000, "transitions kept", minimum=1)
    learning_starts: int = option(1_000, "transitions received before the first update", minimum=1)
    prioritized: bool = option(False, "draw transitions by the size of their error (1511.05952)")
    priority_alpha: float = option(
        0.6, "0 draws them alike, 1 in proportion to their errors", minimum=0.0, maximum=1.0
    )
    priority_beta: float = option(
        0.4, "1 weighs the bias of that away in the loss, 0 leaves it", minimum=0.0, maximum=1.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learning_starts > self.replay_capacity:
            raise InputError(
                f"learning_starts = {self.learning_starts} can never be reached with replay_capacity = "
                f"{self.replay_capacity}"
            )


@dataclass(frozen=True)
class RolloutOptions(TrainingOptions):
    """On-policy: a round of rollouts is trained on for some epochs and thrown away."""

    batch_size: int = option(64, "transitions in an update; a round is cut into batches of it", minimum=1)
    epochs: int = option(10, "times that each transition is trained on", minimum=1)
    normalize_rewards: bool = option(False, "divide rewards by the deviation of the running return")


def nearest(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest of ``known``, else the list of all."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=2)
    if close:
        return f"; did you mean {' or '.join(repr(name) for name in close)}?"
    return f"; there is {', '.join(names)}"


def options_from(kind: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """Build an options dataclass from a plain table such as the ``[algorithm]`` of a topology.

    Lists become tuples and whole numbers become floats where the default is one.

    Raises:
        InputError: an unknown name (with the nearest known one) or a value outside the option's limits.
    """
    defaults = {item.name: item.default for item in fields(kind)}  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in defaults:
            raise InputError(f"unknown option {name!r}{nearest(name, defaults)}")
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(defaults[name], float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        arguments[name] = value
    return kind(**arguments)
