"""``spreeze record RUN --minari NAME``: play the best policy of a run, and keep the episodes as a dataset."""

from __future__ import annotations

import argparse
from contextlib import closing

import numpy as np

from spreeze_zmq import data
from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.arguments import add_seed
from spreeze_zmq.commands.evaluate import add_run_arguments
from spreeze_zmq.envs.recorded import OwnEpisode, recorded
from spreeze_zmq.evaluation.evaluation import of_episodes, play, with_spread
from spreeze_zmq.evaluation.saved import SavedPolicy, fresh_seed
from spreeze_zmq.policy import with_noise, without_noise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_run_arguments(parser)
    parser.add_argument(
        "--minari", metavar="NAME", required=True, help="the new dataset's name, as pendulum/expert-v0"
    )
    parser.add_argument("--episodes", type=int, default=10, metavar="N", help="how many (default: 10)")
    add_seed(parser, "a fresh one, which is printed")
    parser.add_argument(
        "--explore", action="store_true", help="act as samplers do, not by the policy's best actions"
    )


def main(arguments: argparse.Namespace) -> int:
    """Play and write; prints the return of the episodes, and how a topology names the dataset."""
    number, name = arguments.episodes, arguments.minari
    if number < 1:
        raise InputError(f"--episodes {number}: expected at least 1")
    data.check_name(name)
    saved = SavedPolicy.load(arguments.run, arguments.trust)
    if saved.only_nominal:
        say(saved.only_nominal)
    seed = fresh_seed() if arguments.seed is None else arguments.seed
    episodes: list[OwnEpisode] = []
    rng = np.random.default_rng(seed)
    act = with_noise(saved.policy, rng) if arguments.explore else without_noise(saved.policy)
    batch, env = recorded(saved.environment, episodes.append)
    with closing(batch):
        play(batch, saved.policy, seed, number, act=act)
        if not episodes:
            raise InputError(f"{saved.environment.id}: no episode ended without a failure")
        about = (
            f"{len(episodes)} episodes of policy version {saved.policy.version} of {saved.path.parent.name}"
        )
        folder = data.write(name, episodes, env, about)
    returns = np.array([sum(episode.rewards) for episode in episodes])
    steps = sum(len(episode.rewards) for episode in episodes)
    say(
        f"{folder}: {of_episodes(len(episodes))}, {steps:,} steps, mean return {with_spread(returns)} "
        f"(--seed {seed} repeats them)"
    )
    say(f'in a topology:\n[data.{name.rpartition("/")[2]}]\nsource = "minari:{name}"')
    return 0
