"""Environments in worker processes: the same numbers, the first finished first, no hanging, no orphans."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import EnvironmentFailure, InvalidEnvironment
from spreeze_zmq.envs.parallel.pool import divide
from tests.unit.envs.own_environments import Count
from tests.unit.supervisor.lives import gone, until

OWN = "tests.unit.envs.own_environments"


@pytest.mark.parametrize(
    ("env_id", "batch_size", "kwargs"),
    [
        ("CartPole-v1", None, {}),
        ("CartPole-v1", 2, {"backend": "gymnasium"}),
        ("Hopper-v5", 3, {}),
        (f"{OWN}:Count", None, {"length": 5}),
        (f"{OWN}:Parts", 1, {"length": 5}),
        (f"{OWN}:several_actions", None, {}),
    ],
)
def test_workers_change_no_number(make, env_id, batch_size, kwargs):
    """Seeds, observations, rewards, ends and statistics are those of the same batch in one process."""
    here = make(env_id, 6, seed=3, step_info=False, **kwargs)
    there = make(env_id, 6, seed=3, num_workers=2, batch_size=batch_size, **kwargs)
    assert there.backend == here.backend
    assert there.single_observation_space == here.single_observation_space
    np.testing.assert_array_equal(here.reset()[0], there.reset()[0])
    ends = 0
    for _ in range(60):
        action = here.action_space.sample()
        *ours, our_info = here.step(action)
        *theirs, their_info = there.step(action)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
        if "final_obs" in our_info:
            ended = our_info["_final_obs"]
            ends += ended.sum()
            np.testing.assert_array_equal(ended, their_info["_final_obs"])
            np.testing.assert_array_equal(our_info["final_obs"], their_info["final_obs"])
            for name in ("r", "l"):
                np.testing.assert_array_equal(our_info["episode"][name], their_info["episode"][name])
    assert ends > 3
    np.testing.assert_array_equal(here.reset(seed=5)[0], there.reset(seed=5)[0])


def test_a_mask_resets_some_alone(make):
    """Within a worker's share too."""
    env = make(f"{OWN}:Count", 4, num_workers=2, length=9)
    env.reset()
    env.step(np.zeros((4, 1)))
    obs, _ = env.reset(options={"reset_mask": np.array([False, True, False, True])})
    assert obs[[0, 2]].any() == np.False_
    assert env.step(np.zeros((4, 1)))[0][:, 0].tolist() == [2.0, 1.0, 2.0, 1.0]


class Gated(Count):
    """Its first step ends once there is a file of its number."""

    def __init__(self, index, gates):
        super().__init__(length=99)
        self.gate = Path(gates, str(index))

    def step(self, action):
        """At the gate."""
        while not self.gate.exists():
            time.sleep(0.01)
        return super().step(action)


def test_the_first_that_finish_come_first(make, tmp_path):
    """Nobody waits for the slow one, which is returned when it is done."""
    env = make(f"{__name__}:Gated", 4, num_workers=4, batch_size=1, index="{index}", gates=str(tmp_path))
    env.reset()
    env.send(np.zeros((4, 1)))

    def opened(number):
        """The number of steps, and the environment that has taken them."""
        (tmp_path / str(number)).touch()
        obs, *_, info = env.recv()
        return obs[0, 0], int(info["env_id"][0])

    assert [opened(number) for number in (3, 0)] == [(1.0, 3), (1.0, 0)]
    env.send(np.zeros((2, 1)), np.array([3, 0]))
    assert {opened(number) for number in (3, 0)} == {(2.0, 3), (2.0, 0)}
    assert [opened(number) for number in (2, 1)] == [(1.0, 2), (1.0, 1)]


