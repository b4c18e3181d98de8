"""Whether a run can go on from another: what must agree, also with runs of earlier releases."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.base.schema import with_default
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.parts import DataPlan
from spreeze_zmq.run.checkpoint import SavedCheckpoint, complete, write_part
from spreeze_zmq.run.history import check_fit, read_run, scaled_as_before
from spreeze_zmq.run.saved_replay import check_replay

ATOMS = "algorithm.num_atoms=51"


class C51(DQN):
    """Which learns distributions unless it is told not to."""

    @dataclass(frozen=True)
    class Options(DQN.Options):
        """As DQN's."""

        num_atoms: int = with_default(DQN.Options, "num_atoms", 51)


def earlier(folder, *overrides, without=(), **changed):
    """The folder of a run of an earlier release, without some options and with other values of some."""
    plan = json.loads(topology.load("pendulum", overrides).to_json())
    plan["algorithm"] = {name: value for name, value in plan["algorithm"].items() if name not in without}
    plan["algorithm"] |= changed
    (folder / "run.json").write_text(json.dumps(plan))
    return folder


def test_options_that_mean_nothing_need_not_agree(tmp_path):
    """A range of returns, without a distribution of them; an option that the earlier release did not have."""
    run = earlier(tmp_path, without=["normalize_rewards"], v_min=-100.0, v_max=1000.0)
    check_fit(topology.load("pendulum"), run)
    check_fit(topology.load("pendulum", ["algorithm.learning_rate=1e-4"]), run)


def test_what_gives_the_networks_a_meaning_must_agree_where_a_class_has_it_by_default(tmp_path):
    """The old logits would be read on a support ten times as wide; with one atom there is none."""
    own, words = [f"run.algorithm={__name__}:C51"], ("algorithm.v_min={}", "algorithm.v_max={}")
    narrow, wide = (
        [word.format(size) for word, size in zip(words, (-each, each), strict=True)] for each in (10, 100)
    )
    run = tmp_path / "run.json"
    run.write_text(topology.load("cartpole_dqn", [*own, *narrow]).to_json())
    check_fit(topology.load("cartpole_dqn", [*own, *narrow]), tmp_path)
    with pytest.raises(CheckpointError, match="v_min"):
        check_fit(topology.load("cartpole_dqn", [*own, *wide]), tmp_path)
    run.write_text(topology.load("cartpole_dqn", [*own, *narrow, "algorithm.num_atoms=1"]).to_json())
    check_fit(topology.load("cartpole_dqn", [*own, *wide, "algorithm.num_atoms=1"]), tmp_path)


def test_the_network_that_auto_was_may_be_stated(tmp_path):
    """Releases differ in what it chooses; one that was stated stays as it is."""
    stated = topology.load("cartpole_dqn", ["algorithm.network=mlp"])
    for network, fits in (("auto", True), ("small_cnn", False)):
        plan = json.loads(stated.to_json())
        plan["algorithm"]["network"] = network
        (tmp_path / "run.json").write_text(json.dumps(plan))
        if fits:
            check_fit(stated, tmp_path)
        else:
            with pytest.raises(CheckpointError, match='network is "mlp" here and was "small_cnn" there'):
                check_fit(stated, tmp_path)


def test_a_name_without_its_version_is_the_one_that_the_run_began_with(tmp_path):
    """Here the latest one is newer by now, which is refused, and the former one named. An earlier release did
    not keep which it was: any fits, by its full name as by the short one.
    """
    began, latest = (topology.load("cartpole_dqn", [f"run.env=CartPole{v}"]) for v in ("-v0", ""))
    assert (latest.run.env, latest.environment.id) == ("CartPole", "CartPole-v1")
    plan = json.loads(latest.to_json())
    for kept, fits in (
        *(("CartPole-v1", latest), ("CartPole-v0", began)),
        *(("CartPole", latest), ("CartPole", began)),
    ):
        plan["environment"]["id"] = kept
        (tmp_path / "run.json").write_text(json.dumps(plan))
        check_fit(fits, tmp_path)
        if kept == "CartPole-v0":
            with pytest.raises(CheckpointError, match=r'"CartPole-v1" here and was "CartPole-v0" there'):
                check_fit(latest, tmp_path)


def test_bytes_are_scaled_as_before(tmp_path):
    """By 255 in a run of a release that did not ask what a space declares; by that in a run since."""
    plan = topology.load("pendulum")
    bits = replace(plan.environment, obs_dtype="uint8", obs_max=1)
    plan = replace(plan, environment=bits)
    for before in (bits, replace(bits, obs_max=None)):
        (tmp_path / "run.json").write_text(replace(plan, environment=before).to_json())
        check_fit(plan, tmp_path)
        assert scaled_as_before(plan, read_run(tmp_path)).environment == before


@pytest.mark.parametrize(
    ("before", "now", "problem"),
    [
        (
            [ATOMS, "algorithm.v_min=-100", "algorithm.v_max=1000"],
            [ATOMS],
            'v_min is "auto" here and was -100.0',
        ),
        ([], ["algorithm.normalize_rewards=true"], 'normalize_rewards is true here and was "auto" there'),
        ([], [ATOMS], "num_atoms is 51 here and was 1 there"),
    ],
)
def test_another_meaning_of_the_networks_is_refused(tmp_path, before, now, problem):
    """By the name of the option, with both values."""
    run = earlier(tmp_path, *before, without=["normalize_rewards"])
    with pytest.raises(CheckpointError, match=problem):
        check_fit(topology.load("pendulum", now), run)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("action_high", [8.0], r"action_high\[0\] is 2\.0 here and was 8\.0 there"),
        (
            "obs_parts",
            [{"path": ["angle"], "shape": [3]}],
            r'obs_parts is "none" here and was \["angle \[3\]"\]',
        ),
    ],
)
def test_an_environment_of_other_spaces_is_refused_where_shapes_are_the_same(tmp_path, name, value, says):
    """Its code may have changed since: actions would be scaled, or observations read, by other rules."""
    plan = json.loads(topology.load("pendulum").to_json())
    plan["environment"][name] = value
    (tmp_path / "run.json").write_text(json.dumps(plan))
    with pytest.raises(CheckpointError, match=f"the environment's {says}"):
        check_fit(topology.load("pendulum"), tmp_path)


