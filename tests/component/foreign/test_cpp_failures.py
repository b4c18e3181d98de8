"""The sampler in C++ as a real process whose physics or policy fails, or whose policy knows no bounds."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from spreeze_zmq.peers import policies
from spreeze_zmq.peers.sampler_acts import publish_policy
from tests.component.conftest import DEADLINE_S

CRITIC = "experience.critic_learner"
CHEETAH = ["run.env=HalfCheetah-v5", "components.sampler.use=sampler_cpp"]
STEP_BY_STEP = [*CHEETAH, "components.sampler.rollout_steps=1"]
#: Loaded into the sampler: after 0.3 s of an episode a force makes its simulation unstable.
BLOWS_UP = """
#include <mujoco/mujoco.h>
static void push(const mjModel*, mjData* data) {
    if (data->time > 0.3) data->qfrc_passive[0] = 1e15;
}
__attribute__((constructor)) static void begin() { mjcb_passive = push; }
"""


def play(peers, built_cpp, policy):
    """A sampler in C++ with every peer in place and a policy of version 0."""
    peers.play("sampler")
    peers.command = [str(built_cpp / "sampler_cpp")]
    publish_policy(peers, 0, policy)
    return peers.start()


@pytest.fixture
def unstable(tmp_path, monkeypatch):
    """What makes simulations of a process unstable is loaded into those that start."""
    library = tmp_path / "blows_up.so"
    include = Path(mujoco.__file__).with_name("include")
    command = ["c++", "-x", "c++", "-shared", "-fPIC", f"-I{include}", "-o", library, "-"]
    subprocess.run(command, input=BLOWS_UP, text=True, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))


def arrived(peers):
    """Transitions up to the newest rollout that has come."""
    return peers.between(None, None, "rollout", CRITIC)[-1].fields["produced"]


@pytest.mark.parametrize("peers", [STEP_BY_STEP], indirect=True)
def test_a_simulation_that_mujoco_resets_ends_its_episode(built_cpp, peers, unstable):
    """What came before is the last observation, the reward the lowest, of earlier ones too; it is told."""
    play(peers, built_cpp, policies.random_policy(peers.plan.environment, "tanh_normal", 1))
    lowest = 0.0
    while not len((rollout := peers.next("rollout", CRITIC).arrays)["final_index"]):
        lowest = min(lowest, rollout["reward"].min())
    t, n = rollout["final_index"].T
    assert rollout["truncated"][t, n].all()
    assert not rollout["terminated"].any()
    np.testing.assert_array_equal(rollout["final_obs"], rollout["obs"][t, n])
    assert (rollout["reward"][t, n] == lowest).all()
    assert lowest < 0.0
    said = peers.next("failure").fields["summary"]
    assert said == "environment 0 went on although MuJoCo has reset its simulation; it begins anew"
    peers.report()
    assert not peers.rest("episodes")


@pytest.mark.parametrize("peers", [STEP_BY_STEP], indirect=True)
def test_failures_without_end_leave_room_for_reports(built_cpp, peers, unstable):
    """Those alike are few messages, twice a second, which count them all."""
    process = play(peers, built_cpp, policies.random_policy(peers.plan.environment, "tanh_normal", 1))

    def failed():
        return sum(len(m.arrays["final_index"]) for m in peers.between(None, None, "rollout", CRITIC))

    peers.until("", "many failures", lambda: failed() > 500)
    process.terminate()
    pushed = peers.next("bye").fields["pushed"]["critic_learner"]
    said = [message.fields.get("count", 1) for message in peers.between(None, None, "failure")]
    assert len(said) <= 2 * (1 + len(peers.between(None, None, "report")))
    assert peers.wait(
        DEADLINE_S, lambda: peers.between(None, None, "rollout", CRITIC)[-1].fields["produced"] >= pushed
    )
    assert sum(said) - failed() in (0, peers.plan.components["sampler"].options["envs"])  # one was not pushed


@pytest.mark.parametrize("peers", [CHEETAH], indirect=True)
def test_a_policy_without_actions_ends_it_and_the_last_message_counts_what_was_pushed(built_cpp, peers):
    """The line names the version, and the exit code is that of a run that no restart would mend."""
    spec = peers.plan.environment
    process = play(peers, built_cpp, policies.random_policy(spec, "tanh_normal", 1))
    peers.next("rollout", CRITIC)
    later = policies.random_policy(spec, "tanh_normal", 1, rich=True)
    overflows = np.float32(1e15) * np.sign(later.arrays["parameters"])
    publish_policy(peers, 1, later._replace(arrays={**later.arrays, "parameters": overflows}))
    bye = peers.next("bye").fields
    why = "policy version 1 cannot be used: its action holds NaN, an infinity or a number beyond 1e15"
    assert bye["reason"] == f"failed: {why}"
    assert process.wait(30) == 2
    assert peers.logs().splitlines()[-1] == f"sampler: {why}"
    said = bye["pushed"]["critic_learner"]
    assert peers.wait(
        DEADLINE_S, lambda: peers.between(None, None, "rollout", CRITIC)[-1].fields["produced"] >= said
    )
    assert peers.between(None, None, "rollout", CRITIC)[-1].fields["produced"] == said > 0


@pytest.mark.parametrize("peers", [STEP_BY_STEP], indirect=True)
def test_an_environment_that_is_bounded_in_part_gets_no_action_beyond_in_cpp(built_cpp, peers):
    """The bounds are those of run.json, the policy has none; an action's square is a tenth of its cost."""
    plan = json.loads(peers.folder.run_file.read_text())
    bounds = {"action_low": None, "action_high": None, "action_limits": [[None, 0.0], [0.0, 0.0]] * 3}
    plan["environment"] |= bounds
    peers.folder.run_file.write_text(json.dumps(plan))
    spec = replace(peers.plan.environment, action_low=None, action_high=None)
    message = policies.random_policy(spec, "normal", 1)
    beyond = np.float32(1000) * np.abs(message.arrays["parameters"])
    play(peers, built_cpp, message._replace(arrays={**message.arrays, "parameters": beyond}))
    for _ in range(20):
        rollout = peers.next("rollout", CRITIC).arrays
        assert np.square(rollout["action"]).sum(-1).min() > 1e5
        assert rollout["reward"].min() > -100