def test_sending_and_receiving_out_of_turn_is_refused(make):
    """Nothing waits for what is not under way, nothing is sent twice, units are kept together."""
    env = make("Pendulum-v1", 4, num_workers=2, batch_size=2)
    env.reset()
    with pytest.raises(RuntimeError, match="only 0 are under way"):
        env.recv()
    with pytest.raises(ValueError, match=r"\[0, 1\] step together"):
        env.send(np.zeros((1, 1)), np.array([0]))
    env.send(np.zeros((2, 1)), np.array([0, 1]))
    with pytest.raises(RuntimeError, match="under way"):
        env.send(np.zeros((4, 1)))
    with pytest.raises(RuntimeError, match="under way"):
        env.step(np.zeros((4, 1)))
    with pytest.raises(ValueError, match=r"\(2, 1\) expected"):
        env.send(np.zeros((2, 3)), np.array([2, 3]))
    assert env.recv()[4]["env_id"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("mood", "says"),
    [
        (0.9, "environment 3 of 4 raised in step: ZeroDivisionError: in a bad mood"),
        (0.8, "environment 3 of 4 gave the observation"),
        (0.7, "environment 3 of 4 in step 2 of its episode: worker 1 hung for more than 2 s"),
        (0.6, "environment 3 of 4 in step 2 of its episode: worker 1 was killed by SIGKILL"),
    ],
    ids=["raises", "NaN", "hangs", "killed"],
)
def test_what_goes_wrong_in_a_worker_is_reported_and_repaired(make, mood, says):
    """The episodes that are lost are truncated at the last observation; the others go on."""
    failures, timeout_s = [], 2.0 if mood == 0.7 else 60.0
    kwargs = {"length": 99, "on_failure": failures.append, "step_timeout_s": timeout_s}
    env = make(f"{OWN}:Moody", 4, num_workers=2, **kwargs)
    env.reset()
    before = env.step(np.zeros((4, 1)))[0]
    obs, reward, terminated, truncated, info = env.step(np.array([[0.1], [0.2], [0.3], [mood]], np.float32))
    assert says in failures[0].summary
    lost = [3] if mood > 0.75 else [2, 3]
    assert np.flatnonzero(truncated).tolist() == np.flatnonzero(info["failed"]).tolist() == lost
    assert not terminated.any()
    np.testing.assert_array_equal(info["final_obs"][lost], before[lost])
    assert info["episode"]["l"][lost].tolist() == [1] * len(lost)
    assert reward[lost].tolist() == [0.0] * len(lost)
    assert np.isfinite(obs).all()
    expected = np.where(info["failed"], 0.0, 2.0)
    np.testing.assert_array_equal(obs[:, 0], expected)
    obs, reward, *_, info = env.step(np.zeros((4, 1)))
    np.testing.assert_array_equal(obs[:, 0], expected + 1)
    assert "failed" not in info
    assert len(failures) == 1
    if mood > 0.85:
        assert "own_environments.py" in failures[0].traceback


def test_a_worker_killed_between_two_steps_is_replaced(make):
    """From outside, as the kernel's out-of-memory killer would."""
    failures = []
    env = make("CartPole-v1", 4, num_workers=2, batch_size=2, on_failure=failures.append)
    env.reset()
    before = env.step(np.zeros(4, np.int64))[0]
    worker = psutil.Process(int(env.slots.pids[0]))
    os.kill(worker.pid, signal.SIGKILL)
    psutil.wait_procs([worker], 5)
    _, _, _, truncated, info = env.step(np.zeros(4, np.int64))
    assert truncated.tolist() == [True, True, False, False]
    np.testing.assert_array_equal(info["final_obs"][:2], before[:2])
    assert "worker 0 was killed by SIGKILL" in failures[0].summary
    assert not env.step(np.zeros(4, np.int64))[3].any()


def test_first_finished_batches_go_on_beside_a_dead_worker(make):
    """What the dead one had finished counts; what it had under way comes back truncated."""
    failures = []
    env = make(f"{OWN}:Moody", 6, num_workers=3, batch_size=2, length=99, on_failure=failures.append)
    env.reset()
    action = np.zeros((6, 1), np.float32)
    env.send(action)
    seen, failed = np.zeros(6, np.int64), np.zeros(6, np.int64)
    turn = 0
    while turn < 40 or not failed.any() or seen.min() < 2:  # whoever is slow comes later
        assert turn < 20_000
        turn += 1
        obs, *_, info = env.recv()
        ids = info["env_id"]
        seen[ids] += 1
        failed[ids] += info.get("failed", np.zeros(2, np.bool_))
        assert np.isfinite(obs).all()
        action = np.full((2, 1), 0.6 if turn == 10 else 0.0, np.float32)
        env.send(action, ids)
    assert 1 <= failed.sum() <= 4
    assert {"SIGKILL" in failure.summary for failure in failures} == {True}