def with_data(save_replay=True, after=None, **sources):
    """A plan with these sources, of a run that goes on from the checkpoint ``after``."""
    plan = topology.load("pendulum", [f"run.save_replay={str(save_replay).lower()}"])
    plan = replace(plan, data={name: DataPlan(**about) for name, about in sources.items()})
    return plan if after is None else plan.resuming(after.path, ())


def saved(folder, plan, *, replay=True):
    """A checkpoint of a run of this plan."""
    path = folder / "checkpoints" / "1"
    part = write_part(path, "critic_learner-replay-float32.npy", Path.touch)
    complete(path, [part] if replay else [], {})
    (folder / "run.json").write_text(plan.to_json())
    return SavedCheckpoint.read(path)


SHOWN, MORE = {"source": "minari:a-v0", "transitions": 8}, {"source": "minari:b-v0", "episodes": 2}


def test_a_replay_that_comes_back_without_a_source_that_is_to_fill_it_is_refused(tmp_path):
    """It would never be trained on. One with a share is read again, and so is all where no replay comes."""
    for plan, replay in (
        (with_data(), True),
        (with_data(shown=SHOWN), True),
        (with_data(renamed=SHOWN), True),
        (with_data(shown=SHOWN, more={**MORE, "share": 0.5}), True),
        (with_data(shown=SHOWN, more=MORE), False),
        (with_data(save_replay=False, shown=SHOWN, more=MORE), True),
    ):
        check_replay(plan, tmp_path, saved(tmp_path, with_data(shown=SHOWN), replay=replay))
    other = "when it had another number of transitions"
    for name, plan, how in (
        ("more", with_data(shown=SHOWN, more=MORE), "without it"),
        ("shown", with_data(shown={**SHOWN, "episodes": 1}), "without it"),
        ("shown", with_data(shown={**SHOWN, "transitions": 9}), other),
    ):
        says = f"data.{name} is to fill .* was filled {how}: write data.{name}.share"
        with pytest.raises(CheckpointError, match=says):
            check_replay(plan, tmp_path, saved(tmp_path, with_data(shown=SHOWN)))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("gamma", 0.9, "0.9, and the replay .* was filled with 0.99"),
        ("n_step", 3, "3, and .* with 1"),
        ("prioritized", "true", "true, and .* with false"),
        ("burn_in", "false", "false, and .* with true"),
        ("prioritized", "false", ""),
        ("batch_size", 64, ""),
    ],
)
def test_a_replay_that_comes_back_of_other_rows_is_refused_before_anything_starts(
    tmp_path, name, value, said
):
    """With what to add, and not where nothing comes back; whether it is drawn by priority may end."""
    memory = ["algorithm.memory_size=8", "components.sampler.rollout_steps=16"] * (name == "burn_in")
    before = ["algorithm.prioritized=true"] * (name == "prioritized" and not said)
    plans = [
        topology.load("cartpole_dqn", ["run.save_replay=true", *memory, *more])
        for more in (before, [f"algorithm.{name}={value}"])
    ]
    checkpoint = saved(tmp_path, plans[0])
    check_replay(plans[0], tmp_path, checkpoint)
    anew = replace(plans[1], run=replace(plans[1].run, save_replay=False))
    check_replay(anew, tmp_path, checkpoint)
    if not said:
        check_replay(plans[1], tmp_path, checkpoint)
        return
    with pytest.raises(CheckpointError, match=rf"algorithm\.{name} is {said}.* --set run\.save_replay=false"):
        check_replay(plans[1], tmp_path, checkpoint)


def test_what_filled_a_replay_three_runs_ago_is_in_it(tmp_path):
    """Whatever the runs between say of that source; not where the replay of one of them was a new one."""
    first = saved(tmp_path / "a", with_data(shown=SHOWN))
    second = saved(tmp_path / "b", with_data(after=first, shown={**SHOWN, "share": 0.5}))
    third = saved(tmp_path / "c", with_data(after=second))
    check_replay(with_data(shown=SHOWN), tmp_path / "c", third)
    anew = saved(tmp_path / "c", with_data(save_replay=False, after=second))
    with pytest.raises(CheckpointError, match=r"data\.shown is to fill"):
        check_replay(with_data(shown=SHOWN), tmp_path / "c", anew)


def test_a_run_that_hands_on_the_checkpoint_of_another_has_filled_no_replay_of_it(tmp_path):
    """It ended before its first one: what it read itself is gone."""
    first = saved(tmp_path / "a", with_data())
    (tmp_path / "b").mkdir()
    plan = with_data(save_replay=False, after=first, shown=SHOWN)
    (tmp_path / "b" / "run.json").write_text(plan.to_json())
    with pytest.raises(CheckpointError, match=r"data\.shown is to fill"):
        check_replay(with_data(shown=SHOWN), tmp_path / "b", first)
