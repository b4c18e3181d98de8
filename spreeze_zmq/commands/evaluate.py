"""``spreeze eval RUN``: play the best policy of a run again, from its file alone."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from spreeze_zmq import envs
from spreeze_zmq.algorithms.class_policy import loader_of_modules
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import InputError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.policy import Policy, register_class_loader
from spreeze_zmq.run.evaluation import play
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.topology import make_importable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("run", metavar="RUN", help="a run's folder, or a policy.safetensors")
    parser.add_argument("--episodes", type=int, help="how many (default: as many as when it was scored)")
    parser.add_argument("--seed", type=int, help="of the starts (default: those that it was scored on)")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="MODULE",
        help="load a policy that names a class of this module, which runs its code",
    )


def main(arguments: argparse.Namespace) -> int:
    """Print each return, their mean, and the score that the file claims."""
    path = policy_file(Path(arguments.run))
    if (run_file := RunFolder(path.parent).run_file).exists():
        make_importable(Path(Plan.read(run_file).topology_file).parent)
    register_class_loader(loader_of_modules(arguments.trust))
    policy = Policy.load(path, trust=arguments.trust)
    try:
        spec = EnvironmentSpec.from_dict(json.loads(policy.metadata["environment"]))
        claimed, seed = float(policy.metadata["mean_return"]), int(policy.metadata["evaluation_seed"])
        num_episodes = int(policy.metadata["num_episodes"])
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{path} does not say where it was scored ({error}); it was not saved by a run"
        ) from error
    if arguments.episodes is not None and arguments.episodes < 1:
        raise InputError(f"--episodes {arguments.episodes}: at least 1 is expected")
    num_episodes = arguments.episodes or num_episodes
    seed = seed if arguments.seed is None else arguments.seed
    score = play(envs.make(spec.id, num_episodes, **spec.kwargs), policy, seed)
    assert score is not None
    for number, (value, length) in enumerate(zip(score.returns, score.lengths, strict=True)):
        print(f"episode {number}: return {value:.2f}, {length} steps")
    print(
        f"{spec.id}: mean return {score.mean_return:.2f} +- {score.returns.std():.2f} "
        f"over {num_episodes} episodes"
    )
    print(f"when it was saved: {claimed:.2f} (policy version {policy.version})")
    return 0


def policy_file(path: Path) -> Path:
    """The policy of a run's folder, or the file itself.

    Raises:
        InputError: there is none.
    """
    if path.is_dir():
        best = RunFolder(path).best_policy
        if not best.exists():
            raise InputError(f"{path} has no {best.name}: no policy was evaluated in that run")
        return best
    if not path.exists():
        raise InputError(f"{path}: no such run folder or policy file")
    return path
