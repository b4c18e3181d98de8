"""``spreeze eval RUN``: play the best policy of a run in fresh episodes; needs only its file."""

from __future__ import annotations

import argparse
import math
import sys
import time

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.own_code import changed_files, code_of
from spreeze_zmq.base.trust import module_of
from spreeze_zmq.commands.arguments import add_seed
from spreeze_zmq.evaluation.evaluation import as_text, of_episodes, with_spread
from spreeze_zmq.evaluation.saved import SavedPolicy, fresh_seed
from spreeze_zmq.run.history import read_run
from spreeze_zmq.screen.terminal.words import episodes_of_a_best, same_episodes

#: After this time it says what it does.
LATE_S = 1.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_run_arguments(parser)
    parser.add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help="how many (default: as many as for its score, at most 1,000)",
    )
    add_seed(parser, "a fresh one, which is printed")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add RUN and ``--trust``, for commands that load a policy."""
    parser.add_argument("run", metavar="RUN", help="a run's folder, or a policy.safetensors")
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add ``--trust``."""
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="MODULE",
        help="let a file name a class or an environment of this module, which runs its code; a run's folder "
        "that you made needs none",
    )


class _Patience:
    """Says once, after some seconds, that episodes are being played: called after each step of all."""

    def __init__(self) -> None:
        self._num_steps, self._late_s = 0, time.monotonic() + LATE_S

    def __call__(self) -> None:
        self._num_steps += 1
        if time.monotonic() > self._late_s:
            self._late_s = math.inf
            say(f"plays: {self._num_steps:,} steps in {LATE_S:g} s; Ctrl-C ends it", file=sys.stderr)


def main(arguments: argparse.Namespace) -> int:
    """Print each return, their mean with its interval, and the score that the file states."""
    saved = SavedPolicy.load(arguments.run, arguments.trust)
    seed = fresh_seed() if arguments.seed is None else arguments.seed
    score = saved.play(arguments.episodes, seed, _Patience())
    for number, (value, length, cut) in enumerate(zip(score.returns, score.lengths, score.cut, strict=True)):
        say(f"episode {number}: return {as_text(value)}, {length} steps{', cut' if cut else ''}")
    say(
        f"{saved.environment.id}: mean return {with_spread(score.returns)} over "
        f"{of_episodes(len(score.returns))} (--seed {seed} repeats them)"
    )
    if score.num_failed:
        say(f"{score.num_failed} more ended with a failure of their environment and do not count")
    if seed == saved.seed:
        say("these begin as the episodes of its score did, and so confirm nothing")
    if (interval := score.interval) is not None:
        low, high = map(as_text, interval)
        say(f"its mean lies between {low} and {high} (95 % by Student's t)")
    if same := same_episodes(score.fields()):
        say(same)
    lengths = score.lengths
    if lengths.min() == lengths.max():
        say(f"episodes of {lengths.min()} steps")
    else:
        say(f"episodes of {lengths.min()} to {lengths.max()} steps, {lengths.mean():.1f} in the mean")
    for name, value in score.info.items():
        say(f"{name} at the end: {value:.4g} in the mean")
    say(f"when it was saved: {_when_saved(saved)}")
    if files := _changed_since(saved):
        say(f"this is not the environment that it was trained in: {files} changed since")
    return 0


def _changed_since(saved: SavedPolicy) -> str:
    """The files of its environment's code that are others now than when the run of its folder began."""
    try:
        run = read_run(saved.path.parent)
    except InputError:
        return ""
    here = code_of(module_of(saved.environment.id), run.plan["run"].get("env_kwargs"))
    return ", ".join(changed_files(run.plan["own_code"].get("environment"), here))


def _when_saved(saved: SavedPolicy) -> str:
    """The score that the file states, and how to repeat it."""
    is_final, was_cut = (saved.policy.metadata.get(name) == "True" for name in ("final", "timed_out"))
    score = f"{as_text(saved.mean_return)} in {episodes_of_a_best(saved.num_episodes, final=is_final)}"
    cut = ", of which time had cut some," * was_cut
    return f"{score}{cut} (policy version {saved.policy.version}; --seed {saved.seed} repeats them)"
