"""Every key that a topology may have, and hints at the key that an unknown name stands for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.base.schema import Option, option, options_of
from spreeze_zmq.plan.parts import BalancePlan, DataPlan, GroupsPlan, RunPlan, StopPlan
from spreeze_zmq.plan.processes import ChannelPlan, ComponentPlan
from spreeze_zmq.plan.roles import CHANNELS, HEAD, MEMBER, NODE, ROLES, SAMPLER, Role
from spreeze_zmq.plan.topology.component_file import read_component_file
from spreeze_zmq.plan.topology.described import DescribedEnvironment

#: The tables of a topology.
TABLES = ("run", "algorithm", "data", "balance", "placement", "groups", "components", "channels")


@dataclass(frozen=True)
class RunTable(DescribedEnvironment, RunPlan):
    """``[run]``."""

    name: str | None = option(None, "prefix of the run folder's name; by default the topology file's name")


STOP = options_of(StopPlan)
RUN = options_of(RunTable)
BALANCE = options_of(BalancePlan)
GROUPS = options_of(GroupsPlan)
DATA = options_of(DataPlan)
PLACEMENT = tuple(
    Option(
        role.name,
        "str",
        HEAD,
        f'"{HEAD}", where the run is started; "{NODE}", any machine that joins; or a host name, "desk*"',
    )
    for role in ROLES.values()
    if not role.stays
)
CHANNEL = options_of(ChannelPlan)
START_TIMEOUT = next(each for each in options_of(ComponentPlan) if each.name == "start_timeout_s")


def component_options(role: str) -> tuple[Option, ...]:
    """The options that every component of this role has, whatever its program."""
    own = {"use": role, **ROLES[role].defaults}
    options = (replace(each, default=own.get(each.name, each.default)) for each in options_of(ComponentPlan))
    return tuple(_of_role(ROLES[role], each) for each in options)


def _of_role(role: Role, each: Option) -> Option:
    """A common option as it is for a role: what its processes are to the run decides what it takes."""
    if each.name == "count" and role.name == SAMPLER:
        return replace(each, minimum=0, help=f"{each.help}; 0 trains on [data.NAME] alone")
    if each.name == "count" and role.single:
        return replace(each, maximum=1, help=role.single)
    if each.name == "count" and role.name == MEMBER:
        return replace(each, maximum=0, help="groups.count decides it")
    if each.name == "max_restarts" and role.is_observer:
        return replace(each, help="restarts within restart_window_s; beyond that the run goes on without it")
    return each


#: Our key -> its names in Stable-Baselines3, RLlib, CleanRL, Tianshou and Spinning Up.
NAMES_ELSEWHERE = {
    "run.env": "env_id env_name environment gym_id task",
    "run.algorithm": "algo agent",
    "run.seed": "random_seed rng_seed",
    "run.stop.env_steps": (
        "total_timesteps timesteps num_timesteps n_timesteps max_timesteps total_steps num_steps max_steps "
        "max_env_steps total_env_steps steps stop_timesteps"
    ),
    "run.stop.return": "reward_threshold stop_reward target_return",
    "run.stop.minutes": "max_minutes time_limit max_time",
    "run.checkpoint_minutes": "save_freq checkpoint_freq checkpoint_interval checkpoint_frequency",
    "run.env_kwargs": "env_config render_mode",
    "data.NAME.source": "dataset dataset_id dataset_name offline_dataset minari_dataset input_ demo_path",
    "data.NAME.share": "demo_ratio offline_ratio demonstration_ratio",
    "data.NAME.episodes": "num_demos n_demos num_demonstrations",
    "algorithm.learning_rate": (
        "lr actor_lr critic_lr policy_lr q_lr lr_actor lr_critic learn_rate step_size pi_lr vf_lr"
    ),
    "algorithm.hidden_sizes": (
        "policy net_arch policy_kwargs fcnet_hiddens hidden_dim hidden_size hidden_layers hidden_dims"
    ),
    "algorithm.activation": "activation_fn fcnet_activation nonlinearity",
    "algorithm.batch_size": (
        "minibatch_size mini_batch_size sgd_minibatch_size train_batch_size batchsize num_minibatches"
    ),
    "algorithm.gamma": "discount discount_factor",
    "algorithm.replay_capacity": (
        "buffer_size replay_size buffer_capacity capacity replay_buffer_size rb_size"
    ),
    "algorithm.learning_starts": (
        "start_steps warmup_steps update_after start_timesteps num_steps_sampled_before_learning_starts"
    ),
    "algorithm.policy_delay": "policy_frequency policy_freq actor_update_interval",
    "algorithm.n_step": "nstep n_step_return estimation_step",
    "algorithm.prioritized": "prioritized_replay per use_per",
    "algorithm.normalize_observations": "norm_obs normalize obs_norm normalize_obs",
    "algorithm.normalize_rewards": "norm_reward normalize_reward reward_norm",
    "algorithm.max_gradient_norm": "max_grad_norm grad_clip clip_grad_norm",
    "algorithm.frame_stack": "n_stack num_stack stack_num",
    "algorithm.tau": "polyak soft_update target_smoothing_coefficient",
    "algorithm.initial_temperature": "ent_coef alpha entropy_coef entropy_coeff initial_alpha",
    "algorithm.entropy_coefficient": "ent_coef entropy_coef entropy_coeff",
    "algorithm.learn_temperature": "autotune automatic_entropy_tuning auto_alpha",
    "algorithm.target_every": (
        "target_update_interval target_update_freq target_network_update_freq target_network_frequency"
    ),
    "algorithm.initial_epsilon": "exploration_initial_eps start_e eps_start epsilon_start epsilon",
    "algorithm.final_epsilon": "exploration_final_eps end_e eps_end epsilon_end",
    "algorithm.exploration_steps": "exploration_fraction eps_decay epsilon_decay epsilon_timesteps",
    "algorithm.double": "double_q double_dqn",
    "algorithm.epochs": "n_epochs update_epochs num_sgd_iter num_epochs",
    "algorithm.value_clip_range": "clip_range_vf vf_clip_param clip_vloss value_clip use_clipped_value_loss",
    "algorithm.desired_kl": "target_kl kl_target",
    "algorithm.adam_beta1": "betas adam_betas beta1 b1",
    "algorithm.clip_range": "clip_coef clip_param clip_ratio eps_clip",
    "algorithm.gae_lambda": "lam lambda_ gae_lam",
    "balance.replay_ratio": (
        "gradient_steps train_freq utd utd_ratio updates_per_step update_every training_intensity"
    ),
    "components.sampler.envs": "n_envs num_envs num_envs_per_worker num_envs_per_env_runner",
    "components.sampler.count": "num_workers n_workers num_env_runners num_actors num_rollout_workers",
    "components.sampler.rollout_steps": (
        "n_steps rollout_length rollout_fragment_length unroll_length horizon"
    ),
    "components.evaluator.episodes": "n_eval_episodes eval_episodes evaluation_duration",
    "components.evaluator.cost_share": "eval_freq eval_interval evaluation_interval",
    "components.critic_learner.device": "cuda gpu use_gpu num_gpus",
}
#: Our key -> how to convert the value of another library.
_CONVERSIONS = {
    "algorithm.tau": "tau = 1 - polyak",
    "algorithm.exploration_steps": "in transitions, not as a fraction of the run",
    "algorithm.learning_rate": "of one network: learning_rate = { critic = 1e-3, policy = 3e-4 }",
    "algorithm.target_every": "in updates; with tau = 1 the target is copied, as there",
    "balance.replay_ratio": (
        "transitions trained on for each one sampled: batch_size * gradient_steps / (train_freq * n_envs)"
    ),
    "components.evaluator.cost_share": "a share of the cores",
    "components.critic_learner.device": "and components.actor_learner.device",
}


@dataclass(frozen=True)
class Table:
    """One table of a topology.

    Attributes:
        name: as in ``[name]``.
        options: its keys.
        algorithm: the algorithm that has these options; empty for the tables of every run.
    """

    name: str
    options: tuple[Option, ...]
    algorithm: str = ""

    @property
    def names(self) -> list[str]:
        return [option.name for option in self.options]


@cache
def reference() -> tuple[Table, ...]:
    """All tables, with those of every shipped algorithm."""
    return (
        Table("run", tuple(option for option in RUN if not option.options)),
        Table("run.stop", STOP),
        *map(algorithm_table, algorithms.names()),
        Table("data.NAME", DATA),
        Table("balance", BALANCE),
        Table("placement", PLACEMENT),
        Table("groups", GROUPS),
        *(Table(f"components.{role}", component_options(role) + _shipped_options(role)) for role in ROLES),
        *(Table(f"channels.{name}", CHANNEL) for name in CHANNELS),
    )


def _shipped_options(role: str) -> tuple[Option, ...]:
    return read_component_file(shipped_folder("components") / role).options


def algorithm_table(name: str) -> Table:
    """The table of one algorithm. Raises InputError for an unknown name."""
    return Table("algorithm", options_of(algorithms.get(name).Options), name)


def entries(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """The keys of tables as plain data, one entry a key; JSON-able."""
    shown = [field.name for field in dataclasses.fields(Option) if field.name not in ("name", "options")]
    return [
        {
            "key": f"{table.name}.{option.name}",
            "algorithm": table.algorithm,
            **{name: getattr(option, name) for name in shown},
            "accepts": option.takes,
        }
        for table in tables
        for option in table.options
    ]


def key_hint(name: str, algorithm: str = "") -> str:
    """A hint for a key that its table does not have; empty if the name is unknown everywhere.

    Args:
        name: the key.
        algorithm: a shipped one, whose options come before those of others; "" if the run has another.
    """
    having = [table for table in reference() if name in table.names]
    fitting = [table.name for table in having if _fits(table, algorithm)]
    if fitting:
        *others, last = dict.fromkeys(fitting)
        if not others:
            return f'did you mean "{last}.{name}"?'
        return f"it is a key of {', '.join(f'[{other}]' for other in others)} and [{last}]"
    if key := key_called(name, algorithm):
        return f"{name} is called {key} here" + (f"; {_CONVERSIONS[key]}" if key in _CONVERSIONS else "")
    others = [table.algorithm for table in having]
    return f"an option of {' and '.join(others)}, not of {algorithm}" if others else ""


def table_hint(name: str) -> str:
    """A hint for an unknown table that is the last word of a known one; empty if there is none."""
    found = [table.name for table in reference() if table.name.endswith(f".{name}")]
    return f'did you mean "{found[0]}"?' if found else ""


def key_called(name: str, algorithm: str = "") -> str:
    """Our key for another library's name, of ``algorithm`` if it has one; empty if there is none."""
    found = [key for key, names in NAMES_ELSEWHERE.items() if name in names.split()]
    tables = [table for table in reference() if _fits(table, algorithm)]
    known = {f"{table.name}.{own}" for table in tables for own in table.names}
    return next((key for key in found if key in known), found[0] if found else "")


def setting(flag: str) -> str:
    """The key that an unknown command-line flag such as ``--lr`` stands for; empty if there is none."""
    name = flag.lstrip("-").partition("=")[0].replace("-", "_")
    having = [f"{table.name}.{name}" for table in reference() if name in table.names]
    return key_called(name) or (having[0] if having else "")


def _fits(table: Table, algorithm: str) -> bool:
    """Whether a run with this algorithm, or with any if it is "", has the table."""
    return not algorithm or table.algorithm in ("", algorithm)
