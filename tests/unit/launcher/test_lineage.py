"""Resumed runs: one curve, one clock and one best policy with the runs that they go on from."""

import json
import re
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.base.journal import Journal, read_journal
from spreeze_zmq.base.provenance import release
from spreeze_zmq.broker.doctor import Doctor
from spreeze_zmq.broker.notes import turned_in
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.requests import Requests
from spreeze_zmq.broker.returns import EVALUATIONS_KEPT
from spreeze_zmq.commands import launch
from spreeze_zmq.commands.begun import set_anew
from spreeze_zmq.commands.compare import evaluated_runs
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.launcher import lineage
from spreeze_zmq.launcher.closing import further
from spreeze_zmq.launcher.lineage import Origin, reached, why_not_exact
from spreeze_zmq.learner.replayed import ReplayExperience
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.parts import StopPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.releases import releases
from spreeze_zmq.plan.roles import CRITIC_LEARNER
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.checkpoint import MANIFEST, SavedCheckpoint, complete, prune, write_part
from spreeze_zmq.run.curves import read_curve
from spreeze_zmq.run.folder import CLAIMED, RunFolder, write_plan
from spreeze_zmq.run.history import find_runs, parent_of
from spreeze_zmq.run.sampler_state import packed
from spreeze_zmq.wire.channels import SocketFolder
from tests.unit.data.made import dataset
from tests.unit.evaluation.test_saved import save, save_for
from tests.unit.plan.topology.test_described import BOX, own_sampler

#: A schedule over the run, and one by counts of its own.
DECAY = {"from": 1e-3, "to": 0.0}
BY_COUNT = {"from": 0.05, "over": {"env_steps": 100}}
PENDULUM = {"run": {"env": "Pendulum-v1", "algorithm": "sac", "seed": 1}}


def plan_of(**stop):
    """SAC on Pendulum-v1 until a limit."""
    return topology.load({"run": {**PENDULUM["run"], "stop": stop}})


def looks(folder, *looks, best=()):
    """Write looks ``(t_s, env_steps, return)`` to a run's journal; those in ``best`` are kept."""
    journal = Journal(folder.metrics)
    numbers = dict.fromkeys(("std_return", "min", "max", "mean_length", "wall_s"), 1.0)
    for t_s, env_steps, mean_return in looks:
        fields = {"version": 1, "env_steps": env_steps, "mean_return": mean_return, "num_episodes": 30}
        fields |= {"confirmed": env_steps in best, "best": env_steps in best}
        journal.write("evaluation", t_s, {**numbers, **fields})
    journal.close()


def checkpoint(folder, t_s, env_steps):
    """Write a complete checkpoint."""
    path = folder.checkpoints / f"{env_steps:012d}-{int(t_s * 1000):09d}"
    part = write_part(path, "critic_learner.pt", lambda file: file.write_bytes(b"weights"))
    counts = {"env_steps": env_steps, "trained_transitions": 8 * env_steps}
    complete(path, [part], {"t_s": t_s, "counts": counts, "best_return": None})


def policy(folder, mean_return, env_id="Pendulum-v1"):
    """Save a policy as an evaluator does."""
    save(folder.best_policy, env_id)
    saved = Policy.load(folder.best_policy)
    about = {**saved.metadata, "mean_return": str(mean_return), "confirmed": "True", "timed_out": "False"}
    saved.save(folder.best_policy, about)


def begin(path, plan):
    """Make a run's folder with its run.json."""
    folder = RunFolder.create("run", str(path))
    write_plan(plan, folder)[1].remove()
    return folder


def resume(path, parent, plan=None, *settings):
    """Make the folder of a run that goes on from another, by a line that sets keys; returns it and what is
    said.
    """
    plan, origin = plan or plan_of(), Origin.of(parent.path, set_anew(settings, parent.path))
    folder = begin(path, plan.resuming(origin.checkpoint.path, origin.ancestors))
    return folder, origin.inherit(folder, plan)


def returns(folder):
    """The returns of a run's curve."""
    return read_curve(folder.path).mean_return.tolist()


@pytest.fixture
def parent(tmp_path):
    """A run that was killed at 90 s; its last checkpoint was at 60 s and 600 env steps."""
    folder = begin(tmp_path / "parent", plan_of())
    looks(
        folder, (10.0, 100, -9.0), (50.0, 500, -5.0), (61.0, 600, -4.0), (62.0, 600, -3.0), (80.0, 800, -1.0)
    )
    looks(folder, (85.0, 810, -2.0), best=(810,))
    policy(folder, -2.0)
    checkpoint(folder, 60.0, 600)
    return folder


def test_what_a_run_that_still_runs_learns_is_said_to_be_no_part_of_the_new_one(parent, monkeypatch, capsys):
    """As where Ctrl-C has not ended it yet; and when the checkpoint goes, which is needed until then."""
    monkeypatch.setattr(launch, "_launch", lambda *_: 0)
    words = ["--env", "Pendulum-v1", "--algorithm", "sac", "--resume", str(parent.path)]
    sockets = SocketFolder.create("live")
    sockets.hold(parent.path / CLAIMED)
    assert launch.main(words) == 0
    says = f"{parent.path} still runs: what it learns after its checkpoint at 600 env steps is no part of"
    said = capsys.readouterr().err
    assert says in said
    assert "it deletes that one when it has written 2 more" in said
    needed = Origin.of(parent.path).checkpoint.path
    for more, is_there in ((700, True), (800, False)):
        checkpoint(parent, 60.0 + more, more)
        prune(parent.checkpoints)
        assert needed.exists() == is_there
    sockets.remove()
    assert launch.main(words) == 0
    assert "still runs" not in capsys.readouterr().err


