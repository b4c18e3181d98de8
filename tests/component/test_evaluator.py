"""The evaluator as a real process; the test plays the learner and the broker."""

import json
import math
import time

import gymnasium
import numpy as np
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.policy import Policy

HERE = "tests.component.test_evaluator"
OWN = ["components.evaluator.episodes=3", "components.evaluator.confirm_episodes=6"]
#: Evaluations in quick succession.
OFTEN = ["components.evaluator.cost_share=1.0", *OWN]


class Point(gymnasium.Env):
    """Each step's reward is 1 or, with ``luck``, drawn from the seed; its info has values of all kinds."""

    observation_space = gymnasium.spaces.Box(-1e9, 1e9, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, step_s: float = 0.0, luck: bool = False):
        self.step_s, self.luck, self.worth = step_s, luck, 1.0

    def reset(self, *, seed=None, options=None):
        """Begin at the middle."""
        super().reset(seed=seed)
        self.steps = 0
        self.worth = self.np_random.uniform(0.0, 2.0) if self.luck else 1.0
        return np.zeros(1), {}

    def step(self, action):
        """Wait a while, as a machine does."""
        time.sleep(self.step_s)
        self.steps += 1
        info = {"is_success": self.steps % 2 == 1, "steps": self.steps, "words": "far"}
        return np.full(1, float(self.steps)), self.worth, False, False, info


class Aim(gymnasium.Env):
    """Five steps, each worth a hundred times the action, and luck that is drawn from the seed."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Draw the episode's luck."""
        super().reset(seed=seed)
        self.steps, self.luck = 0, self.np_random.uniform(-0.5, 0.5)
        return np.ones(1, np.float32), {}

    def step(self, action):
        """The observation never changes, so that a policy takes the same action at each step."""
        self.steps += 1
        return np.ones(1, np.float32), 100 * float(action[0]) + self.luck, self.steps == 5, False, {}


ENDLESS = [f"run.env={HERE}:Point", "run.stop.return=0"]
AIM = [*OFTEN, f"run.env={HERE}:Aim", "run.seed=3"]
SLOW = [*ENDLESS, "run.env_kwargs.step_s=0.1", "components.evaluator.stop_grace_s=3"]


def publish(peers, version, seed):
    """Publish a policy of the run's algorithm, initialised from ``seed``."""
    sac = algorithms.get("sac")
    options = sac.Options(hidden_sizes=(16,))
    half = algorithms.make("policy", sac, options, peers.plan.environment, "cpu", seed)
    fields = {"version": version, "critic_updates": version, "actor_updates": version}
    fields |= {"description": half.description(), "extras": {"env_steps": 100 * version}}
    peers.publish("policy", "policy", half.policy_arrays(), **fields)


def begin(peers):
    """Start the evaluator, with this test's ends of its channels open."""
    if not peers.ends:
        peers.play("evaluator")
    return peers.start()


def evaluation(peers):
    """The fields of the next evaluation."""
    return peers.next("evaluation").fields


def end(peers, process):
    """Stop the evaluator; returns the evaluations that it still makes."""
    before = peers.read["report"]
    peers.publish("control", "stop", roles=["evaluator"], reason="enough")
    assert peers.next("bye").fields["reason"] == "enough"
    assert process.wait(30) == 0
    made = [heard.message for heard in peers.heard[before:]]
    return [message.fields for message in made if message.kind == "evaluation"]


def kept(peers):
    """The policy in the run's file."""
    return Policy.load(peers.folder.best_policy)


