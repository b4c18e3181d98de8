"""``[data.NAME]``: what a plan holds of each source, and what does not go together, at its line."""

import re

import numpy as np
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.sizing import Curves, resolved
from spreeze_zmq.plan.topology import load
from spreeze_zmq.plan.topology.data import counted
from spreeze_zmq.plan.topology.tables import Mistakes
from tests.masked import Game
from tests.unit.data.made import dataset

RUN = '[run]\nenv = "Pendulum-v1"\n'
ONE = '[data.one]\nsource = "minari:two-v0"\n'
OTHER = '[data.other]\nsource = "minari:two-v0"\n'
OFFLINE = "[components.sampler]\ncount = 0\n"


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    """Two episodes of five steps, and two with a number that is not finite."""
    folder = tmp_path_factory.mktemp("minari")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        dataset("two-v0")
        dataset("nan-v0", change=lambda episodes: episodes[0].actions.__setitem__(2, np.float32([np.nan])))
        yield folder


def planned(tmp_path, text):
    """The plan of a topology."""
    path = tmp_path / "own.toml"
    path.write_text(text)
    return load(path)


def mistakes(tmp_path, text):
    """The lines about a topology."""
    with pytest.raises(TopologyError) as found:
        planned(tmp_path, text)
    return "\n".join(str(found.value).splitlines()[1:])


def test_a_plan_holds_each_source_with_its_folder_and_transitions(root, tmp_path):
    """Also as JSON; the run is offline without samplers alone."""
    plan = planned(tmp_path, RUN + ONE + "episodes = 1\n" + OTHER + "share = 0.25\n")
    one, other = plan.data["one"], plan.data["other"]
    assert (one.path, one.transitions, one.share) == (str(root / "two-v0"), 5, None)
    assert (other.transitions, other.share, other.episodes) == (10, 0.25, None)
    assert Plan.from_json(plan.to_json()).data == plan.data
    assert not plan.offline
    assert planned(tmp_path, RUN + ONE + OFFLINE).offline


def test_data_have_places_for_their_goals_in_hindsight(tmp_path):
    """Each transition is kept once more for each goal."""
    plan, sac = planned(tmp_path, RUN + ONE), algorithms.get("sac")
    for capacity, says in ((50, ""), (49, "49 is less than the 50 transitions that fill it, 4 more of each")):
        goals = {"hindsight": "future", "hindsight_goals": 4}
        options = sac.Options(replay_capacity=capacity, batch_size=8, learning_starts=8, **goals)
        found = Mistakes()
        counted(plan.data, plan.environment, sac, options, {}, found)
        assert [one.problem.partition(" with")[0] for one in found.found] == ([says] if says else [])


def test_a_run_of_legal_actions_takes_data_that_has_their_masks(tmp_path):
    """As its learners ask samplers for them."""
    dataset("game-v0", Game(), masked=True)
    game = '[run]\nenv = "tests.masked:Game"\nalgorithm = "dqn"\n[data.played]\nsource = "minari:game-v0"\n'
    plan = planned(tmp_path, game)
    assert plan.environment.action_mask
    assert plan.data["played"].transitions == 10


