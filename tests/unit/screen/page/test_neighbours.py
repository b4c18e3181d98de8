"""Other runs beside a run, as its page offers and reads them."""

import json
import shutil

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.journal import Journal
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import CLAIMED, RunFolder
from spreeze_zmq.run.history import find_runs
from spreeze_zmq.screen.page import neighbours
from spreeze_zmq.screen.page.address import drawing
from spreeze_zmq.screen.page.neighbours import Neighbours
from spreeze_zmq.screen.page.story import journal
from spreeze_zmq.wire.channels import SocketFolder

ENV = "Pendulum-v1"


@pytest.fixture
def runs(tmp_path):
    """The folder of runs: three of one environment, one of another version of it, and what is no run."""
    for name, about in {
        "own": {"seed": 1},
        "later": {"seed": 2},
        "search/trial-0001": {"seed": 3},
        "elsewhere": {},
    }.items():
        folder = tmp_path / name
        folder.mkdir(parents=True)
        plan = json.loads(topology.load("pendulum").to_json())
        plan["run"] |= about
        plan["environment"]["id"] = ENV if about else "Pendulum-v0"
        (folder / "run.json").write_text(json.dumps(plan))
        lines = Journal(folder / "metrics.jsonl")
        lines.write("evaluation", 1.0, {"env_steps": 10, "mean_return": -1.0, "version": about.get("seed")})
        lines.write("failure", 2.0, {"name": "sampler-0", "summary": "it fell", "traceback": ""})
        lines.close()
    (tmp_path / "notes.txt").write_text("no run")
    return tmp_path


def test_runs_of_the_same_environment_are_offered_and_read(runs):
    """Also those in folders of several; of what happened there only the curves."""
    own = Neighbours(runs / "own", ENV)
    offered = json.loads(own.listing())
    assert {name: about["seed"] for name, about in offered.items()} == {"later": 2, "search/trial-0001": 3}
    for name, about in offered.items():
        [entry] = json.loads(own.entries(name))
        assert (entry["topic"], entry["about"]["version"]) == ("evaluation", about["seed"])


@pytest.mark.parametrize(
    "name", ["own", "elsewhere", "../later", "later/", "/etc", "..", "", ".", "later/../later", "notes.txt"]
)
def test_nothing_else_is_read(runs, name):
    """Whatever name a browser sends."""
    assert Neighbours(runs / "own", ENV).entries(name) is None


def test_a_run_is_named_by_its_folder(runs, monkeypatch):
    """As a shell completes it; what cannot be drawn is said, with what can."""
    monkeypatch.chdir(runs / "search")
    own = Neighbours(runs / "own", ENV)
    assert own.named("trial-0001/") == "search/trial-0001"
    assert own.named(str(runs / "later")) == "later"
    for wrong in ("later", "../own", "../elsewhere", "/", "../notes.txt"):
        with pytest.raises(InputError, match=r"no other run of Pendulum-v1 in .* there are: \w+.*later"):
            own.named(wrong)


def test_a_page_with_several_runs_beside_has_the_folder_read_once(runs, monkeypatch):
    """It asks for the list, then for each; a run that begins later is among them soon."""
    looks = []
    monkeypatch.setattr(neighbours, "find_runs", lambda place: looks.append(place) or find_runs(place))
    own = Neighbours(runs / "own", ENV)
    for name in json.loads(own.listing()):
        assert own.entries(name)
    assert looks == [runs]
    (runs / "search" / "trial-0001").rename(runs / "new")
    monkeypatch.setattr(neighbours, "FOUND_FOR_S", 0.0)
    assert set(json.loads(own.listing())) == {"later", "new"}


BESIDE = """
const made = () => ({
  style: {}, dataset: {}, inner: [], value: "",
  setAttribute() {}, addEventListener() {},
  append(...inner) { this.inner.push(...inner); },
  replaceChildren(...inner) { this.inner = inner; },
  querySelector: () => made(),
});
globalThis.document = { createElement: made, documentElement: null };
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "" });
globalThis.setInterval = () => 0;
globalThis.uPlot = { join: (tables) => tables };
GIVEN
globalThis.location = { hash };
globalThis.fetch = async (path) => {
  const text = path === "runs" ? offered : entries[decodeURIComponent(path.slice(5))];
  return text ? { ok: true, status: 200, json: async () => JSON.parse(text) } : { ok: false, status: 404 };
};
const { Explorer } = await import("./explorer.js");
const { Run } = await import("./run.js");
const drawn = [];
const show = (id, data, series) => drawn.push(...series.map((one) => one.label));
const run = new Run();
for (const entry of own) run.take(entry);
const explorer = new Explorer(made(), run, { show });
explorer.first.value = "evaluation: mean_return";
setTimeout(() => console.log(JSON.stringify([[...explorer.others.keys()], [...new Set(drawn)]])), 100);
"""


def test_a_run_that_is_asked_for_is_drawn_however_many_are_newer(runs, monkeypatch, told):
    """The newest are offered, and those that still run; what is not there is drawn no more."""
    monkeypatch.setattr(neighbours, "MOST_RUNS", 1)
    monkeypatch.setattr(neighbours, "FOUND_FOR_S", 0.0)
    own = Neighbours(runs / "own", ENV)
    [newest] = json.loads(own.listing())
    [older] = {"later", "search/trial-0001"} - {newest}
    assert own.named(str(runs / older)) == older
    hash_, entries = drawing([older, "gone"]), {older: own.entries(older).decode()}
    offered = own.listing().decode()
    story = journal(RunFolder(runs / "own"))
    names, labels = told(BESIDE, hash=hash_, offered=offered, entries=entries, own=story)
    assert names == [older]
    assert labels == ["evaluation: mean return", f"{older}: evaluation: mean return"]
    sockets = SocketFolder.create("neighbours")
    sockets.hold(runs / older / CLAIMED)
    assert list(json.loads(own.listing())) == [newest, older]
    sockets.remove()


def test_a_run_that_was_moved_away_has_none(runs):
    """Its folder may be gone while the page is open."""
    own = Neighbours(runs / "own", ENV)
    shutil.rmtree(runs)
    assert own.listing() == b"{}"


def test_the_page_of_a_run_that_was_renamed_says_its_name_of_now(runs, monkeypatch):
    """Its curves are kept under it, and the command that shows it again finds it."""
    told = []

    class Told:
        def __init__(self, listener, token, story, agent, others):
            listener.close()
            told.append(story()[0]["about"])

        def start(self):
            raise InputError("no page is served here")

    monkeypatch.setattr("spreeze_zmq.screen.page.server.Server", Told)
    plan = json.loads((runs / "own" / "run.json").read_text())
    (runs / "own" / "run.json").write_text(json.dumps({**plan, "run_dir": "/where/it/was"}))
    assert main(["view", str(runs / "own")]) == 2
    assert (told[0]["name"], told[0]["run_dir"]) == ("own", str(runs / "own"))
