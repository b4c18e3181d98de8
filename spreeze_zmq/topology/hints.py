"""What an unknown key may have meant: a key of another table, or what other libraries call something."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from spreeze_zmq.topology.reference import Table, reference

_RATIO = "batch_size * gradient_steps / (train_freq * n_envs)"
#: Our key -> what Stable-Baselines3, RLlib, CleanRL, Tianshou and Spinning Up call it, and how to convert it.
_NAMES: dict[str, tuple[str, str]] = {
    "run.env": ("env_id env_name environment gym_id task", ""),
    "run.algorithm": ("algo agent", ""),
    "run.seed": ("random_seed rng_seed", ""),
    "run.stop.env_steps": (
        "total_timesteps timesteps num_timesteps n_timesteps max_timesteps total_steps num_steps max_steps "
        "max_env_steps total_env_steps steps stop_timesteps",
        "",
    ),
    "run.stop.return": ("reward_threshold stop_reward target_return", ""),
    "run.stop.minutes": ("max_minutes time_limit max_time", ""),
    "run.checkpoint_minutes": ("save_freq checkpoint_freq checkpoint_interval checkpoint_frequency", ""),
    "run.env_kwargs": ("env_config render_mode", ""),
    "algorithm.learning_rate": (
        "lr actor_lr critic_lr policy_lr q_lr lr_actor lr_critic learn_rate step_size pi_lr vf_lr",
        "",
    ),
    "algorithm.hidden_sizes": (
        "policy net_arch policy_kwargs fcnet_hiddens hidden_dim hidden_size hidden_layers hidden_dims",
        "",
    ),
    "algorithm.activation": ("activation_fn fcnet_activation nonlinearity", ""),
    "algorithm.batch_size": (
        "minibatch_size mini_batch_size sgd_minibatch_size train_batch_size batchsize num_minibatches",
        "",
    ),
    "algorithm.gamma": ("discount discount_factor", ""),
    "algorithm.replay_capacity": (
        "buffer_size replay_size buffer_capacity capacity replay_buffer_size rb_size",
        "",
    ),
    "algorithm.learning_starts": (
        "start_steps warmup_steps update_after start_timesteps num_steps_sampled_before_learning_starts",
        "",
    ),
    "algorithm.policy_delay": ("policy_frequency policy_freq actor_update_interval", ""),
    "algorithm.n_step": ("nstep n_step_return estimation_step", ""),
    "algorithm.prioritized": ("prioritized_replay per use_per", ""),
    "algorithm.normalize_observations": ("norm_obs normalize obs_norm normalize_obs", ""),
    "algorithm.normalize_rewards": ("norm_reward normalize_reward reward_norm", ""),
    "algorithm.max_gradient_norm": ("max_grad_norm grad_clip clip_grad_norm", ""),
    "algorithm.frame_stack": ("n_stack num_stack stack_num", ""),
    "algorithm.tau": ("polyak soft_update target_smoothing_coefficient", "tau = 1 - polyak"),
    "algorithm.initial_temperature": ("ent_coef alpha entropy_coef entropy_coeff initial_alpha", ""),
    "algorithm.entropy_coefficient": ("ent_coef entropy_coef entropy_coeff", ""),
    "algorithm.learn_temperature": ("autotune automatic_entropy_tuning auto_alpha", ""),
    "algorithm.target_every": (
        "target_update_interval target_update_freq target_network_update_freq target_network_frequency",
        "",
    ),
    "algorithm.initial_epsilon": ("exploration_initial_eps start_e eps_start epsilon_start epsilon", ""),
    "algorithm.final_epsilon": ("exploration_final_eps end_e eps_end epsilon_end", ""),
    "algorithm.exploration_steps": (
        "exploration_fraction eps_decay epsilon_decay epsilon_timesteps",
        "in transitions, not as a fraction of the run",
    ),
    "algorithm.double": ("double_q double_dqn", ""),
    "algorithm.epochs": ("n_epochs update_epochs num_sgd_iter num_epochs", ""),
    "algorithm.clip_range": ("clip_coef clip_param clip_ratio eps_clip", ""),
    "algorithm.gae_lambda": ("lam lambda_ gae_lam", ""),
    "balance.replay_ratio": (
        "gradient_steps train_freq utd utd_ratio updates_per_step update_every training_intensity",
        f"transitions trained on for each one sampled: {_RATIO}",
    ),
    "components.sampler.envs": ("n_envs num_envs num_envs_per_worker num_envs_per_env_runner", ""),
    "components.sampler.count": ("num_workers n_workers num_env_runners num_actors num_rollout_workers", ""),
    "components.sampler.rollout_steps": (
        "n_steps rollout_length rollout_fragment_length unroll_length horizon",
        "",
    ),
    "components.evaluator.episodes": ("n_eval_episodes eval_episodes evaluation_duration", ""),
    "components.evaluator.cost_share": (
        "eval_freq eval_interval evaluation_interval",
        "a share of the cores",
    ),
    "components.critic_learner.device": ("cuda gpu use_gpu num_gpus", "and components.actor_learner.device"),
}


def owner(name: str, algorithm: str = "") -> str:
    """A hint for a key that its table does not have; empty where nothing is known of this name.

    Args:
        name: the key.
        algorithm: the run's, as far as it is known: its options come before those of others.
    """
    having = [table for table in _mine(algorithm) if _has(table, name)]
    if having:
        keys = list(dict.fromkeys(f"{table.name}.{name}" for table in having))
        return f'did you mean "{keys[0]}"?' if len(keys) == 1 else f"it is a key of {_of(having)}"
    if meant := called_here(name, algorithm):
        key, note = meant
        return f"{name} is called {key} here" + (f"; {note}" if note else "")
    others = [table.algorithm for table in _tables() if table.algorithm and _has(table, name)]
    return f"an option of {' and '.join(others)}, not of {algorithm}" if others else ""


def whole_name(table: str) -> str:
    """A hint for a table that was named by its last word; empty where there is none."""
    found = [known.name for known in _tables() if known.name.endswith(f".{table}")]
    return f'did you mean "{found[0]}"?' if found else ""


def called_here(name: str, algorithm: str = "") -> tuple[str, str] | None:
    """Our key for another library's name, and a note on its unit; None where none is known."""
    known = {f"{table.name}.{option.name}" for table in _mine(algorithm) for option in table.options}
    found = [(key, note) for key, (names, note) in _NAMES.items() if name in names.split()]
    return next((pair for pair in found if pair[0] in known), next(iter(found), None))


def setting(flag: str) -> str:
    """The key that an unknown command-line flag such as ``--lr`` stands for; empty where none does."""
    name = flag.lstrip("-").partition("=")[0].replace("-", "_")
    if meant := called_here(name):
        return meant[0]
    found = [table.name for table in _tables() if _has(table, name)]
    return f"{found[0]}.{name}" if found else ""


@cache
def _tables() -> list[Table]:
    return reference()


def _mine(algorithm: str) -> list[Table]:
    """The tables of a run with this algorithm, or of any run."""
    return [table for table in _tables() if not algorithm or table.algorithm in ("", algorithm)]


def _has(table: Table, name: str) -> bool:
    return any(option.name == name for option in table.options)


def _of(tables: Iterable[Table]) -> str:
    names = [f"[{table.name}]" for table in tables]
    return f"{', '.join(names[:-1])} and {names[-1]}"