@pytest.mark.parametrize(
    ("peers", "goal"),
    [
        ([*AIM, "run.stop={ minutes = 1 }"], None),
        ([*AIM, "run.stop.return=5"], 5.0),
        ([*AIM, "run.stop.return=1e9"], 1e9),
    ],
    indirect=["peers"],
)
def test_a_challenger_replaces_the_best_policy_only_in_a_race_of_fresh_episodes(peers, goal):
    """Each new version gets one look, and the first one is kept. A version that beats the best one, with a
    goal by a tenth of what that lacks or of what looks have covered, races it: both play the seeds with which
    the best one goes on. All its episodes count for it, so its score falls by its own further ones alone,
    which are no new best. At the end fresh ones that chose nothing are the score of the policy that is kept.
    """
    process, looked, spared, outcomes, version, lowest = begin(peers), [], 0, set(), 0, math.inf
    # with a goal, later challengers would confirm it without a race
    wanted = {True, False} if goal is None else {True}
    while not (wanted <= outcomes and (spared or goal is None)):
        version += 1
        publish(peers, version, seed=version)
        look = evaluation(peers)
        looked.append(look["seed"])
        assert (look["version"], look["env_steps"], look["num_episodes"]) == (version, 100 * version, 3)
        assert (look["mean_length"], look["num_truncated"], look["timed_out"]) == (5, 0, False)
        assert look["min"] <= look["mean_return"] <= look["max"]
        assert look["interval_low"] < look["mean_return"] < look["interval_high"]
        assert (look["confirmed"], look["best"]) == (False, version == 1)
        lowest = min(lowest, look["mean_return"])
        if version == 1:
            best = look
            continue
        covered = best["mean_return"] - lowest
        lacks = 0.0 if goal is None else 0.1 * max(0.0, min(goal - best["mean_return"], covered))
        if look["mean_return"] <= best["mean_return"] + lacks:
            spared += look["mean_return"] > best["mean_return"]
            continue
        again, fresh = evaluation(peers), evaluation(peers)
        assert (again["version"], again["seed"], again["best"]) == (best["version"], best["seed"], True)
        assert again["num_episodes"] == best["num_episodes"] + again["rescored"]
        assert (fresh["version"], fresh["seed"]) == (version, best["seed"] + best["num_episodes"])
        assert fresh["num_episodes"] == again["rescored"]
        assert not fresh["best"] or fresh["mean_return"] > again["mean_return"]
        best = fresh if fresh["best"] else again
        outcomes.add(fresh["best"])
        about = kept(peers).metadata
        assert (kept(peers).version, float(about["mean_return"])) == (best["version"], best["mean_return"])
        assert len(json.loads(about["returns"])) == best["num_episodes"]
    last = end(peers, process)[-1]
    assert (last["num_episodes"], last["confirmed"], last["best"], last["final"]) == (6, True, True, True)
    assert kept(peers).version == last["version"]
    assert float(kept(peers).metadata["mean_return"]) == last["mean_return"]
    assert kept(peers).metadata["evaluation_seed"] == str(last["seed"])
    assert len({*looked, best["seed"], last["seed"]}) >= len(looked) + 1


@pytest.mark.parametrize("peers", [[*AIM, "run.stop={ minutes = 1 }"]], indirect=True)
@pytest.mark.parametrize("better", ["average", "parameters"])
def test_the_average_or_the_newest_weights_are_looked_at(peers, better):
    """Whichever are better by a look at both, of which one is reported; the file holds what was played."""
    process, environment, sac = begin(peers), peers.plan.environment, algorithms.get("sac")
    half = algorithms.make("policy", sac, sac.Options(hidden_sizes=(16,)), environment, "cpu", 1)
    fields = {"critic_updates": 1, "actor_updates": 1, "description": half.description(), "extras": {}}
    weights = half.policy_arrays()["parameters"]
    some = [{**half.policy_arrays(), "parameters": each} for each in (weights, -weights)]
    low, high = sorted(
        some, key=lambda arrays: Policy({"version": 1, **fields}, arrays)(np.ones(1, np.float32))[0]
    )
    best, other = high["parameters"], low["parameters"]
    arrays = {**high, "average": other, "parameters": other, better: best}
    looks = []
    for version in range(1, 5):
        peers.publish("policy", "policy", arrays, version=version, **fields)
        while not looks or looks[-1]["version"] < version:
            if not (about := evaluation(peers))["confirmed"]:
                looks.append(about)
    averaged = [look.get("averaged", False) for look in looks]
    assert averaged == ([True] * 4 if better == "average" else [True, False, False, False])
    end(peers, process)
    assert np.array_equal(kept(peers).arrays["parameters"], best)
    assert kept(peers).averaged == (better == "average")


