"""What a learner does whose numbers are not finite any more: it publishes and saves none of them."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from spreeze_zmq.base import kept_memory
from spreeze_zmq.base.errors import Diverged
from spreeze_zmq.component import Component
from spreeze_zmq.learner import Learner
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.learner.going_on import GOES_ON
from spreeze_zmq.learner.vault import FORGOTTEN_AFTER_S, Vault
from spreeze_zmq.replay import Relabelling, RoundStore
from spreeze_zmq.run.checkpoint import Part, complete, write_part
from spreeze_zmq.wire import decode
from spreeze_zmq.wire.channels import terminate

SMALL = ["algorithm.hidden_sizes=[8]", "balance.mode=free"]


@pytest.fixture(params=["critic_learner", "actor_learner"])
def learner(request, peers):
    """SAC's, in this process, with nobody around it."""
    made = Learner(Component(request.param, peers.plan, 0))
    yield made
    for channel in made.component._channels.values():
        channel.close()


@pytest.mark.parametrize("peers", [SMALL], indirect=True)
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 3e38])
def test_weights_that_are_not_finite_are_not_published(learner, odd):
    """Nor is the next attempt; after going back the good ones are, and updates count on."""
    good = learner.state()
    learner.half.num_updates = 70
    learner.half.weights[2] = odd
    for _ in range(2):
        with pytest.raises(Diverged, match=r"weights: not_finite: \w+\.parameters holds \S+ at \[2\]"):
            learner.publish()
    assert learner.component._channels  # it lives
    learner.go_back(good)
    assert torch.isfinite(learner.half.weights).all()
    assert learner.half.num_updates == 70
    learner.publish()


@pytest.mark.parametrize("peers", [SMALL], indirect=True)
def test_the_average_of_a_policy_goes_back_with_its_weights(learner):
    """And is part of what is saved; critics have none."""
    for updates in (0, 100, 105):
        learner.half.num_updates = updates
        learner.half.weights[:] = updates
        learner.publish()
    good = learner.state()
    assert ("average" in good) == learner.outlet.of_policy
    if learner.outlet.of_policy:
        assert 101 < good["average"]["mean"].mean() < 104
        learner.half.num_updates = 200
        learner.half.weights[:] = float("nan")
        with pytest.raises(Diverged):
            learner.publish()
        learner.go_back(good)
        assert torch.equal(learner.outlet.average.get_state()["mean"], good["average"]["mean"])
        learner.publish()
        last = decode(learner.outlet._publisher.latest[("policy",)][1])
        assert last.arrays["average"].shape == last.arrays["parameters"].shape
        assert 103 < last.arrays["average"].mean() < 105


@pytest.mark.parametrize("peers", [SMALL], indirect=True)
def test_a_checkpoint_never_holds_what_is_not_finite(learner, peers):
    """It is written once the learner has gone back to the last one, three times at most; then again,
    once an hour has passed and a later one been written.
    """
    now_s, parts = [0.0], (learner.state, learner.experience.replay, lambda: True)
    vault = Vault(learner.component, *parts, clock=lambda: now_s[0])
    role, checkpoints = learner.component.role, peers.folder.checkpoints
    vault._on_request({"folder": "first"})
    vault.serve()
    file = checkpoints / "first" / f"{role}.pt"
    part = Part(file.name, file.stat().st_size, _crc32(file))
    complete(file.parent, [part], {})
    saved = learner.half.weights.clone()
    for number in range(3):
        learner.half.weights.fill_(float("nan"))
        vault._on_request({"folder": f"later{number}"})
        with pytest.raises(Diverged, match=r"checkpoint: state\.half") as caught:
            vault.serve()
        assert not (checkpoints / f"later{number}").exists()
        learner.go_back(vault.last_good(caught.value, number))
        assert torch.equal(learner.half.weights, saved)
        vault.serve()
        assert (checkpoints / f"later{number}" / f"{role}.pt").exists()
    with pytest.raises(Diverged):
        vault.last_good(caught.value, 4)
    now_s[0] += FORGOTTEN_AFTER_S
    with pytest.raises(Diverged):  # it got no further than last time
        vault.last_good(caught.value, 4)
    later = checkpoints / "later2"
    complete(later, [Part(file.name, (later / file.name).stat().st_size, _crc32(later / file.name))], {})
    for number in range(4):
        with pytest.raises(Diverged) if number == 3 else contextlib.nullcontext():
            vault.last_good(caught.value, number)


