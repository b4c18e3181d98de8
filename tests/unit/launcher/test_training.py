"""``spreeze_zmq.train``: its arguments are the tables of a topology."""

from itertools import pairwise

import pytest

import spreeze_zmq
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.launcher.training import entry
from spreeze_zmq.launcher.training.launching import End
from spreeze_zmq.plan import topology
from tests.unit.data.made import dataset

ALONE = {"data": {"own": {"source": "minari:own-v0"}}, "components": {"sampler": {"count": 0}}}


@pytest.mark.parametrize(
    ("tables", "said"),
    [({"algorithm": "td3_bc", **ALONE}, "own"), ({"groups": {"count": 2}}, 2)],
    ids=["data alone", "groups"],
)
def test_a_script_can_train_on_data_and_in_groups(tables, said, tmp_path, monkeypatch):
    """As a topology can: each table comes to the launcher by its own name."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    given = []

    def launch(words, *_, show):
        given.extend(words)
        return End(2, "stopped here", 0)

    monkeypatch.setattr(entry, "launch", launch)
    with pytest.raises(InputError, match="stopped here"):
        spreeze_zmq.train("Pendulum-v1", run_dir=tmp_path / "run", progress=False, **tables)
    words = [word for before, word in pairwise(given) if before == "--set"]
    plan = topology.load({"run": {"env": "Pendulum-v1"}}, words)
    assert said in (*plan.data, plan.groups.count)


@pytest.mark.parametrize("code", [-2, 130])
def test_who_interrupts_a_script_before_its_run_has_begun_is_obeyed(code, tmp_path, monkeypatch):
    """While the launcher loads, and while it compiles or measures: nothing failed, and nothing is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entry, "launch", lambda *_, show: End(code, "", 1))
    with pytest.raises(KeyboardInterrupt):
        spreeze_zmq.train("Pendulum-v1", progress=False)
    assert list(tmp_path.iterdir()) == []