@pytest.mark.parametrize("peers", [[*OWN, "components.evaluator.cost_share=0.0001"]], indirect=True)
def test_the_last_policy_is_played_though_no_look_is_paid_for(peers):
    """The first look spends the budget; then a second policy comes, and then the end."""
    process = begin(peers)
    publish(peers, 1, seed=1)
    first = evaluation(peers)
    assert (first["version"], first["best"]) == (1, True)
    publish(peers, 2, seed=2)
    for _ in range(2):  # it is there before the stop, on another channel
        peers.later_report()
    look, again, last, final = end(peers, process)
    assert (look["version"], look["confirmed"], look["num_episodes"], look["best"]) == (2, False, 3, False)
    assert (again["version"], again["rescored"]) == (1, last["num_episodes"])
    assert (last["version"], last["confirmed"], last["seed"]) == (2, True, look["seed"])
    chosen = 2 if last["best"] else 1
    assert (final["final"], final["version"], kept(peers).version) == (True, chosen, chosen)


@pytest.mark.parametrize("peers", [[*OFTEN, "run.stop.return=-5000"]], indirect=True)
def test_a_return_is_confirmed_by_fresh_episodes_of_the_policy_that_is_kept(peers):
    """A look reaches the goal: six fresh episodes follow at once, and the file holds their mean."""
    process = begin(peers)
    publish(peers, 1, seed=1)
    look, fresh = evaluation(peers), evaluation(peers)
    assert (look["num_episodes"], fresh["num_episodes"]) == (3, 6)
    assert fresh["confirmed"]
    assert fresh["best"]
    assert float(kept(peers).metadata["mean_return"]) == fresh["mean_return"] >= -5000
    (final,) = end(peers, process)
    assert (final["final"], final["num_episodes"], final["version"]) == (True, 6, 1)
    assert final["seed"] not in range(fresh["seed"] - 6, fresh["seed"] + 6)


@pytest.mark.parametrize(
    "peers", [[*OWN, "components.evaluator.cost_share=0.0001", "run.stop.return=-5000"]], indirect=True
)
def test_at_a_confirmed_return_no_other_policy_is_played(peers):
    """A later policy, for which the budget has no look, is not; the one that is kept gets its final score."""
    process = begin(peers)
    publish(peers, 1, seed=1)
    assert [evaluation(peers)["num_episodes"] for _ in range(2)] == [3, 6]
    publish(peers, 2, seed=2)
    assert [(one["version"], one["final"]) for one in end(peers, process)] == [(1, True)]
    assert kept(peers).version == 1


@pytest.mark.parametrize("peers", [[*OFTEN, *ENDLESS]], indirect=True)
def test_endless_episodes_are_cut_and_their_policy_is_saved(peers):
    """After 1,000 steps. The file names the limit, and the report has the info of the last step."""
    process = begin(peers)
    publish(peers, 1, seed=1)
    look, fresh = evaluation(peers), evaluation(peers)
    for one in (look, fresh):
        assert (one["mean_return"], one["max_length"]) == (1000, 1000)
        assert (one["num_truncated"], one["timed_out"]) == (one["num_episodes"], False)
        assert one["info"] == {"is_success": 0.0, "steps": 1000.0}
    about = json.loads(kept(peers).metadata["environment"])
    assert (about["max_episode_steps"], about["kwargs"]) == (1000, {})
    end(peers, process)


UNDER_A_SECOND = ["run.env_kwargs.step_s=0.08", "components.evaluator.episode_steps=10"]
BOUNDED = ["components.evaluator.max_s=4.6", "components.evaluator.workers=0"]


@pytest.mark.long("looks of 2.4 and 4.8 seconds, since a shorter one fits into any time")
@pytest.mark.parametrize("peers", [[*OFTEN, *ENDLESS, *UNDER_A_SECOND, *BOUNDED]], indirect=True)
def test_fresh_episodes_have_as_much_time_each_as_those_of_a_look(peers):
    """A look takes 2.4 of at most 4.6 seconds; the 4.8 seconds of twice as many are no reason to cut them."""
    process = begin(peers)
    publish(peers, 1, seed=1)
    look, fresh = evaluation(peers), evaluation(peers)
    assert (look["num_episodes"], look["timed_out"], look["wall_s"] > 2.4) == (3, False, True)
    assert (fresh["num_episodes"], fresh["timed_out"], fresh["wall_s"] > 4.8) == (6, False, True)
    end(peers, process)