@pytest.mark.parametrize("peers", [[*SMALL, "algorithm.prioritized=true"]], indirect=True)
def test_the_errors_of_weights_that_are_gone_are_forgotten(learner):
    """Else every batch would be of the transitions that were drawn when the learner diverged."""
    good, replay = learner.state(), learner.experience.replay
    replay.add(random_rollout(learner.component.environment))
    if replay.prioritized:
        replay.sample(64)
        replay.prioritize(torch.full((64,), float("nan")))
    learner.go_back(good)
    assert not replay.prioritized or replay.tree.total == len(replay)


@pytest.mark.parametrize("peers", [[*SMALL, "algorithm.learning_starts=64"]], indirect=True)
def test_without_its_replay_a_learner_waits_for_a_tenth_of_it(learner):
    """Both: a policy that follows its critics on the first rollout alone is spoilt as they are. The updates
    that its critics have made meanwhile are not made up for.
    """
    experience, state = learner.experience, learner.state()
    learner.restore({**state, "counters": {**state["counters"], "env_steps": 5000}})
    learner.others.num_taken, made = 1, random_rollout(learner.component.environment)
    if learner.outlet.of_policy:
        experience.gate.meet(10**6)
        experience.gate.hear(10**6 + 5000)
    for missing in (500, 244):
        assert not experience.ready
        assert experience.lacks() == f"{missing} more transitions, too few for its trained networks"
        experience.add(made)
    assert experience.lacks() == ""
    if learner.outlet.of_policy:
        assert not experience.ready
        experience.gate.hear(10**6 + 5007)
        assert _updates(experience) == 7 + experience.gate.slack
    else:
        assert experience.ready


@pytest.mark.parametrize("peers", [[*SMALL, "algorithm.learning_starts=64"]], indirect=True)
@pytest.mark.parametrize("role", ["critic_learner", "actor_learner"])
def test_a_crash_in_that_wait_does_not_end_it(peers, role, monkeypatch):
    """What has come meanwhile outlives the process, and is still too little to train on."""
    descriptor = kept_memory.create("test")
    monkeypatch.setenv(kept_memory.VARIABLE, str(descriptor))

    def life():
        made = Learner(Component(role, peers.plan, 0))
        state = made.state()
        made.restore({**state, "counters": {**state["counters"], "env_steps": 5000}})
        lacks = made.experience.lacks()
        made.experience.add(random_rollout(peers.plan.environment))
        for channel in made.component._channels.values():
            channel.close()
        made.component._name_lock.release()
        terminate()
        return lacks

    for missing in (500, 218):  # a tenth of what was lost
        with ThreadPoolExecutor(1) as process:
            lacks = process.submit(life).result()
        assert lacks == f"{missing} more transitions, too few for its trained networks"
    os.close(descriptor)


@pytest.mark.parametrize("peers", [[*SMALL, "algorithm.learning_starts=64"]], indirect=True)
def test_a_crash_after_that_wait_begins_no_other(learner):
    """What came in it was not lost with the rest."""
    state = learner.state()
    learner.experience.add(random_rollout(learner.component.environment))
    learner.restore({**state, "counters": {**state["counters"], "env_steps": 2600}})
    assert not learner.experience.refill


MAZE = [
    *("run.env=tests.system.maze:Maze", "algorithm.hindsight_goals=9"),
    *("algorithm.replay_capacity=20000", "algorithm.learning_starts=64"),
]
IN_HINDSIGHT = ["algorithm.hindsight=future", "run.algorithm=tests.unit.algorithms.test_relabel:Doubled"]


@pytest.mark.parametrize("peers", [[*SMALL, *MAZE, how] for how in IN_HINDSIGHT], indirect=True)
def test_without_its_replay_a_learner_waits_for_none_of_what_it_had_in_hindsight(learner):
    """Nine of ten transitions were kept in hindsight, or by a relabelling of one's own: 200 that come again
    are a tenth of the others.
    """
    state = learner.state()
    learner.restore({**state, "counters": {**state["counters"], "env_steps": 10**6}})
    assert learner.experience.refill == 200


def _updates(follower):
    """How many updates it makes before it waits."""
    before = follower.gate.actor_updates
    while follower.ready:
        follower.trained(None)
    return follower.gate.actor_updates - before


@pytest.mark.parametrize("peers", [[*SMALL, "algorithm.learning_starts=64"]], indirect=True)
@pytest.mark.parametrize("learner", ["critic_learner"], indirect=True)
def test_with_its_replay_a_learner_makes_up_for_nothing(learner):
    """All but ``learning_starts`` counts as trained on: the next update waits for samples, which are not
    stopped, and the counts of the whole run go on.
    """
    experience, state = learner.experience, learner.state()
    experience.add(random_rollout(learner.component.environment))
    learner.restore({**state, "counters": {**state["counters"], "env_steps": 300, "sampled": 200}})
    assert (experience.gate.received, experience.gate.trained) == (256, 32 * 192)
    assert experience.gate.may_pull
    assert not experience.gate.may_update
    experience.add(random_rollout(learner.component.environment))
    assert experience.gate.may_update
    assert learner.counts.sampled == 200 + 256