def test_the_curve_goes_on_from_what_led_to_the_checkpoint(parent, tmp_path):
    """Looks at later policies belong to what was lost with the run, but the best policy goes on with its
    score; no time is later than the checkpoint's.
    """
    child, _ = resume(tmp_path / "child", parent)
    looks(child, (70.0, 700, 1.0))
    assert returns(child) == [-9.0, -5.0, -4.0, -3.0, 1.0]
    assert read_curve(child.path).x["wall_s"].tolist() == [10.0, 50.0, 60.0, 60.0, 70.0]
    kept = [e for e in read_journal(child.metrics) if e["kind"] == "evaluation" and e["best"]]
    assert [(e["mean_return"], e["t_s"], e["inherited"]) for e in kept] == [(-2.0, 60.0, True)]
    assert Policy.load(child.path).metadata["mean_return"] == "-2.0"


def test_a_run_that_is_named_by_a_link_is_the_one_behind_it(parent, tmp_path):
    """A restarted process goes on from it wherever the link leads by then."""
    link = tmp_path / "latest"
    link.symlink_to(parent.path)
    origin = Origin.of(link)
    found = plan_of(minutes=1).resuming(origin.checkpoint.path, origin.ancestors).run.resume_from
    assert found == str(Origin.of(parent.path).checkpoint.path)


def test_what_counts_and_what_is_left_is_said(parent, tmp_path):
    """The clock, the best policy and the wait for a replay."""
    _, said = resume(tmp_path / "child", parent, plan_of(minutes=10, env_steps=1000))
    assert said == [
        "the 600 env steps and 1.0 minutes before count for the limits of run.stop: 9.0 of 10 minutes and "
        "400 of 1,000 env steps are left",
        f"the best policy so far is {parent.best_policy}, until a better one comes",
        "the replay was not saved: updates wait until a tenth of its transitions has come again "
        "(run.save_replay = true saves it)",
    ]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_replay_that_the_run_does_not_take_over_is_said(parent, tmp_path, keeps):
    """As where one in lock-step, which saves its own, goes on in another mode."""
    made = parent.checkpoints / "000000000700-000070000"
    parts = [write_part(made, name, lambda file: file.touch()) for name in ("a.pt", "a-replay-obs.npy")]
    complete(made, parts, {"t_s": 70.0, "counts": {"env_steps": 700}, "best_return": None})
    plan = topology.load({"run": {**PENDULUM["run"], "save_replay": keeps}})
    _, said = resume(tmp_path / "child", parent, plan)
    wait = "updates wait until a tenth of its transitions has come again"
    left_behind = f"the replay is left behind: {wait} (run.save_replay = true takes it over)"
    assert (left_behind in said, any(wait in line for line in said)) == (not keeps, not keeps)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env_kwargs": {"g": 3.0}}, "run.env_kwargs are others"),
        ({"randomize": {"gravity": [0.9, 1.1]}}, "run.randomize is another"),
        ({"env_kwargs": {"max_episode_steps": 50}}, ""),
        ({}, "pole.py changed since"),
    ],
)
def test_a_replay_of_another_task_says_that_it_is(parent, tmp_path, changes, said):
    """Its transitions were paid as the run before pays; a limit of steps pays nothing."""
    made = parent.checkpoints / "000000000700-000070000"
    parts = [write_part(made, name, lambda file: file.touch()) for name in ("a.pt", "a-replay-obs.npy")]
    complete(made, parts, {"t_s": 70.0, "counts": {"env_steps": 700}, "best_return": None})
    stated = json.loads(parent.run_file.read_text())
    parent.run_file.write_text(json.dumps({**stated, "own_code": {"environment": {"pole.py": "1"}}}))
    for keeps in (True, False):
        plan = topology.load({"run": {**PENDULUM["run"], "save_replay": keeps}})
        code = {"environment": {"pole.py": "2" if said.startswith("pole") else "1"}}
        env = replace(plan.environment, kwargs=changes.get("env_kwargs", {}))
        run = replace(plan.run, randomize=changes.get("randomize", {}))
        other = replace(plan, environment=env, run=run, own_code=code)
        lines = [line for line in resume(tmp_path / f"{keeps}", parent, other)[1] if "comes back" in line]
        assert len(lines) == (keeps and bool(said))
        assert all(f"with the rewards and steps of the run before, and {said}: " in line for line in lines)


def test_an_option_of_fresh_networks_says_that_it_has_no_effect(parent, tmp_path):
    """A temperature that is not learned is one of the networks' numbers, too."""
    lines = []
    for number, options in enumerate(({"initial_temperature": 0.5}, {"tau": 0.25})):
        other = replace(plan_of(), algorithm={**plan_of().algorithm, **options})
        lines += [line for line in resume(tmp_path / f"{number}", parent, other)[1] if "no effect" in line]
    assert lines == [
        "algorithm.initial_temperature = 0.5 has no effect: it is of fresh networks, and those of the run "
        'before, which began with "auto", go on'
    ]


