"""Which releases two machines must have in common."""

import sys
from dataclasses import replace
from importlib import metadata

import pytest

from spreeze_zmq.base.provenance import installed
from spreeze_zmq.nodes.packages import difference
from spreeze_zmq.plan import topology
from tests.unit.data.made import dataset


@pytest.mark.parametrize("key", ["env", "algorithm"])
def test_the_packages_of_a_users_own_modules_are_compared(key):
    """Of the algorithm as of the environment: the code of both runs there."""
    plan = topology.load("pendulum")
    own = replace(plan, run=replace(plan.run, **{key: "msgpack.of:Mine"}))
    older = {**installed(), "msgpack": "0.1"}
    assert difference(plan, installed(), older) == ""
    assert "it has msgpack 0.1, the run " in difference(own, installed(), older)
    without = {name: version for name, version in installed().items() if name != "msgpack"}
    assert "it has no msgpack" in difference(own, installed(), without)


@pytest.mark.parametrize("layout", ["src", "flat"])
@pytest.mark.parametrize("key", ["env", "algorithm"])
def test_a_package_whose_files_are_sent_along_need_not_be_installed(tmp_path, monkeypatch, key, layout):
    """As after ``pip install -e .``: its own folder is searched first there, the topology's last."""
    source = tmp_path / "src" if layout == "src" else tmp_path
    (source / "proj_of_mine").mkdir(parents=True)
    (source / "proj_of_mine" / "__init__.py").write_text("")
    info = tmp_path / "site" / "proj_of_mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: proj-of-mine\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("proj_of_mine\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site"), str(source)])
    assert metadata.packages_distributions()["proj_of_mine"] == ["proj-of-mine"]
    plan = topology.load("pendulum")
    run = replace(plan.run, **{key: "proj_of_mine:Mine"})
    plan = replace(plan, run=run, topology_file=str(tmp_path / "mine.toml"))
    here = {**installed(), "proj-of-mine": "1.0"}
    assert difference(plan, here, installed()) == ""
    sys.modules.pop("proj_of_mine", None)
    older = difference(plan, here, {**installed(), "proj-of-mine": "0.9"})
    assert older == "" if layout == "src" else "it has proj-of-mine 0.9, the run 1.0" in older


@pytest.mark.parametrize(
    ("engine", "settings", "samples", "refused"),
    [
        ("envpool", (), True, True),
        ("envpool", (), False, False),
        ("envpool", ("groups.count=2", "placement.member=node"), False, True),
        ("envpool", ("placement.evaluator=node",), False, True),
        ("envpool", ("placement.evaluator=desk*",), False, True),
        ("envpool", ("placement.evaluator=rack*",), False, False),
        ("envpool", ("placement.actor_learner=node",), False, False),
        ("envpool", ("components.sampler.backend=gymnasium",), True, False),
        ("numpy", ("components.sampler.backend=envpool",), True, True),
        ("numpy", (), True, False),
    ],
)
def test_a_machine_without_the_library_that_steps_the_environments_hears_so(
    engine, settings, samples, refused
):
    """As it joins: its samplers, or the evaluator, would fail one after the other, and the run with them. A
    machine that only learns needs no such library.
    """
    plan = topology.load("pendulum", settings)
    plan = replace(plan, timing={**plan.timing, "backend": engine})
    here = {**installed(), "envpool": "1.1.1"}
    without = {name: version for name, version in here.items() if name != "envpool"}
    assert difference(plan, here, here, host="desk-1", samples=samples) == ""
    said = difference(plan, here, without, host="desk-1", samples=samples)
    assert said == "it has no envpool, the run 1.1.1: pip install 'envpool==1.1.1' there" * refused


def test_the_evaluator_of_a_run_on_data_alone_needs_what_steps_its_environment(tmp_path, monkeypatch):
    """No sampler runs, and its episodes are played all the same."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    alone = ["run.algorithm=td3_bc", "components.sampler.count=0", "data.own.source=minari:own-v0"]
    for wanted, refused in (("node", True), ("rack*", False)):
        plan = topology.load("pendulum", [*alone, f"placement.evaluator={wanted}"])
        plan = replace(plan, timing={**plan.timing, "backend": "envpool"})
        assert bool(difference(plan, {**installed(), "envpool": "1.1.1"}, installed())) == refused
