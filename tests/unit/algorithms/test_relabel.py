"""The relabelling of algorithms of one's own, and further rollout arrays off-policy, before and in a run."""

import textwrap
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.algorithms import registry
from spreeze_zmq.algorithms.distributions import Deterministic
from spreeze_zmq.algorithms.ppo import PPO
from spreeze_zmq.algorithms.relabelled import checked, goals_of, rehearse_relabel
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.algorithms.td3 import TD3
from spreeze_zmq.base.errors import AlgorithmError, InputError, TopologyError
from spreeze_zmq.envs.goals import GoalRewards
from spreeze_zmq.learner.at_hand import random_batch_of
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC_LEARNER, experience_of
from spreeze_zmq.replay import Episode, Relabelling, Transitions, replay_of
from tests.system.maze import Maze
from tests.system.test_algorithm_example import code_blocks
from tests.unit.learner.test_refilled import whole

MAZE = "tests.system.maze:Maze"


class Doubled(SAC):
    """Keeps the second half of each episode once more, with twice the reward."""

    critic_fields = (*SAC.critic_fields, "log_prob")

    def relabel(self, batch, episode):
        """As the class says."""
        late = batch.rows(np.arange(len(batch)) >= len(batch) // 2)
        return late._replace(reward=2 * late.reward)


class Shorter(SAC):
    """Gives rewards of another shape."""

    def relabel(self, batch, episode):
        """As the class says."""
        return batch._replace(reward=batch.reward[:, 0])


class Raising(SAC):
    """Reads what an episode has not."""

    def relabel(self, batch, episode):
        """As the class says."""
        return batch._replace(reward=episode.rewards)


class Lost(TD3):
    """A deterministic policy has no densities."""

    critic_fields = (*TD3.critic_fields, "log_prob")


class Certain(PPO):
    """Rollouts have densities, which its distribution has not."""

    def distribution(self):
        """As the class says."""
        return Deterministic(self.env, 0.1, 0.2)


def loaded(name="sac", env=MAZE, **options):
    """The plan of a run."""
    return topology.load({"run": {"env": env, "algorithm": name}, "algorithm": options})


def test_an_own_relabelling_is_called_and_asked_for():
    """Its learners get whole transitions, with the further array; the replay's batches have that too."""
    plan = loaded(f"{__name__}:Doubled")
    for role in plan.learning.learners:
        assert {"action", "reward", "final_obs"} <= set(plan.channels[experience_of(role)].fields)
    options = SAC.Options()
    batch = random_batch_of(Doubled.fields_of("critic"), plan.environment, options, 32, "cpu")
    assert batch.log_prob.tolist() == [-1.0] * 32
    whole = Episode(np.zeros((5, 2), np.float32), np.zeros((4, 1)), np.ones(4, np.float32), False)
    kept = checked(Doubled(options, plan.environment))(Transitions.of(whole, 1), whole)
    assert kept.reward.tolist() == [[2.0], [2.0]]


class Brighter(SAC):
    """Makes pixels of what none is."""

    def relabel(self, batch, episode):
        """As the class says."""
        return batch._replace(next_obs=batch.next_obs + 0.5)


def test_pixels_stay_pixels():
    """A replay would keep another number in the place of one that is none."""
    env = replace(
        loaded().environment, obs_shape=(75,), obs_parts=({"path": [], "shape": [5, 5, 3], "pixels": True},)
    )
    whole = Episode(np.zeros((5, 75), np.float32), np.zeros((4, 1)), np.ones(4, np.float32), False)
    says = r"relabel returned next_obs with 0.5 at \[0, 0\], expected a pixel of 0 to 255"
    with pytest.raises(AlgorithmError, match=says):
        checked(Brighter(SAC.Options(network="mlp"), env))(Transitions.of(whole, 1), whole)


def test_the_readmes_relabelling_keeps_the_second_half_with_the_goal_of_the_end():
    """With the rewards that the maze gives for it."""
    [code] = (block for block in code_blocks("How do I ...") if "def relabel" in block)
    names = {"np": np, "SAC": SAC}
    exec("class Mine(SAC):\n" + textwrap.indent(code, "    "), names)  # as its reader would write it
    env, maze = loaded().environment, Maze()
    maze.reset(seed=1)
    obs = np.linspace(0.0, 1.0, 5 * 9, dtype=np.float32).reshape(5, 9)
    goals = goals_of(env, GoalRewards(maze, MAZE))
    whole = Episode(obs, np.zeros((4, 3), np.float32), np.ones(4, np.float32), False, goals=goals)
    kept = checked(names["Mine"](SAC.Options(), env))(Transitions.of(whole, 1), whole)
    assert kept.reward.tolist() == [[-1.0], [0.0]]
    np.testing.assert_array_equal(goals.desired(kept.obs), goals.achieved(obs[[4, 4]]))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Shorter, "relabel returned reward of shape (5,), expected an array of shape (5, 1)"),
        (Raising, "relabel: "),
        (Lost, "ask for log_prob, which a Deterministic distribution has not"),
        (Certain, "ask for log_prob, which a Deterministic distribution has not"),
    ],
)
def test_a_bad_one_is_named_before_the_run(kind, says):
    """One line, with what it returned or the place where it raised."""
    with pytest.raises(AlgorithmError) as refused:
        loaded(f"{__name__}:{kind.__name__}")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