def in_order_plan(stop=None, **changes):
    """Of two samplers, in lock-step."""
    settings = {"components": {"sampler": {"count": 2, "envs": 4}}, "balance": {"mode": "lockstep"}}
    run = {**PENDULUM["run"], "stop": stop or {"env_steps": 1000}}
    return topology.load({"run": run, **settings, **changes})


def in_order(parent):
    """Such a plan; the parent gets its run.json, and a last checkpoint with two samplers' states."""
    plan = in_order_plan()
    parent.run_file.write_text(plan.to_json())
    folder = parent.checkpoints / "000000000700-000070000"
    states = {"sampler-0.state": packed({"envs": {}}), "sampler-1.state": packed({"envs": {}})}
    parts = [write_part(folder, name, lambda path, c=c: path.write_bytes(c)) for name, c in states.items()]
    counts = {"env_steps": 700, "trained_transitions": 5600}
    complete(folder, parts, {"t_s": 70.0, "counts": counts, "best_return": None, "exact": True})
    return plan, folder


def rewrite(folder, name=None, content=b"", **state):
    """Write a manifest again, with another state, or another content of a file; none removes the file."""
    found = SavedCheckpoint.read(folder)
    parts = dict(found.parts)
    if name is not None:
        del parts[name]
    if content:
        parts[name] = write_part(folder, name, lambda path: path.write_bytes(content))
    complete(folder, parts.values(), {**found.state, **state})


def test_a_run_in_order_that_goes_on_exactly_says_nothing(parent):
    """Its options are the same, and all states are there."""
    plan, _ = in_order(parent)
    assert why_not_exact(plan, Origin.of(parent.path)) == ""


@pytest.mark.parametrize("name", ["python", "spreeze_zmq", "torch", "mujoco", "native"])
def test_a_run_of_other_releases_is_not_gone_on_with_exactly(parent, name):
    """They are named, with what it was begun with; of a run that does not say it nothing is."""
    assert Plan.read(parent.run_file).packages == releases()
    plan, _ = in_order(parent)
    stated = json.loads(parent.run_file.read_text())
    for packages, said in (({**releases(), name: "0.9"}, f"{name} 0.9 (here {releases()[name]})"), ({}, "")):
        parent.run_file.write_text(json.dumps({**stated, "packages": packages}))
        found = why_not_exact(plan, Origin.of(parent.path))
        assert found == (said and f"other than in the run before: {said}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"exact": None}, "its checkpoint is not one at which all learners of a run in order"),
        ({"name": "sampler-1.state"}, "sampler-1 has told no state"),
        ({"name": "sampler-1.state", "content": b"torn"}, "sampler-1.state: torn, or not a sampler's"),
        (
            {"name": "sampler-1.state", "content": b"\x81\xa6format\x09"},
            "its format is 9, this version reads 1",
        ),
        (
            {"name": "sampler-0.state", "content": packed({"why_not": "Arm.sim is a mylib.Sim"})},
            "the environments begin new episodes: Arm.sim is a mylib.Sim",
        ),
    ],
)
def test_a_run_in_order_that_does_not_go_on_exactly_says_why(parent, tmp_path, change, said):
    """In one line, among those of the start."""
    plan, folder = in_order(parent)
    rewrite(folder, **change)
    _, lines = resume(tmp_path / "child", parent, plan)
    [line] = [line for line in lines if "in order, but not exactly" in line]
    assert said in line
    assert "\n" not in line


def test_other_options_than_those_of_the_run_before_are_not_exact(parent):
    """They are named; another limit is none."""
    in_order(parent)
    components = {"sampler": {"count": 2, "envs": 8}}
    plan = in_order_plan(algorithm={"gamma": 0.9}, components=components)
    said = why_not_exact(plan, Origin.of(parent.path))
    assert said == "other than in the run before: algorithm, balance, samplers"
    plan = in_order_plan()
    learner = plan.components[CRITIC_LEARNER]
    on_gpu = replace(learner, options={**learner.options, "device": "cuda:0"})
    elsewhere = replace(plan, components={**plan.components, CRITIC_LEARNER: on_gpu})
    assert why_not_exact(elsewhere, Origin.of(parent.path)) == "other than in the run before: devices"
    more = replace(plan, components={**plan.components, CRITIC_LEARNER: replace(learner, threads=7)})
    said = why_not_exact(more, Origin.of(parent.path))
    assert said == "other than in the run before: threads of learners"
    plan = in_order_plan(stop={"env_steps": 5000})
    assert why_not_exact(plan, Origin.of(parent.path)) == ""
    plan = replace(plan, run=replace(plan.run, save_replay=False))
    assert "its replay is left out" in why_not_exact(plan, Origin.of(parent.path))


def test_a_device_that_is_no_text_is_another_one(parent):
    """A run.json may have been edited."""
    plan, _ = in_order(parent)
    edited = json.loads(plan.to_json())
    edited["components"][CRITIC_LEARNER]["options"]["device"] = 7
    parent.run_file.write_text(json.dumps(edited))
    assert why_not_exact(plan, Origin.of(parent.path)) == "other than in the run before: devices"


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        ({"minutes": 1}, "minutes 1.00 >= 1"),
        ({"minutes": 1.1}, ""),
        ({"env_steps": 600}, "env_steps 600 >= 600"),
        ({"env_steps": 601}, ""),
        ({"trained_transitions": 4800}, "trained_transitions 4800 >= 4800"),
        ({"return": -2}, "return -2 >= -2"),
        ({"return": -1.9}, ""),
    ],
)
def test_all_limits_count_from_the_first_run(parent, stop, said):
    """By the same condition that ends a run."""
    assert reached(plan_of(**stop), Origin.of(parent.path)) == said


