"""The saved best policy of a run, with its environment and score, for eval, play, export and Python."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from spreeze_zmq import envs
from spreeze_zmq.algorithms.class_policy import loader_of_modules
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import InputError
from spreeze_zmq.policy import Policy, register_class_loader
from spreeze_zmq.run.evaluation import Score, play
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.topology import make_importable


@dataclass(frozen=True)
class SavedPolicy:
    """A policy that a run has saved.

    Attributes:
        path: its file.
        policy: the policy.
        environment: the one in which it was evaluated.
        mean_return: its score.
        num_episodes: episodes of the score.
        seed: of the score's first episode.
        step_cap: time limit that the evaluation set for the environment; None if it set none.
    """

    path: Path
    policy: Policy
    environment: EnvironmentSpec
    mean_return: float
    num_episodes: int
    seed: int
    step_cap: int | None = None

    @classmethod
    def load(cls, run: Path | str, trust: Collection[str] = ()) -> SavedPolicy:
        """Load the best policy of a run's folder, or a policy file.

        In a run's folder, the folder of the run's topology becomes importable for the user's own environment
        or algorithm. A file alone may come from anybody: it may name only what ships with the package.

        Args:
            run: a run's folder, or a policy file.
            trust: modules whose code a file may run, for its environment or its class.

        Raises:
            InputError: there is no policy, it cannot be loaded, it was not saved by a run, or it names a
                module that is not trusted.
        """
        path = _policy_file(Path(run))
        own_environment = _environment_of_run(path)
        register_class_loader(loader_of_modules(trust))
        policy = Policy.load(path, trust=trust)
        about = policy.metadata
        try:
            environment = EnvironmentSpec.from_dict(json.loads(about["environment"]))
            if environment.described:
                raise InputError(
                    f"{path}: only the sampler of its run makes {environment.id}, so it cannot be played; "
                    "Policy.load gives its actions"
                )
            mean_return, num_episodes = float(about["mean_return"]), int(about["num_episodes"])
            seed, step_cap = int(about["evaluation_seed"]), int(about.get("step_cap", 0)) or None
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path} does not say where it was scored ({error}); it was not saved by a run"
            ) from error
        module, colon, _ = environment.id.rpartition(":")
        if colon and environment.id != own_environment and module not in trust:
            raise InputError(
                f"{path} names an environment of the module {module!r}, whose code would run: give --trust "
                f"{module} if you know where the file comes from"
            )
        return cls(path, policy, environment, mean_return, num_episodes, seed, step_cap)

    def play(self, num_episodes: int | None = None, seed: int | None = None) -> Score:
        """Play whole episodes, all at once.

        Args:
            num_episodes: by default as many as in its score.
            seed: episode ``i`` begins with ``seed + i``; by default a fresh one. That of its score,
                :attr:`seed`, repeats the score and confirms nothing.

        Raises:
            InputError: ``num_episodes`` is less than 1.
        """
        num = self.num_episodes if num_episodes is None else num_episodes
        if num < 1:
            raise InputError(f"episodes is {num}, at least 1 is expected")
        spec = self.environment
        first = fresh_seed() if seed is None else seed
        with closing(envs.make(spec.id, num, step_info="final", **spec.kwargs)) as batch:
            return play(batch, self.policy, first, step_cap=self.step_cap)


def fresh_seed() -> int:
    """A seed that no earlier evaluation has used, but by chance."""
    return secrets.randbits(31)


def _environment_of_run(path: Path) -> str | None:
    """The environment id of the run that a policy file belongs to; None outside a run's folder.

    The folder of that run's topology becomes importable. The plan is not parsed, as it may be of an older
    version.
    """
    for folder in (path.absolute().parent, path.absolute().parent.parent):  # RUN/*, RUN/videos/*
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            plan = json.loads(RunFolder(folder).run_file.read_text())
            make_importable(Path(plan["topology_file"]).parent)
            return str(plan["run"]["env"])
    return None


def _policy_file(path: Path) -> Path:
    """The policy file of a run's folder, or the file itself."""
    if path.is_dir():
        best = RunFolder(path).best_policy
        if not best.exists():
            raise InputError(f"{path} has no {best.name}: no policy was evaluated in that run")
        return best
    if not path.exists():
        raise InputError(f"{path}: no such run folder or policy file")
    return path
