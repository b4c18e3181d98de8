"""Scenes, and frames of them as text, for the tests of the terminal."""

import io

from rich.console import Console

from spreeze_zmq.screen.terminal.chart import Returns
from spreeze_zmq.screen.terminal.drawing import frame
from spreeze_zmq.screen.terminal.panels import Scene
from spreeze_zmq.screen.terminal.words import RUNNING, stage_of
from tests.unit.screen.terminal.recorded import Recorded, evaluate, large, starting

STARTING, LARGE = starting(), large()
FACTS = {
    "run": "HalfCheetah-v5  sac  seed 1",
    "run folder": "runs/halfcheetah-20260102-030405",
    "page": "http://127.0.0.1:40123/?token=abcdef",
    "curves": "tensorboard --logdir runs/halfcheetah-20260102-030405",
}
#: What the launcher knows of the processes of ``STARTING``.
STAGES = {
    "critic_learner-0": "importing",
    "actor_learner-0": stage_of(STARTING["processes"]["actor_learner-0"]),
    "broker-0": RUNNING,
    "evaluator-0": "setting up",
    "sampler-0": "importing",
    "sampler-1": "importing",
}


class FakeClock:
    """Time that the test moves."""

    now_s = 0.0

    def __call__(self):
        """The time now."""
        return self.now_s


def scene(status, stages=None):
    """The scene of a status, with a curve of 20 evaluations if it has any."""
    returns = Returns()
    if status and status["evaluation"]["last"]:
        run = Recorded("halfcheetah")
        for number in range(20):
            evaluate(run.record, 1800.0 * (number + 1), 55_000_000 * (number + 1), 331.2 * number, 88.2)
            returns.take(run.status("training", 1800.0 * (number + 1)))
    return Scene(FACTS, status, stages or {}, dict.fromkeys(stages or {}, 2.0), returns)


def lines(drawn, width=80):
    """The lines of a frame on a terminal, without colours."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(drawn, end="")
    return [line.rstrip() for line in out.getvalue().splitlines()]


def shown(status, width=80, height=40, stages=None):
    """The frame of a status as one text."""
    return "\n".join(lines(frame(scene(status, stages), width, height), width))


def terminal(width=80, height=24, **environment):
    """A console that takes itself for a terminal, and its output."""
    out = io.StringIO()
    environment = {"TERM": "xterm-256color", **environment}
    console = Console(file=out, width=width, height=height, force_terminal=True, _environ=environment)
    return console, out