def test_the_command_that_goes_on_leaves_the_limit_behind():
    """Twice as far; a run that was interrupted needs no more."""
    stop = StopPlan(mean_return=3.0, env_steps=600, minutes=1.5)
    assert further(stop, "env_steps 600 >= 600") == " --set run.stop.env_steps=1200"
    assert further(stop, "minutes 1.50 >= 1.5") == " --set run.stop.minutes=3.0"
    assert further(stop, "env_steps 615 >= 600") == " --set run.stop.env_steps=1200"
    assert further(stop, "env_steps 5000 >= 600") == " --set run.stop.env_steps=10200"
    assert further(stop, "return 3.0 >= 3") == " --set run.stop.return=none"
    assert further(stop, "interrupted by Ctrl-C") == further(stop, "") == ""


def test_a_best_policy_of_another_environment_is_left_behind(parent, tmp_path):
    """Its score says nothing here."""
    plan = topology.load({"run": {**PENDULUM["run"], "env_kwargs": {"g": 9.0}}})
    child, said = resume(tmp_path / "child", parent, plan)
    assert not child.best_policy.exists()
    assert any("is left behind: it was scored in an environment of other arguments" in line for line in said)
    assert not any(e.get("best") for e in read_journal(child.metrics))
    parent.best_policy.write_bytes(b"torn")
    _, said = resume(tmp_path / "other", parent)
    assert any("is left behind" in line and "cannot be used" in line for line in said)


def scoring(steps=None, ranges=None, **run):
    """A plan whose evaluator plays so; Pendulum itself ends its episodes after 200 steps."""
    settings = [] if steps is None else [f"components.evaluator.episode_steps={steps}"]
    plan = topology.load({"run": {**PENDULUM["run"], **run}}, settings)
    evaluator = plan.components["evaluator"]
    options = {**evaluator.options, "randomize": ranges is not None}
    components = {**plan.components, "evaluator": replace(evaluator, options=options)}
    return replace(plan, components=components, run=replace(plan.run, randomize=ranges or {}))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"env_kwargs": {"max_episode_steps": 20}},
            "in episodes of another length: at most 200 steps, here 20",
        ),
        ({"steps": 20}, "in episodes of another length: at most 200 steps, here 20"),
        ({"ranges": {"body_mass": (0.8, 1.2)}}, "on models drawn otherwise"),
        ({"steps": 200}, ""),
        ({"steps": 500}, ""),
        ({"env_kwargs": {"max_episode_steps": 200}}, ""),
        ({"env_kwargs": {"max_episode_steps": 500}, "steps": 200}, ""),
        ({"env_kwargs": {"max_episode_steps": 200, "g": 9.0}}, "in an environment of other arguments"),
    ],
    ids=[
        *("env_kwargs", "episode_steps", "randomize", "as long", "no longer"),
        *("its own limit", "only training is longer", "paid otherwise"),
    ],
)
def test_a_best_policy_stays_where_its_score_is_of_the_same_episodes(parent, tmp_path, settings, said):
    """By their length and models, whichever option says so; a score of others does not end the run either."""
    plan = scoring(**settings)
    child, lines = resume(tmp_path / "child", parent, plan)
    assert child.best_policy.exists() == (not said)
    left = f"the best policy so far, {parent.best_policy}, is left behind: it was scored {said}"
    assert [line[: len(left)] for line in lines if "is left behind" in line] == [left] * bool(said)
    stop = replace(plan, run=replace(plan.run, stop=StopPlan(mean_return=-2.0)))
    assert bool(reached(stop, Origin.of(parent.path))) == (not said)


def test_a_best_policy_on_models_of_other_ranges_is_left_behind(parent, tmp_path):
    """Of the same ones it stays."""
    saved = Policy.load(parent.best_policy)
    saved.save(parent.best_policy, {**saved.metadata, "randomize": '{"body_mass": [0.8, 1.2]}'})
    for number, (high, stays) in enumerate(((1.2, True), (1.5, False))):
        child, _ = resume(tmp_path / str(number), parent, scoring(ranges={"body_mass": (0.8, high)}))
        assert child.best_policy.exists() == stays


@pytest.mark.parametrize("by_its_own", [False, True], ids=["evaluated by none", "by one of its own"])
def test_of_an_environment_that_no_program_makes_a_policy_with_a_score_goes_on(tmp_path, by_its_own):
    """The newest of a run that evaluates nothing is no best one, and none is left behind."""
    plan = topology.load({"run": {"env": "crane", **BOX}, "components": own_sampler(tmp_path)})
    folder = begin(tmp_path / "parent", plan)
    checkpoint(folder, 60.0, 600)
    save_for(folder.best_policy, plan.environment.to_dict(), "sac", confirmed="True", timed_out="False")
    if not by_its_own:
        about = {"environment": json.dumps(plan.environment.to_dict())}
        Policy.load(folder.best_policy).save(folder.best_policy, about)
    child, said = resume(tmp_path / "child", folder, plan)
    assert child.best_policy.exists() == by_its_own
    lines = [line for line in said if "best policy" in line]
    stays = f"the best policy so far is {folder.best_policy}, until a better one comes"
    assert lines == [stays] * by_its_own