def test_many_episodes_that_end_at_once_come_with_their_infos(make):
    """More infos than a channel holds do not stop the worker that sends them."""
    env = make(f"{OWN}:Count", 600, num_workers=1, length=1, step_info="final", step_timeout_s=5)
    env.reset()
    info = env.step(np.zeros((600, 1)))[4]
    assert "failed" not in info
    assert info["final_info"]["steps"].tolist() == [1.0] * 600


def test_options_of_a_reset_reach_the_workers(make):
    """Plain data does; anything else is refused, and the batch goes on."""
    here, there = make("CartPole-v1", 4), make("CartPole-v1", 4, num_workers=2, backend="gymnasium")
    options = {"low": 0.1, "high": 0.2}
    expected = here.reset(seed=1, options=options)[0]
    np.testing.assert_array_equal(there.reset(seed=1, options=options)[0], expected)
    for wrong, says in (
        ({"low": object()}, "plain data"),
        ({"note": {1: "x"}}, "plain data, but: the key 1 is no text"),
        ({"note": "x" * 100_000}, "at most 65536"),
    ):
        with pytest.raises(ValueError, match=says):
            there.reset(options=wrong)
    np.testing.assert_array_equal(there.reset(seed=1, options=options)[0], expected)


def test_a_worker_that_keeps_dying_ends_the_batch(make):
    """With the first failure's words."""
    env = make(f"{OWN}:Moody", 2, num_workers=2, max_failures=1)
    env.reset()
    bad = np.array([[0.6], [0.0]], np.float32)
    env.step(bad)
    with pytest.raises(EnvironmentFailure, match=r"environment 0 of 2 in step 1.*2 failures within 100 e"):
        env.step(bad)


def test_an_environment_that_cannot_begin_is_refused_at_once(make):
    """As in one process, with the environment's own traceback."""
    with pytest.raises(EnvironmentFailure, match=r"returned from reset the observation .* of shape"):
        make(f"{OWN}:lying", 2, num_workers=2).reset()


def test_arguments_of_any_length_reach_the_workers(make):
    """Such as a model of a megabyte in XML: more than a message or a pipe holds at once."""
    there = make(f"{OWN}:Count", 2, num_workers=2, length=2, gives="x" * 1_000_000)
    there.reset()
    ends = [there.step(there.action_space.sample())[2].all() for _ in range(2)]
    assert ends == [False, True]


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        ("CartPole-v1", {"num_workers": 3}, "num_workers is from 0"),
        ("CartPole-v1", {"num_workers": 1, "batch_size": 3}, "batch_size is from 1"),
        ("CartPole-v1", {"batch_size": 1}, "num_workers spreads them"),
        (f"{OWN}:dictionary_actions", {"num_workers": 1}, "a Dict, which does not fit into shared memory"),
        (f"{OWN}:Count", {"num_workers": 1, "length": object()}, "plain data"),
        (f"{OWN}:Count", {"num_workers": 1, "gives": [{1: "x"}]}, "the key 1 is no text"),
    ],
)
def test_what_cannot_be_spread_is_refused(env_id, kwargs, says):
    """One clear line."""
    with pytest.raises(InvalidEnvironment, match=says):
        envs.make(env_id, 2, **kwargs)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((5, 2, 5, True), [[(0, 3)], [(3, 2)]]),
        ((4, 2, 1, True), [[(0, 1), (1, 1)], [(2, 1), (3, 1)]]),
        ((64, 2, 16, False), [[(0, 16), (16, 16)], [(32, 16), (48, 16)]]),
        ((8, 4, 6, False), [[(0, 2)], [(2, 2)], [(4, 2)], [(6, 2)]]),
    ],
)
def test_rows_are_divided_so_that_batches_come_out_even(arguments, expected):
    """Whole shares where all are waited for, else equal units that fill a batch."""
    assert divide(*arguments) == expected


def test_nothing_outlives_a_killed_batch():
    """Neither workers nor their server, in the middle of a step; and they need no torch."""
    code = (
        "import numpy as np; from spreeze_zmq import envs\n"
        f"env = envs.make('{OWN}:Moody', 3, num_workers=3); env.reset()\n"
        "print(env.pool.server.pid, *env.slots.pids, flush=True)\n"
        "env.step(np.full((3, 1), 0.7))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    others = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    assert len(others) == 4
    for other in others[1:]:
        assert not any("libtorch" in mapped.path for mapped in other.memory_maps())
    time.sleep(0.2)
    process.kill()
    process.wait()
    until(lambda: all(gone(other.pid) for other in others), "their end", 60.0)