class ByDensity(SAC):
    """Reads what its critic-learner alone is sent."""

    critic_fields = (*SAC.critic_fields, "log_prob")

    def relabel(self, batch, episode):
        """As the class says."""
        return batch.rows(batch.more["log_prob"] < 0.0)


class ByDensityInBoth(ByDensity):
    """Here both learners are."""

    policy_fields = ByDensity.critic_fields


def test_what_an_actor_learner_does_not_get_is_named_before_the_run():
    """As it relabels too, and would find it missing when the first episode has ended."""
    with pytest.raises(AlgorithmError, match=r"in the actor-learner \(policy_fields: obs\): .*log_prob"):
        loaded(f"{__name__}:ByDensity")
    loaded(f"{__name__}:ByDensityInBoth")


@pytest.mark.parametrize("fields", [("obs",), SAC.critic_fields], ids=["observations", "transitions"])
def test_both_learners_relabel_the_same_rewards(fields):
    """Those of ``n_step`` steps, though an actor-learner keeps observations alone."""
    env, seen = loaded(env="Pendulum-v1").environment, []
    replay = replay_of(fields, env, SAC.Options(n_step=3, replay_capacity=1000), "cpu", 0)
    replay.relabel_by(Relabelling(lambda batch, episode: seen.append(batch), None, 1))
    replay.add(whole(env, 8))
    assert {batch.reward.shape for batch in seen} == {(8, 3)}


def test_images_are_not_relabelled():
    """Their replay stores each frame once."""
    env = loaded().environment
    with pytest.raises(AlgorithmError, match="a replay of images stores each frame once"):
        rehearse_relabel(Doubled(SAC.Options(), env), type(env)("Some-v0", {}, (8, 8), "uint8", "discrete"))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "    critic_fields = (*DQN.critic_fields, 'memory')",
            "asks for memory, which a replay does not keep",
        ),
        (
            "    critic_fields = (*DQN.critic_fields, 'log_prob')\n    def act(self, obs, greedy): ...",
            "asks for log_prob, which an act() of its own does not give",
        ),
        ("    policy_fields = ('obs', 'log_prob')", "asks for log_prob and no action"),
        ("    critic_fields = ('obs', 'action')", "critic_fields has action and no reward"),
        ("    def relable(self, batch, episode): ...", 'did you mean "relabel"?'),
    ],
)
def test_a_bad_declaration_is_named(body, says, tmp_path, monkeypatch):
    """Fields that no replay has, and a misspelt hook."""
    name = f"declared_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(
        f"from spreeze_zmq.algorithms.dqn import DQN\nclass Mine(DQN):\n{body}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as refused:
        registry.get(f"{name}:Mine")
    assert says in str(refused.value)


def test_a_relabelling_without_a_replay_is_named(tmp_path, monkeypatch):
    """Rounds are thrown away."""
    code = "from spreeze_zmq.algorithms.ppo import PPO\nclass Mine(PPO):\n"
    code += "    def relabel(self, batch, episode): ...\n"
    (tmp_path / "on_policy_relabel.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="never calls relabel without a replay"):
        registry.get("on_policy_relabel:Mine")


@pytest.mark.parametrize(
    ("name", "env", "says"),
    [
        (
            "sac",
            "Pendulum-v1",
            "algorithm.hindsight: goals are relabelled in a Dict with a Box achieved_goal",
        ),
        ("sac", "tests.benchmarks.sick_environments:Goal", "it has no compute_reward(achieved_goal, desired"),
        ("ppo", MAZE, "an option of discrete_sac and dqn and sac and td3 and td3_bc, not of ppo"),
        ("dqn", "CartPole-v1", "this environment's observations are a Box"),
    ],
)
def test_hindsight_where_there_are_no_goals_is_named(name, env, says):
    """What is missing, before anything starts."""
    with pytest.raises(TopologyError) as refused:
        loaded(name, env, hindsight="future")
    assert says in str(refused.value)


def test_the_part_beside_the_goals_may_have_any_name():
    """Learners find the goals where the start has found them."""
    maze = {"observation": "state"}
    parts = [
        {**part, "path": [maze.get(each, each) for each in part["path"]]}
        for part in loaded().environment.obs_parts
    ]
    env = replace(loaded().environment, obs_parts=parts)
    goals = goals_of(env, None)
    assert goals == goals_of(loaded().environment, None)
    assert goals is not None


def test_who_has_no_hindsight_asks_for_no_more():
    """The arrays of rollouts are those of before."""
    plan = loaded()
    assert plan.channels[experience_of(ACTOR_LEARNER)].fields == ("obs",)
    assert plan.channels[experience_of(CRITIC_LEARNER)].fields == SAC.critic_fields