@pytest.mark.parametrize(("name", "stays"), [("bike.py", False), ("pymunk", True)], ids=["file", "package"])
def test_a_best_policy_of_an_environment_that_was_edited_is_left_behind(parent, tmp_path, name, stays):
    """A run before may have been paid otherwise; of an earlier release, which has not kept its code, and of a
    package, whose version seldom changes what is paid, it stays.
    """
    stated, plan = json.loads(parent.run_file.read_text()), plan_of()
    for number, code in enumerate(({"environment": {name: "1"}}, {})):
        parent.run_file.write_text(json.dumps({**stated, "own_code": code}))
        edited = replace(plan, own_code={"environment": {name: "2"}})
        child, said = resume(tmp_path / str(number), parent, edited)
        assert child.best_policy.exists() == (stays or not code)
        why = f"is left behind: it was scored in an environment of other code: {name} changed since"
        assert any(why in line for line in said) != child.best_policy.exists()


def test_a_best_policy_of_an_earlier_release_goes_on_under_the_name_that_it_has_now(parent, tmp_path):
    """Its file has the name as it was typed, without the version; one of another environment stays behind."""
    for kept, goes_on in (("Pendulum", True), ("Pendul", False)):
        policy(parent, -2.0, kept)
        child, _ = resume(tmp_path / kept, parent)
        assert child.best_policy.exists() == goes_on


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Settings of a run on data alone."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    return ["run.algorithm=td3_bc", "components.sampler.count=0", "data.own.source=minari:own-v0"]


def test_a_run_on_data_alone_says_its_own_reason(parent, alone):
    """Whatever its checkpoint: its learners have no samples by which they could rest at one count."""
    plan = topology.load("pendulum", [*alone, "balance.mode=lockstep"])
    parent.run_file.write_text(plan.to_json())
    said = why_not_exact(plan, Origin.of(parent.path))
    assert said == "the learners of a run on data alone write at no common count"


def test_only_a_replay_that_samplers_fill_is_waited_for(parent, tmp_path, alone):
    """A run on data alone has its whole replay at once."""
    for number, settings in enumerate(([], alone)):
        _, said = resume(tmp_path / f"child-{number}", parent, topology.load("pendulum", settings))
        assert any("updates wait until a tenth" in line for line in said) == (settings == [])


def test_of_a_run_on_data_alone_the_looks_up_to_the_checkpoint_go_on(tmp_path, alone):
    """All its policies are of 0 env steps: their time says which of them came before."""
    plan = topology.load("pendulum", alone)
    folder = begin(tmp_path / "parent", plan)
    looks(folder, (50.0, 0, -5.0), (80.0, 0, -1.0))
    checkpoint(folder, 60.0, 0)
    child, _ = resume(tmp_path / "child", folder, plan)
    assert returns(child) == [-5.0]


@pytest.mark.parametrize(
    ("limit", "overrides", "saved", "said"),
    [
        (210_000, [], False, "20,032 transitions of this run, which ends after 10,000"),
        (210_000, ["run.save_replay=true"], False, "20,032 transitions of this run, which ends after 10,000"),
        (210_000, ["run.save_replay=true"], True, ""),
        (250_000, [], False, ""),
        (200_500, ["balance.mode=lockstep"], False, "1,032 transitions of this run, which ends after 500"),
        (202_000, ["balance.mode=lockstep"], False, ""),
    ],
)
def test_a_run_that_ends_before_its_first_update_says_so(parent, monkeypatch, limit, overrides, saved, said):
    """A tenth of a replay that was not saved may be more than is left; of all that a run in order samples
    anew its beginning.
    """
    checkpoint(parent, 70.0, 200_000)
    if saved:
        found = Origin.of(parent.path).checkpoint
        replay = write_part(
            found.path, "critic_learner-replay-replay.json", lambda path: path.write_text("{}")
        )
        complete(found.path, [*found.parts.values(), replay], found.state)
    heard = []
    monkeypatch.setattr(launch, "_launch", lambda plan, arguments, look, lines: heard.extend(lines) or 0)
    words = ["--env", "Pendulum-v1", "--algorithm", "sac", "--resume", str(parent.path)]
    for override in (f"run.stop.env_steps={limit}", *overrides):
        words += ["--set", override]
    assert launch.main(words) == 0
    seen = [line.partition(": no update is taken; try: run.stop.env_steps = ")[0] for line in heard]
    assert [line for line in seen if "transitions of this run" in line] == [
        f"advice: training begins after {said}" for _ in range(bool(said))
    ]


def asked(folder, plan, *asked):
    """Write what was set, ``(t_s, option, value)``, to a run's journal as its broker does."""
    journal, requests = Journal(folder.metrics), Requests()
    for t_s, option, value in asked:
        fields = {"who": "Plateau", "what": "set", "option": option, "value": value}
        journal.write("request", t_s, to_plain(requests.take(plan, fields, t_s)))
    journal.close()


def held(folder):
    """What a run's journal says of options that were set before it."""
    return [entry.get("turned") for entry in read_journal(folder.metrics) if entry["kind"] == "resumed"][-1]