@pytest.mark.parametrize("peers", [[*OFTEN, *SLOW]], indirect=True)
def test_a_slow_environment_is_played_in_workers_and_its_policy_is_saved_in_time(peers):
    """An episode takes 100 seconds: reports continue, and at the end the evaluator leaves within its grace
    time with a policy saved, although its episodes were cut.
    """
    process = begin(peers)
    publish(peers, 1, seed=1)
    peers.next("hello")
    peers.until("", "its workers", lambda: "plays in 3 workers" in peers.logs())
    for _ in range(4):
        peers.later_report()
    assert not peers.between("begun", None, "evaluation")
    evaluations = end(peers, process)
    assert evaluations[0]["timed_out"]
    assert evaluations[0]["num_truncated"] == 3
    assert kept(peers).metadata["timed_out"] == "True"
    assert kept(peers).version == 1


THREE_S = ["run.env_kwargs.step_s=0.1", "components.evaluator.episode_steps=10", "run.stop={ minutes = 1 }"]
THREE_S += ["components.evaluator.workers=0", "components.evaluator.cost_share=0.0001"]


@pytest.mark.parametrize(
    "peers", [[*OWN, f"run.env={HERE}:Point", *THREE_S, "components.evaluator.stop_grace_s=3"]], indirect=True
)
def test_a_last_policy_for_whose_look_the_grace_is_too_short_is_no_look_and_that_is_told(peers):
    """A look takes three seconds. The best policy keeps its score, as its fresh ones have no time either."""
    process = begin(peers)
    publish(peers, 1, seed=1)
    assert not evaluation(peers)["timed_out"]
    publish(peers, 2, seed=2)
    for _ in range(2):
        peers.later_report()
    assert end(peers, process) == []
    (note,) = peers.between("begun", None, "request")
    assert (note.fields["who"], note.fields["what"]) == ("evaluator-0", "note")
    assert "the last policy, version 2, was not compared with the best one" in note.fields["text"]
    assert kept(peers).metadata["num_episodes"] == "3"


LUCK = [*OFTEN, *ENDLESS, "run.env_kwargs.luck=True", "components.evaluator.episode_steps=5"]
LUCK += ["run.stop={ minutes = 1 }"]


@pytest.mark.parametrize("peers", [LUCK], indirect=True)
def test_equal_policies_do_not_replace_each_other(peers):
    """Returns are drawn from the seed alone: lucky looks lead to races, in which both play the same starts,
    and nobody is ahead. The first policy stays, and its score comes nearer to the truth.
    """
    process, rescored = begin(peers), []
    for version in range(1, 12):
        publish(peers, version, seed=version)
        look = evaluation(peers)
        while look["confirmed"]:  # a race of the version before
            assert look["best"] == (look["version"] == 1)
            rescored += [look["num_episodes"]] if look["best"] else []
            look = evaluation(peers)
        assert look["version"] == version
    assert rescored
    assert rescored == sorted(set(rescored))
    assert kept(peers).version == 1
    end(peers, process)


@pytest.mark.parametrize("peers", [LUCK], indirect=True)
def test_an_evaluator_that_is_started_again_takes_up_the_best_policy_and_its_episodes(peers):
    """From the run's file, also one that does not hold their returns: those are played again."""
    process = begin(peers)
    publish(peers, 1, seed=1)
    first = evaluation(peers)
    process.kill()
    process.wait()
    best = kept(peers)
    assert len(json.loads(best.metadata["returns"])) == 3
    older_metadata = {key: text for key, text in best.metadata.items() if key not in ("returns", "lengths")}
    for metadata in (best.metadata, older_metadata):  # a race of the life before may have scored it anew
        best.save(peers.folder.best_policy, metadata)
        process = begin(peers)
        peers.next("hello")
        publish(peers, 2, seed=2)
        taken_up = evaluation(peers)
        assert (taken_up["version"], taken_up["rescored"], taken_up["best"]) == (1, 0, True)
        assert taken_up["mean_return"] == first["mean_return"]
        process.kill()
        process.wait()
