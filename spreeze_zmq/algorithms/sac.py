"""SAC's entry in the registry: its options and which halves it is made of. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from spreeze_zmq.algorithms.interface import ActorHalf, Algorithm, CriticHalf, Environment
from spreeze_zmq.algorithms.options import check_limits, option
from spreeze_zmq.errors import InputError


@dataclass(frozen=True)
class SACOptions:
    """Options of soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905) with automatic temperature."""

    batch_size: int | Literal["auto"] = option(
        256, "transitions in an update; auto takes what this machine trains fastest", minimum=1, auto=True
    )
    reference_batch_size: int = option(
        256, "batch that learning_rate and tau are stated for; auto scales them from it", minimum=1
    )
    max_batch_size: int = option(
        2_048,
        "largest batch that auto may take; beyond 8 times the reference, scaled rates teach little",
        minimum=64,
    )
    learning_rate: float = option(1e-3, "Adam's step size, of critics, policy and temperature", minimum=0.0)
    gamma: float = option(0.99, "discount of one step", minimum=0.0, maximum=1.0)
    tau: float = option(
        0.01, "how far the target critics move to the critics in an update", minimum=0.0, maximum=1.0
    )
    n_step: int = option(1, "rewards summed before the value is bootstrapped", minimum=1)
    hidden_sizes: tuple[int, ...] = option((256, 256), "width of each hidden layer", minimum=1)
    critic_hidden_sizes: tuple[int, ...] = option((), "likewise, of the critics alone", minimum=1)
    actor_hidden_sizes: tuple[int, ...] = option((), "likewise, of the policy alone", minimum=1)
    activation: str = option("relu", "between the layers", choices=("relu", "elu", "silu", "tanh"))
    layer_norm: bool = option(
        False, "normalise the hidden layers of the critics (2302.02948: bounds extrapolation)"
    )
    actor_layer_norm: bool = option(False, "normalise the hidden layers of the policy")
    twin_critics: str = option(
        "min",
        "bootstrap from the lower critic, or from the mean of both (2512.01996: for large batches)",
        choices=("min", "mean"),
    )
    num_atoms: int = option(
        1, "above 1, critics learn a distribution over so many returns (C51, 1707.06887)", minimum=1
    )
    v_min: float = option(-100.0, "lowest return of the distribution")
    v_max: float = option(1000.0, "highest return of the distribution")
    normalize_observations: bool = option(
        False, "to mean 0 and deviation 1 of all that was seen; the statistics travel with the policy"
    )
    weight_decay: float = option(0.0, "of the weights, apart from the gradient (1711.05101)", minimum=0.0)
    adam_beta2: float = option(
        0.999, "memory of Adam's mean square; 0.95 follows large batches faster", minimum=0.0, maximum=0.9999
    )
    max_gradient_norm: float = option(0.0, "longer gradients are shortened; 0 is never", minimum=0.0)
    initial_temperature: float = option(0.1, "weight of the entropy at the start", minimum=1e-8)
    learn_temperature: bool = option(True, "fit the temperature to the target entropy")
    target_entropy: float | Literal["auto"] = option(
        "auto",
        "entropy in nats of the actions scaled to [-1, 1]; auto is minus their number",
        auto=True,
    )
    log_std_min: float = option(
        -5.0, "lowest log standard deviation before the tanh", minimum=-20.0, maximum=2.0
    )
    log_std_max: float = option(
        2.0, "highest log standard deviation before the tanh", minimum=-20.0, maximum=2.0
    )
    policy_delay: int = option(1, "critic updates for each actor update", minimum=1)
    replay_capacity: int = option(1_000_000, "transitions kept", minimum=1)
    prioritized: bool = option(False, "draw transitions by the size of their error (1511.05952)")
    priority_alpha: float = option(
        0.6, "0 draws them alike, 1 in proportion to their errors", minimum=0.0, maximum=1.0
    )
    priority_beta: float = option(
        0.4, "1 weighs the bias of that away in the loss, 0 leaves it", minimum=0.0, maximum=1.0
    )
    learning_starts: int = option(1_000, "transitions received before the first update", minimum=1)
    precision: str = option(
        "auto",
        "of the products; auto is bf16 where the device has it, tf32 is for GPUs",
        choices=("auto", "fp32", "bf16", "tf32"),
    )

    def __post_init__(self) -> None:
        check_limits(self)
        if self.log_std_min >= self.log_std_max:
            raise InputError(
                f"log_std_min = {self.log_std_min:g} must lie below log_std_max = {self.log_std_max:g}"
            )
        if self.v_min >= self.v_max:
            raise InputError(f"v_min = {self.v_min:g} must lie below v_max = {self.v_max:g}")
        if self.learning_starts > self.replay_capacity:
            raise InputError(
                f"learning_starts = {self.learning_starts} can never be reached with replay_capacity = "
                f"{self.replay_capacity}"
            )


def _batch_bytes(options: Any, env: Environment) -> int:
    """Of each transition of a batch, at most: its inputs in float32, and of every layer what the forward pass
    keeps and the backward pass makes of it. With fp32 and no cutting into blocks, the shipped topologies were
    seen to take 0.4 to 0.8 of this.
    """
    num_inputs, num_actions = math.prod(env.obs_shape), math.prod(env.action_shape)
    critic: int = sum(options.critic_hidden_sizes or options.hidden_sizes)
    policy: int = sum(options.actor_hidden_sizes or options.hidden_sizes)
    # Twin critics and their targets; a normalisation keeps its input as well.
    floats: int = (16 if options.layer_norm else 8) * critic + (8 if options.actor_layer_norm else 4) * policy
    floats += 24 * options.num_atoms + 8 * (num_inputs + 2 * num_actions)
    return 4 * floats


def _make_critic(options: Any, env: Environment, device: str, seed: int) -> CriticHalf:
    from spreeze_zmq.algorithms.fast.sac_critic import SACCritic

    return SACCritic(options, env, device, seed)


def _make_actor(options: Any, env: Environment, device: str, seed: int) -> ActorHalf:
    from spreeze_zmq.algorithms.fast.sac_actor import SACActor

    return SACActor(options, env, device, seed)


SAC = Algorithm(
    name="sac",
    options=SACOptions,
    action_kinds=("box",),
    critic_fields=("obs", "action", "reward", "terminated", "truncated", "final_obs", "final_index"),
    actor_fields=("obs",),
    critic_maker=_make_critic,
    actor_maker=_make_actor,
    batch_bytes=_batch_bytes,
)