def test_what_was_set_before_the_checkpoint_holds_in_a_resumed_run(parent, tmp_path):
    """Of each option the last value, and in the run after that, too; but not what its topology now states
    otherwise, nor what came after the checkpoint.
    """
    before = (20.0, "learning_rate", 0.25), (30.0, "tau", 0.5), (40.0, "learning_rate", 0.125)
    asked(parent, plan_of(), *before, (50.0, "replay_ratio", 2), (70.0, "tau", 0.75))
    child, said = resume(tmp_path / "child", parent)
    expected = {"learning_rate": 0.125, "tau": 0.5, "replay_ratio": 2.0}
    assert held(child) == expected
    values = "algorithm.learning_rate = 0.125, algorithm.tau = 0.5, balance.replay_ratio = 2"
    line = f"{values} (--set KEY=VALUE ends that)"
    assert f"set while the run before trained, and held: {line}" in said
    checkpoint(child, 80.0, 700)
    grandchild, _ = resume(tmp_path / "grandchild", child)
    assert held(grandchild) == expected
    other = replace(plan_of(), algorithm={**plan_of().algorithm, "tau": 0.3})
    assert held(resume(tmp_path / "other", parent, other)[0]) == {"learning_rate": 0.125, "replay_ratio": 2.0}
    grandchild, _ = resume(tmp_path / "ended", child, other)
    checkpoint(grandchild, 90.0, 800)
    ended = {"learning_rate": 0.125, "replay_ratio": 2.0}
    assert (held(grandchild), turned_in(grandchild.metrics)) == (ended, ended)
    assert held(resume(tmp_path / "great", grandchild, other)[0]) == ended
    in_order = topology.load(PENDULUM, ["balance.mode=lockstep"])
    fresh, said = resume(tmp_path / "in_order", parent, in_order)
    assert held(fresh) is None
    lost = [line for line in said if line.startswith("set while the run before trained, and not held: ")]
    assert [line.split(": ")[1] for line in lost] == ["learning_rate 0.125", "tau 0.5", "replay_ratio 2.0"]
    assert all("a run in order gives the same numbers again" in line for line in lost)


@pytest.mark.parametrize(
    ("settings", "ended"),
    [
        ([], []),
        (["algorithm.tau=0.005"], []),  # the line of the run before, repeated
        (["algorithm.tau=0.005", "algorithm.tau=0.005"], ["tau"]),
        (["algorithm.learning_rate=1e-3", "balance.replay_ratio=8"], ["learning_rate", "replay_ratio"]),
        (["algorithm={ gamma = 0.9 }"], ["learning_rate", "tau"]),
        (["algorithm.learning_starts=100"], []),
    ],
)
def test_a_line_that_sets_an_option_ends_what_was_set_before(parent, tmp_path, settings, ended):
    """Also to the number that the topology has stated all along; in the run after that, too."""
    plan = replace(plan_of(), command=("pendulum", "--set=algorithm.tau=0.005"))
    (parent.path / "run.json").write_text(plan.to_json())
    asked(parent, plan, (20.0, "learning_rate", 0.25), (30.0, "tau", 0.5), (50.0, "replay_ratio", 2))
    child, _ = resume(tmp_path / "child", parent, plan, *settings)
    expected = {"learning_rate": 0.25, "tau": 0.5, "replay_ratio": 2.0}
    expected = {name: value for name, value in expected.items() if name not in ended}
    assert held(child) == (expected or None)
    checkpoint(child, 80.0, 700)
    assert held(resume(tmp_path / "grandchild", child, plan, "algorithm.tau=0.005")[0]) == (expected or None)


def test_a_schedule_that_has_come_to_its_end_stays_there_and_the_run_says_so(tmp_path):
    """Not one that is stated anew, nor one of counts of its own, nor where the end was not reached."""

    def stating(env_steps, **rates):
        run = {**PENDULUM["run"], "stop": {"env_steps": env_steps}}
        return topology.load({"run": run, "algorithm": {"tau": {**BY_COUNT, "to": 0.01}, **rates}})

    parent = begin(tmp_path / "parent", stating(600, learning_rate=DECAY))
    checkpoint(parent, 60.0, 600)
    stays = "algorithm.learning_rate stays at 0, where its schedule over the run before has ended"

    def said(name, plan, before=parent):
        return [line for line in resume(tmp_path / name, before, plan)[1] if "stays at" in line]

    assert said("same", stating(1200, learning_rate=DECAY)) == [
        f"{stays} (--set algorithm.learning_rate=NUMBER, or another schedule, moves it)"
    ]
    assert said("new", stating(1200, learning_rate={**DECAY, "to": 1e-5})) == []
    asked(parent, stating(600, learning_rate=DECAY), (50.0, "learning_rate", 0.5))
    assert said("turned", stating(1200, learning_rate=DECAY)) == [], "what was set holds, not the schedule"
    halfway = begin(tmp_path / "halfway", stating(1200, learning_rate=DECAY))
    checkpoint(halfway, 60.0, 600)
    assert said("goes_on", stating(2400, learning_rate=DECAY), halfway) == []


def test_what_was_set_holds_whatever_another_machine_measures(parent, tmp_path):
    """A measured batch scales the options that follow it; what their topology states stays the same."""

    def measured(scale):
        plan = plan_of()
        stated = plan.algorithm["learning_rate"]
        options = {"learning_rate": {"rule": "sqrt", "stated": stated, "scaled": scale * stated}}
        scaling = {"reference_batch_size": 256, "kappa": scale**2, "options": options}
        algorithm = {**plan.algorithm, "learning_rate": scale * stated}
        return replace(plan, algorithm=algorithm, measured={"scaling": scaling})

    asked(parent, measured(2.0), (20.0, "learning_rate", 0.25))
    assert held(resume(tmp_path / "child", parent, measured(3.0))[0]) == {"learning_rate": 0.25}


