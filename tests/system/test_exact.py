"""In lock-step a run that is resumed, once or thrice, leaves the bytes of one run of all its steps."""

import json

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.plan import topology
from spreeze_zmq.run.checkpoint import latest
from tests.system.conftest import thorough_but
from tests.system.test_algorithms import LOCKSTEP, ROADS, counted

#: Env steps at which each run ends, the last one where the whole run does: within rounds, of 512, and at
#: their ends; the first before learning begins, where there is a replay.
POINTS = (512, 1100, 1900, 2560)
#: Options that follow the limit of a run would differ between runs that end elsewhere.
STEADY = ("--set", "algorithm.learning_rate=1e-3")
#: A road and the points at which it is resumed.
ALL = ("sac", "td3", "td3_bc", "discrete_sac", "dqn", "ppo", "pqn", "hindsight", "camera")
ALL += ("recurrent", "sequences", "sac sequences", "own noise")
CHAINS = [(road, POINTS[:-1]) for road in ALL]
#: How often a run is saved that is killed on the way, and env steps that follow its checkpoint.
OFTEN, FURTHER = ("--set", "run.checkpoint_minutes=0.02"), 2048


def until(env_steps):
    """Where a run ends; the minutes are for a crowded machine."""
    return "--set", f"run.stop.env_steps={env_steps}", "--set", "run.stop.minutes=none"


def started(launch, road, *more):
    """A run of one road in lock-step."""
    topology, *settings = ROADS[road]
    return launch(*settings, *STEADY, *LOCKSTEP, *more, topology=topology)


def manifest(run):
    """The newest manifest's state."""
    folder = max((run.folder / "checkpoints").iterdir())
    return json.loads((folder / "MANIFEST.json").read_text())["state"]


def test_every_shipped_algorithm_has_a_road():
    """Which both of the tests below take."""
    found = {topology.load(name, settings[1::2]).run.algorithm for name, *settings in map(ROADS.get, ALL)}
    assert {*algorithms.names()} <= found


@pytest.mark.long("three runs, one after the other")
@pytest.mark.parametrize(("road", "points"), thorough_but(of=CHAINS))
def test_a_resumed_run_in_lockstep_leaves_the_bytes_of_a_whole_one(launch, road, points):
    """Its checkpoint, with the replays and the samplers' states, its losses from the first update on, and the
    counts of its manifest; nothing says that it is not exact.
    """
    whole = started(launch, road, *until(POINTS[-1]))
    run = started(launch, road, *until(points[0]))
    assert run.end(100) == 0, run.said()
    for end in (*points[1:], POINTS[-1]):
        run = started(launch, road, *until(end), "--resume", str(run.folder))
        assert run.end(100) == 0, run.said()
        assert "not exactly" not in run.output.read_text()
    assert whole.end(100) == 0, whole.said()
    assert counted(run) == counted(whole)
    assert manifest(run)["counts"] == manifest(whole)["counts"]
    assert manifest(run)["exact"] is True


@pytest.mark.long("three runs, one after the other")
@pytest.mark.parametrize("road", thorough_but("sac", of=ALL))
def test_a_killed_run_goes_on_exactly_from_its_last_checkpoint(launch, road):
    """A run in lock-step that is killed on the way leaves, once resumed, the bytes of one that was neither
    killed nor often saved.
    """
    killed = started(launch, road, *OFTEN, *until("none"))

    def is_exact(saved):
        state = {} if saved is None else saved.state
        return state.get("exact") and state["counts"]["trained_transitions"] > 0

    checkpoints = killed.folder / "checkpoints"
    killed.until(lambda: is_exact(latest(checkpoints)), "a checkpoint at one count, after some updates")
    killed.clear()
    saved = latest(checkpoints)  # another one may have come meanwhile
    assert is_exact(saved), killed.said()
    end = until(saved.state["counts"]["env_steps"] + FURTHER)
    whole = started(launch, road, *end)
    run = started(launch, road, *end, "--resume", str(killed.folder))
    assert run.end(100) == 0, run.said()
    assert "not exactly" not in run.output.read_text()
    assert whole.end(100) == 0, whole.said()
    assert counted(run) == counted(whole)
    assert manifest(run)["counts"] == manifest(whole)["counts"]