def test_a_run_without_data_has_none():
    """Its plan from an earlier release neither."""
    plan = load({"run": {"env": "Pendulum-v1"}})
    assert plan.data == {}
    text = plan.to_json().replace('  "data": {},\n', "")
    assert '"data"' not in text
    assert Plan.from_json(text).data == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RUN + ONE.replace("two", "nan"), r"own.toml:4 data.one.source: episode 0: its actions hold nan at"),
        (
            '[run]\nenv = "CartPole-v1"\nalgorithm = "dqn"\n' + ONE,
            r"own.toml:5 data.one.source: episode 0: its observations have the shape \(3,\)",
        ),
        (RUN + ONE + "episodes = 3\n", r"own.toml:5 data.one.episodes: it has 2 episodes, not 3"),
        (
            '[run]\nenv = "Pendulum-v1"\nalgorithm = "ppo"\n' + ONE,
            "own.toml:4 data: PPO trains on rollouts of its own policy .*td3_bc",
        ),
        (
            RUN + ONE + "share = 0.7\n" + OTHER + "share = 0.7\n",
            r"own.toml:8 data.other.share: the shares of a batch are 0.7 \+ 0.7, more than 1",
        ),
        (RUN + ONE + "share = 1\n", "own.toml:5 data.one.share: nothing .* the transitions of the samplers"),
        (
            RUN + ONE + "share = 0.99\n[algorithm]\nbatch_size = 32\n",
            "own.toml:5 data.one.share: it leaves not one transition of a batch of 32 to the run's own",
        ),
        (
            RUN + ONE + "share = 0.5\n" + OTHER + "share = 0.005\n[algorithm]\nbatch_size = 64\n",
            "own.toml:8 data.other.share: 0.005 of a batch of 64 is not one transition .raise it",
        ),
        (
            RUN + OFFLINE + ONE + "share = 0.5\n",
            "own.toml:7 data.one.share: the shares of a batch are 0.5, and without samplers nothing",
        ),
        (
            RUN + OFFLINE + ONE + "share = 1\n" + OTHER,
            "data.one.share: nothing of a batch is left for .* the sources that fill the replay",
        ),
        (
            RUN + "stop = { env_steps = 100 }\n" + OFFLINE + ONE,
            "own.toml:3 run.stop.*: a run without samplers takes no env step .*trained_transitions",
        ),
        (
            RUN + ONE + "[algorithm]\nreplay_capacity = 256\nlearning_starts = 8\n",
            "",
        ),
        (
            RUN + ONE + "[algorithm]\nreplay_capacity = 8\nlearning_starts = 8\nbatch_size = 8\n",
            "own.toml:6 algorithm.replay_capacity: 8 is less than the 10 transitions that fill it",
        ),
        (
            RUN + OFFLINE + ONE + "[algorithm]\ntau = { from = 0.1, to = 0.01, over = { env_steps = 9 } }\n",
            'own.toml:8 algorithm.tau: goes "over" env_steps, .*let it go over trained_transitions',
        ),
        (
            RUN + ONE + "share = 0.5\n[algorithm]\nprioritized = true\n",
            "own.toml:7 algorithm.prioritized: priorities are kept of one replay",
        ),
        (
            RUN + ONE + '[placement]\ncritic_learner = "node"\n',
            "own.toml:6 placement.critic_learner: the data are on the machine where the run is started",
        ),
        (
            RUN + ONE + "[algorithm]\nmemory_size = 8\n",
            "own.toml:3 data: the algorithm asks for the memory of each step, .*leave memory_size out",
        ),
        (RUN + ONE + "shere = 0.5\n", 'own.toml:5 data.one.shere: unknown key .*did you mean "share"'),
    ],
)
def test_what_does_not_go_together_is_said_at_its_line(tmp_path, text, says):
    """One line each, and what to do; none where all is right."""
    if not says:
        assert planned(tmp_path, text).data
        return
    lines = mistakes(tmp_path, text)
    assert re.search(says, lines), lines
    assert len(lines.splitlines()) == 1, lines


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (0.997, "it leaves not one transition of a batch of 128 to the run's own replay (lower it, or"),
        (0.001, "0.001 of a batch of 128 is not one transition (raise it, or write a larger"),
        (0.5, ""),
    ],
)
def test_shares_are_checked_once_a_batch_is_measured(tmp_path, share, says):
    """Where it is "auto", nothing is known of them before."""
    plan = planned(tmp_path, RUN + ONE + f'share = {share}\n[algorithm]\nbatch_size = "auto"\n')
    curves = Curves({64: 50.0, 128: 100.0}, "flat", {}, 1.0)
    if not says:
        assert resolved(plan, curves, "by hand").learning.batch_size == 128
        return
    with pytest.raises(TopologyError) as found:
        resolved(plan, curves, "by hand")
    assert f"\n  data.one.share: {says}" in str(found.value)