def test_what_trained_transitions_are_left_is_said(parent, tmp_path):
    """As of the other limits that count."""
    _, said = resume(
        tmp_path / "child", parent, plan_of(minutes=10, env_steps=1000, trained_transitions=9000)
    )
    left = "9.0 of 10 minutes, 400 of 1,000 env steps and 4,200 of 9,000 trained transitions are left"
    assert said[0].endswith(f"count for the limits of run.stop: {left}")


def test_a_chain_of_three_is_one_curve_though_its_parents_are_gone(parent, tmp_path, capsys):
    """Each journal holds all before; the table shows the parent where it is, or was."""
    child, _ = resume(tmp_path / "child", parent)
    looks(child, (70.0, 700, 1.0))
    checkpoint(child, 90.0, 900)
    grandchild, _ = resume(tmp_path / "grandchild", child)
    looks(grandchild, (100.0, 1000, 2.0))
    shutil.rmtree(parent.path)
    moved = RunFolder(child.path.rename(tmp_path / "moved"))
    assert returns(grandchild) == [-9.0, -5.0, -4.0, -3.0, 1.0, 2.0]
    runs = {run.folder: run for run in find_runs(tmp_path)}
    parents = {folder.name: parent_of(run, runs.values()) for folder, run in runs.items()}
    assert parents == {"moved": parent.path, "grandchild": moved.path}
    resumed = [e for e in read_journal(grandchild.metrics) if e["kind"] == "resumed"]
    assert [(e["t_s"], e["counts"]["env_steps"]) for e in resumed] == [(60.0, 600), (90.0, 900)]
    assert main(["runs", str(tmp_path)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.endswith("goes on from")
    assert [row.split()[-1] for row in rows] == ["parent", "moved"]
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert [run["parent"] for run in json.loads(capsys.readouterr().out)] == ["parent", "moved"]


def test_runs_are_listed_while_others_are_deleted(parent, tmp_path):
    """Somebody cleans up beside the table: it shows what is there."""
    over = threading.Event()

    def come_and_go():
        while not over.is_set():
            shutil.copytree(parent.path, tmp_path / "guest" / "run")
            shutil.rmtree(tmp_path / "guest")

    beside = threading.Thread(target=come_and_go)
    beside.start()
    try:
        seen = [{run.folder for run in find_runs(tmp_path)} for _ in range(1000)]
    finally:
        over.set()
        beside.join()
    assert all(parent.path in folders for folders in seen)


def test_a_lineage_counts_once(parent, tmp_path, capsys):
    """Ancestors are the beginning of their children's curves; of two children of one setting the one that
    came further counts, and one of another setting beside it.
    """
    names = ("near", "far", "other")
    plans = (plan_of(), plan_of(), topology.load({**PENDULUM, "algorithm": {"learning_rate": 1e-5}}))
    for name, plan, steps in zip(names, plans, (700, 900, 800), strict=True):
        child, _ = resume(tmp_path / name, parent, plan)
        looks(child, (70.0, steps, 1.0))
    looks(begin(tmp_path / "seed2", plan_of()), (10.0, 100, -9.0))
    found = {run.folder.name for run, _ in evaluated_runs([str(tmp_path)])}
    assert found == {"far", "other", "seed2"}
    said = capsys.readouterr().err
    assert f"left out: {parent.path}: {tmp_path / 'far'} goes on from it" in said
    assert f"left out: {tmp_path / 'near'}: {tmp_path / 'far'} has the same first run" in said


def test_a_resumed_run_that_was_killed_early_hands_on_what_it_went_on_from(parent, tmp_path):
    """It has no checkpoint of its own; what it had evaluated is lost with its networks. A parent that is gone
    is named.
    """
    killed, _ = resume(tmp_path / "killed", parent)
    looks(killed, (65.0, 650, 9.0))
    again, _ = resume(tmp_path / "again", killed)
    assert returns(again) == [-9.0, -5.0, -4.0, -3.0]
    assert Origin.of(again.path).checkpoint.path == parent.checkpoints / "000000000600-000060000"
    assert len(Origin.of(again.path).ancestors) == 3
    shutil.rmtree(parent.path)
    with pytest.raises(CheckpointError, match=r"no complete checkpoint in .*again/.*went on from: .*parent"):
        Origin.of(again.path)
    killed.best_policy.unlink()
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        Origin.of(begin(tmp_path / "new", plan_of()).path)


def test_a_run_whose_checkpoints_cannot_be_read_says_why(parent, tmp_path):
    """Two lie there, one of another release and one damaged: each is named, before a run goes on from its
    parent's in their place and without its work, as where there is no parent.
    """
    child, _ = resume(tmp_path / "child", parent)
    new = begin(tmp_path / "new", plan_of())
    for folder in (child, new):
        for t_s, env_steps in ((70.0, 700), (80.0, 800)):
            checkpoint(folder, t_s, env_steps)
        torn, other = sorted(folder.checkpoints.iterdir())
        (torn / "critic_learner.pt").write_bytes(b"weight!")
        manifest = json.loads((other / MANIFEST).read_text())
        (other / MANIFEST).write_text(json.dumps({**manifest, "format": 99}))
    origin = Origin.of(child.path)
    assert origin.checkpoint.path.parent == parent.checkpoints
    assert ["its format is 99" in line for line in origin.skipped] == [True, False]
    assert origin.skipped[0].endswith(f"the version of spreeze_zmq that wrote it, {release()}")
    with pytest.raises(CheckpointError) as said:
        Origin.of(new.path)
    assert re.search(r"no complete checkpoint in .*its format is 99, .*its CRC-32 is", str(said.value))


def test_the_figures_of_a_long_run_are_thinned_evenly(parent, tmp_path, monkeypatch):
    """From its beginning to the checkpoint."""
    monkeypatch.setattr(lineage, "STATUSES_KEPT", 4)
    tables = {name: {} for name in ("episodes", "replay_ratio", "policy_lag", "workers", "gauges")}
    journal = Journal(parent.metrics)
    for second in range(90):
        journal.write("status", second, {**tables, "env_steps": 10 * second, "trained_transitions": second})
    journal.close()
    child, _ = resume(tmp_path / "child", parent)
    assert [e["t_s"] for e in read_journal(child.metrics) if e["kind"] == "status"] == [15, 30, 45, 60]


def test_of_many_evaluations_a_resumed_run_takes_over_a_curve_and_the_best(parent, tmp_path):
    """As of weeks in which the best policy was scored again and again; ends of the curve and best are those
    of the whole.
    """
    journal = Journal(parent.metrics)
    [scored] = [entry for entry in read_journal(parent.metrics) if entry.get("best")]
    for number in range(10_000):
        look = {**scored, "best": False, "confirmed": False, "mean_return": -float(number), "env_steps": 590}
        journal.write("evaluation", 10.0 + number * 0.004, look)
        journal.write("evaluation", 10.0 + number * 0.004, {**scored, "rescored": 30, "mean_return": -1.5})
    journal.write("evaluation", 59.0, {**look, "mean_return": -0.5})
    journal.close()
    child, _ = resume(tmp_path / "child", parent)
    taken = [entry for entry in read_journal(child.metrics) if entry["kind"] == "evaluation"]
    assert len(taken) <= EVALUATIONS_KEPT
    curve = returns(child)
    assert (curve[0], curve[-3:]) == (-9.0, [-0.5, -4.0, -3.0])
    assert len(curve) > 200
    best = [entry for entry in taken if entry["best"]][-1]
    assert (best["mean_return"], best["t_s"]) == (-2.0, 60.0)


def test_a_strangers_journal_is_taken_over_as_far_as_it_is_whole(parent, tmp_path):
    """Whatever its lines hold."""
    lines = ["{}", "[]", '{"kind": 3, "t_s": 1}', '{"kind": "status", "t_s": 5.0, "env_steps": "x"}']
    lines += [
        '{"kind": "evaluation", "t_s": 1.0, "env_steps": -3}',
        '{"kind": "evaluation", "t_s": "x"}',
        "{",
    ]
    lines += ['{"kind": "status", "t_s": 6.0, "env_steps": 1, "trained_transitions": 1, "episodes": {}}']
    for counts in ("null", '{"env_steps": "x"}', '{"episodes": NaN}', '{"episodes": Infinity}'):
        lines += [f'{{"kind": "resumed", "t_s": 7.0, "counts": {counts}}}']
    lines += ['{"kind": "resumed", "t_s": 8.0}']
    with parent.metrics.open("a") as file:
        file.write("\n".join(lines) + "\n")
    child, _ = resume(tmp_path / "child", parent)
    assert returns(child) == [-9.0, -5.0, -4.0, -3.0]
    figures = [entry for entry in read_journal(child.metrics) if entry["kind"] != "evaluation"]
    assert [(entry["kind"], entry["t_s"]) for entry in figures] == [("resumed", 60.0)]


def test_rates_and_findings_are_of_the_run_alone():
    """Though its clock has run before."""
    record = RunRecord(plan_of())
    record.resume({"t_s": 100.0, "counts": {"env_steps": 1000, "critic_flops": 7e9}})
    assert record.summary("", 101.0, final=False)["env_steps_per_s"] == 0.0
    for reported in (0, 1000, 1500):  # first before it is restored
        report = {"role": "critic_learner", "gauges": {}, "counters": {"env_steps": reported}}
        record.learning.take("critic_learner-0/1", report, 110.0)
        assert record.learning.counts["env_steps"] == max(1000, reported)
    assert record.summary("", 150.0, final=False)["env_steps_per_s"] == 10.0
    restarted = RunRecord(plan_of())
    restarted.restore(json.loads(json.dumps(record.to_dict())), 150.0)
    assert (restarted.before_s, restarted.learning.counts["env_steps"]) == (100.0, 1500)
    assert not restarted.learners_are_ready
    doctor = Doctor({})
    doctor.take("evaluation", 1.0, {"mean_return": 5.0, "inherited": True})
    assert doctor.vitals.num_looks == 0


def test_the_wait_for_a_replay_is_said():
    """While the transitions come that replace it, and only in a resumed run."""

    def said(refill, num_sampled):
        replay = SimpleNamespace(num_sampled=num_sampled)
        return ReplayExperience.lacks(SimpleNamespace(refill=refill, replay=replay))

    assert said(5000, 1580) == "3,420 more transitions, too few for its trained networks"
    assert said(5000, 5000) == said(0, 0) == ""
