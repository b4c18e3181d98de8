"""The saved best policy of a run, with its environment and score, for eval, play, export and Python."""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.class_policy import let_trusted_act
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.trust import FILE, TIME_LIMIT, Grant, grant_of, make_importable, module_of
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.numbering import has_number
from spreeze_zmq.envs.seeds import seed_for
from spreeze_zmq.evaluation.arena import ENDLESS_STEPS
from spreeze_zmq.evaluation.evaluation import Score, play
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.policy import Policy
from spreeze_zmq.policy.file import MOST_ENVIRONMENT, parsed
from spreeze_zmq.run.folder import RunFolder

#: Most episodes of a score, those that are played at once where nobody says how many, and the largest count.
MOST_EPISODES, MOST_AT_ONCE, MOST_COUNT = 1_000_000, 1_000, 2**53
#: Longest episode that the file of a stranger may ask for.
MOST_STEPS = 100_000


def load_policy(run: Path | str, trust: Collection[str] = ()) -> tuple[Path, Policy, Grant]:
    """Load the best policy of a run's folder, or a policy file, as :meth:`SavedPolicy.load` does, but ask for
    no score and for no environment that can be made here.

    Returns:
        Its file, the policy, and what else its file may have executed.

    Raises:
        InputError: there is no policy, it cannot be loaded, or its class is of a module that is not trusted.
    """
    path = _policy_file(Path(run))
    grant = grant_of(path.parent, path.name) if Path(run).is_dir() else FILE
    if trust:
        make_importable(Path.cwd())
    grant.make_importable(trust)
    let_trusted_act()
    return path, Policy.load(run, trust=trust), grant


def load_with_spaces(run: Path | str, trust: Collection[str] = ()) -> tuple[Policy, EnvironmentSpec]:
    """As :func:`load_policy`, with the spec of the environment, of which nothing is made.

    Raises:
        InputError: likewise, or the policy was not saved by a run.
    """
    path, policy, _ = load_policy(run, trust)
    with _saved_by_a_run(path):
        return policy, _environment_of(policy)


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
        randomize: ranges from which each reset drew its model; empty for the nominal one.
    """

    path: Path
    policy: Policy
    environment: EnvironmentSpec
    mean_return: float
    num_episodes: int
    seed: int
    step_cap: int | None = None
    randomize: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, run: Path | str, trust: Collection[str] = (), *, described: bool = False) -> SavedPolicy:
        """Load the best policy of a run's folder, or a policy file.

        The policy in the folder of a run that this user made may run the environment and the algorithm of
        that run. A file, or any other folder, may be a stranger's: it may name only what ships with the
        package, whatever stands beside it.

        Args:
            run: a run's folder, or a policy file.
            trust: modules whose code a file may run, for its environment or its class; they may be in the
                current directory.
            described: whether it may be of an environment that no Python program makes, and cannot be played.

        Raises:
            InputError: there is no policy, it cannot be loaded, it was not saved by a run, or it names a
                module that is not trusted.
        """
        path, policy, grant = load_policy(run, trust)
        about = policy.metadata
        with _saved_by_a_run(path):
            environment = _environment_of(policy)
            if environment.described and not described:
                raise InputError(
                    f"{path}: only the sampler of its run makes {environment.id}, so it cannot be played; "
                    "Policy.load gives its actions"
                )
            mean_return = float(about["mean_return"])
            if not math.isfinite(mean_return):
                raise ValueError(f"mean_return is {mean_return}")
            num_episodes = _whole(about["num_episodes"], "num_episodes", 1, MOST_EPISODES)
            seed = _whole(about["evaluation_seed"], "evaluation_seed", 0, MOST_COUNT)
            step_cap = _whole(about.get("step_cap", "0"), "step_cap", 0, MOST_COUNT) or None
            randomize = parsed(about.get("randomize", "{}"))
            if not isinstance(randomize, dict):
                raise TypeError(f"randomize is of the type {type(randomize).__name__}")
        _check_kwargs(path, environment, of_others=bool(grant.why_not))
        if environment.max_episode_steps is None:
            environment = replace(environment, max_episode_steps=ENDLESS_STEPS)
        module = module_of(environment.id)
        if module and module not in trust and not grant.covers(environment.id, environment.kwargs):
            raise grant.refusal(path, "an environment", module)
        return cls(path, policy, environment, mean_return, num_episodes, seed, step_cap, randomize)

    @property
    def only_nominal(self) -> str:
        """What is to be said where it is shown on the nominal model alone; empty if it was scored there."""
        if not self.randomize:
            return ""
        return f"on the nominal model; its score is of models that vary: {', '.join(self.randomize)}"

    def play(
        self,
        num_episodes: int | None = None,
        seed: int | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> Score:
        """Play whole episodes, all at once. Environments with a number each are played in turn by number 0,
        which no process of a live run has.

        Args:
            num_episodes: by default as many as in its score, at most ``MOST_AT_ONCE``.
            seed: episode ``i`` begins with ``seed + i``; by default a fresh one. That of its score,
                :attr:`seed`, repeats the score and confirms nothing.
            on_step: called after every step.

        Raises:
            InputError: ``num_episodes`` is less than 1.
        """
        num = min(self.num_episodes, MOST_AT_ONCE) if num_episodes is None else num_episodes
        if num < 1:
            raise InputError(f"episodes is {num}, at least 1 is expected")
        spec = self.environment
        first = fresh_seed() if seed is None else seed
        width = 1 if has_number(spec.kwargs) else num
        with closing(envs.remade(spec, width, step_info="final", randomize=self.randomize)) as batch:
            return play(batch, self.policy, first, num, step_cap=self.step_cap, on_step=on_step)


@contextlib.contextmanager
def _saved_by_a_run(path: Path) -> Iterator[None]:
    """Inside, what a file's metadata lack raises InputError."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not say where it was scored ({error}); it was not saved by a run"
        ) from error


def _environment_of(policy: Policy) -> EnvironmentSpec:
    """The one that its metadata describe; raises what :func:`_saved_by_a_run` turns into an InputError."""
    return EnvironmentSpec.from_dict(parsed(policy.metadata["environment"], MOST_ENVIRONMENT))


def _check_kwargs(path: Path, environment: EnvironmentSpec, of_others: bool) -> None:
    """Raise InputError for a time limit in a file of others that is odd or above ``MOST_STEPS``."""
    for limit in (environment.kwargs.get(TIME_LIMIT, -1), environment.max_episode_steps or -1):
        fits = type(limit) is int and (limit == -1 or 1 <= limit <= MOST_STEPS)
        if of_others and not fits:
            expected = f"expected 1 to {MOST_STEPS:,} in a file of others"
            raise InputError(f"{path}: {TIME_LIMIT} of its environment is {limit!r:.60}, {expected}")


def _whole(text: str, name: str, least: int, most: int) -> int:
    """An integer of a file. Raises ValueError unless it is from ``least`` to ``most``."""
    number = int(text)
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, expected {least} to {most:,}")
    return number


def fresh_seed() -> int:
    """A seed that no earlier evaluation has used, but by chance."""
    return seed_for(secrets.randbits(31), MOST_EPISODES)


def own_modules(plan: Plan) -> tuple[str, ...]:
    """The modules of the user's own that the policies of a run need: of its environment and algorithm."""
    modules = [module_of(plan.run.env), module_of(plan.run.algorithm)]
    if modules[1]:
        with contextlib.suppress(InputError):
            modules.append(algorithms.get(plan.run.algorithm).__module__)  # the one named may only import it
    return tuple(dict.fromkeys(filter(None, modules)))


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
