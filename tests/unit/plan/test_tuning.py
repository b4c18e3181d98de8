"""What a run has found out is where the next one begins."""

from dataclasses import replace

import pytest

from spreeze_zmq.base import provenance
from spreeze_zmq.plan import sizing, topology, tuning
from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.tuning import Tuning

FOUND = Tuning(5, 1000.0, 8000.0)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """A cache for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def plan(*overrides, cores=2):
    """The pendulum topology."""
    return topology.load("pendulum", overrides, cores=cores)


def first_count(*overrides, cores, step_s=1e-4):
    """The samplers that a run begins with whose environment takes so long for a step."""
    made = plan(*overrides, cores=cores)
    begun, _ = tuning.begin(replace(made, timing={**made.timing, "step_s": step_s}))
    return begun.components["sampler"].count


def test_the_next_run_begins_where_the_last_one_settled():
    """And says where that comes from; the range stays."""
    tuning.remember(plan(), FOUND)
    begun, why = tuning.begin(plan())
    count = begun.components["sampler"].count
    assert (count.initial, count.minimum) == (5, 1)
    assert why == ("as on this machine before: 5 gave 1,000 env steps and 8,000 trained transitions a second")


def test_what_is_known_stands_in_the_plan():
    """From an earlier run of the kind."""
    tuning.remember(plan(), FOUND)
    begun, why = tuning.begin(plan())
    assert begun.measured["samplers"] == {"chosen": 5, "source": why}


def test_no_more_samplers_begin_than_feed_the_learners():
    """What 62 of them made would wait in front of the learners, ten rollouts of each: the task is learned
    from a fifteenth of that. A slow step needs them all, as may a larger batch or fewer updates on each.
    """
    counts = {cores: first_count(cores=cores).initial for cores in (2, 4, 8, 16, 64)}
    assert counts == {2: 1, 4: 2, 8: 4, 16: 4, 64: 4}
    assert first_count(cores=64) == Count(4, 1, 64)
    assert first_count(cores=64, step_s=0.01).initial == 62
    assert first_count("balance.replay_ratio=1", cores=64).initial == 62
    assert first_count("algorithm.batch_size=8192", cores=64).initial == 62
    assert first_count("components.sampler.count=[7, 64]", cores=64).initial == 7
    assert tuning.MOST_UPDATES_PER_S * 256 / 32 <= 4 / 1e-4


@pytest.mark.parametrize(
    "override",
    [
        "balance.mode=bounded",
        "balance.mode=lockstep",
        "algorithm.batch_size=auto",
        "components.sampler.count=9",
    ],
)
def test_what_one_step_took_changes_no_count_that_others_follow_from(override):
    """Versions by count, a fixed order and a stated number; and a batch that is measured later."""
    made = plan(override, cores=64)
    assert tuning.begin(made) == (made, "")


def test_the_seed_and_the_stop_condition_do_not_matter():
    """The same work with another seed has the same balance."""
    tuning.remember(plan("run.seed=1"), FOUND)
    assert tuning.recall(plan("run.seed=2", "run.stop.minutes=1")) == FOUND


@pytest.mark.parametrize(
    "override",
    [
        "run.env=MountainCarContinuous-v0",
        "run.env_kwargs={g=9.0}",
        "algorithm.batch_size=512",
        "balance.replay_ratio=8",
        "components.sampler.envs=4",
        "placement.critic_learner=node",
    ],
)
def test_other_work_is_another_matter(override):
    """Environment, options and ratio all decide about the right count."""
    tuning.remember(plan(), FOUND)
    assert tuning.recall(plan(override)) is None


def test_a_run_of_groups_is_another_matter():
    """Each fuses its models, and the others are at work beside it."""
    one = plan()
    groups = replace(one, groups=replace(one.groups, count=2))
    tuning.remember(one, FOUND)
    assert tuning.recall(groups) is None


def test_another_machine_is_another_matter(monkeypatch):
    """A home folder may be shared between machines."""
    tuning.remember(plan(), FOUND)
    monkeypatch.setattr(provenance, "available_cores", lambda: 77)
    assert tuning.recall(plan()) is None


def test_the_range_of_the_topology_is_kept():
    """What was found counts within it; a fixed count is fixed."""
    tuning.remember(plan("components.sampler.count=[1, 3]"), FOUND)
    assert tuning.begin(plan("components.sampler.count=[1, 3]"))[0].components["sampler"].count.initial == 3
    fixed = plan("components.sampler.count=2")
    tuning.remember(fixed, FOUND)
    assert tuning.begin(fixed) == (fixed, "")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"found": {"samplers": -1}}', "null", "[" * 10_000])
def test_a_corrupt_file_is_passed_over_with_one_line(text, caplog):
    """The run begins as if there were none, and the line says what to do."""
    path = tuning.remember(plan(), FOUND)
    path.write_text(text)
    assert tuning.begin(plan()) == (plan(), "")
    (record,) = caplog.records
    assert str(path) in record.message
    assert "\n" not in record.message
    assert "spreeze tune" in record.message


@pytest.mark.parametrize("samplers", [0, -3, 2.5, True, "8", None, 10**12])
def test_a_senseless_count_is_passed_over(samplers):
    """Whatever wrote it."""
    tuning.remember(plan(), Tuning(samplers, 1.0, 1.0))
    assert tuning.recall(plan()) is None


@pytest.mark.parametrize("is_none", ["a file is there", "no home"])
def test_a_cache_that_cannot_be_written_is_no_failure(is_none, tmp_path, monkeypatch, caplog):
    """One line, and the run goes on; nothing was measured before."""
    given = plan()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    if is_none == "no home":
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        monkeypatch.setenv("HOME", "nowhere")
    assert tuning.recall(given) is None
    assert tuning.remember(given, FOUND) is None
    (record,) = caplog.records
    assert "is not kept" in record.message


@pytest.mark.parametrize("subject_of", [sizing.subject_of, tuning.subject_of])
def test_what_was_measured_of_code_that_has_been_edited_is_measured_again(subject_of):
    """An algorithm of one's own, or another project's of that name; a shipped one is of this library."""
    before = replace(plan(), own_code={"environment": {}, "algorithm": {"mine.py": "1"}})
    edited = replace(before, own_code={"environment": {}, "algorithm": {"mine.py": "2"}})
    assert subject_of(edited) != subject_of(before)
    assert subject_of(replace(before, own_code={"environment": {}, "algorithm": {}})) == subject_of(plan())
