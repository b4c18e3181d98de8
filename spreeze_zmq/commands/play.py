"""``spreeze play RUN``: show the best policy of a run in a window, or record a video."""

from __future__ import annotations

import argparse

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.arguments import add_seed
from spreeze_zmq.commands.evaluate import add_run_arguments
from spreeze_zmq.evaluation.saved import SavedPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_run_arguments(parser)
    parser.add_argument("--video", metavar="FILE", help="write an .mp4 file; needs no display")
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="how many (default: 1)")
    add_seed(parser, "that of its score")
    parser.add_argument(
        "--speed", type=float, default=1.0, metavar="X", help="times the world's (default: 1)"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="length at which a video ends (default: none)"
    )


def main(arguments: argparse.Namespace) -> int:
    """Show or record, and print each return."""
    if arguments.seconds is not None and arguments.video is None:
        raise InputError("--seconds is the length of a video: write --video FILE, or leave it out")
    for name, valid, expected in (
        ("episodes", arguments.episodes >= 1, "at least 1"),
        ("speed", 0.0 < arguments.speed <= 100.0, "more than 0 and at most 100"),
        ("seconds", arguments.seconds is None or arguments.seconds > 0.0, "more than 0"),
    ):
        if not valid:
            raise InputError(f"--{name} {getattr(arguments, name)}: expected {expected}")
    from spreeze_zmq.evaluation import video

    saved = SavedPolicy.load(arguments.run, arguments.trust)
    seed = saved.seed if arguments.seed is None else arguments.seed
    if saved.only_nominal:
        say(saved.only_nominal)
    how = {"episodes": arguments.episodes, "seed": seed, "speed": arguments.speed}
    if arguments.video is None:
        for number, episode in enumerate(video.show(saved.policy, saved.environment, **how)):
            say(f"episode {number}: {episode.said()}", flush=True)
        return 0
    made = video.record(saved.policy, saved.environment, arguments.video, max_s=arguments.seconds, **how)
    for number, episode in enumerate(made.episodes):
        say(f"episode {number}: {episode.said()}")
    say(
        f"{made.path}: {made.size[0]}x{made.size[1]}, {made.num_frames} pictures, {made.fps:g} a second, "
        f"{made.num_frames / made.fps:.1f} s"
    )
    return 0