@pytest.mark.parametrize("peers", [SMALL], indirect=True)
@pytest.mark.parametrize("learner", ["critic_learner"], indirect=True)
def test_what_is_kept_in_hindsight_or_was_read_is_no_part_of_the_warm_up(learner):
    """Nor after a crash in it, with the replay that outlived it, or with one that a checkpoint brought."""
    experience, made = learner.experience, random_rollout(learner.component.environment)
    ends = {"truncated": made.truncated.copy(), "final_obs": made.obs[-1]}
    ends["truncated"][-1] = True
    ends["final_index"] = np.stack([np.full(16, 15), np.arange(16)], 1).astype(np.int32)
    experience.replay.relabel_by(Relabelling(lambda batch, _: batch, None, 1))
    experience.add(replace(made, **ends))
    assert len(experience.replay) == 512
    state = learner.state()
    for num_sampled in (256, 0):
        experience.replay.num_sampled = num_sampled
        learner.restore({**state, "counters": {**state["counters"], "env_steps": 300}})
        assert experience.gate.received == 256


@pytest.mark.parametrize("peers", [SMALL], indirect=True)
@pytest.mark.parametrize("exact", [True, False])
def test_no_learner_goes_on_exactly_alone(peers, exact):
    """Where another learner had not done the same by the checkpoint, it would wait for it for ever."""
    folder, state = peers.folder.checkpoints / "1", {"half": 1, GOES_ON: {}}
    part = write_part(folder, "critic_learner.pt", lambda path: torch.save(state, path))
    complete(folder, [part], {"exact": True} if exact else {})
    component = Component("critic_learner", peers.plan, 0)
    found = Vault(component, dict, RoundStore(1, "cpu"), lambda: True).restore()
    assert (GOES_ON in found) is exact


def _crc32(path):
    import zlib

    return zlib.crc32(path.read_bytes())


@pytest.mark.parametrize("peers", [SMALL], indirect=True)
def test_without_a_checkpoint_the_error_ends_the_learner(learner):
    """There is nothing to go back to."""
    vault = Vault(learner.component, learner.state, learner.experience.replay, lambda: True)
    with pytest.raises(Diverged, match="such"):
        vault.last_good(Diverged("weights", "such"), 1)


@pytest.mark.parametrize("peers", [SMALL], indirect=True)
def test_an_earlier_run_that_is_gone_is_not_blamed_for_the_divergence(learner, tmp_path):
    """Its folder was deleted, or torn, since this run went on from it: both are said, and nothing is told
    of a return.
    """
    plan = learner.component.plan
    gone = str(tmp_path / "run" / "checkpoints" / "00000100")
    learner.component.plan = replace(plan, run=replace(plan.run, resume_from=gone))
    told = []
    learner.component.report_failure = lambda *about, **more: told.append(about)
    vault = Vault(learner.component, learner.state, learner.experience.replay, lambda: True)
    with pytest.raises(Diverged, match=rf"such.*no way back: .*{gone}"):
        vault.last_good(Diverged("weights", "such"), 1)
    assert not told


@pytest.mark.parametrize("peers", [SMALL, [*SMALL, "algorithm.normalize_observations=true"]], indirect=True)
def test_observations_that_are_not_normalised_are_named_as_a_cause(learner, peers):
    """Whatever was not finite; not where they are normalised already."""
    vault = Vault(learner.component, learner.state, learner.experience.replay, lambda: True)
    with pytest.raises(Diverged) as caught:
        vault.last_good(Diverged("weights", "such"), 1)
    normalised = peers.plan.algorithm["normalize_observations"]
    assert ("algorithm.normalize_observations = true" in str(caught.value)) is not normalised


def test_every_odd_number_is_found():
    """Wherever it stands, of whatever size the array is; large ones that are finite pass."""
    from spreeze_zmq.wire import odd_number

    rng = np.random.default_rng(0)
    for size in (1, 7, 4096, 100_001):
        good = rng.normal(size=size).astype(np.float32) * np.float32(1e15 / 6)
        assert odd_number(good) == ""
        for odd in (np.nan, np.inf, -np.inf, 3e38, -1.1e15):
            bad = good.copy()
            place = int(rng.integers(size))
            bad[place] = odd
            assert odd_number(bad).endswith(f"at [{place}], expected a finite number of at most 1e+15")
    assert odd_number(np.zeros((0, 3), np.float32)) == ""
    assert odd_number(np.full(3, 255, np.uint8)) == ""
