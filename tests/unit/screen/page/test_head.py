"""What the head of the page says of a run, in node."""

import json
import tempfile

import pytest

from spreeze_zmq.base.errors import InputError, SpreezeError
from spreeze_zmq.base.journal import Journal
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.run.folder import CLAIMED, RunFolder
from spreeze_zmq.screen.page import story, studio
from spreeze_zmq.screen.terminal.numbers import clock
from spreeze_zmq.screen.terminal.words import Progress, progress
from spreeze_zmq.wire.channels import SocketFolder
from spreeze_zmq.wire.channels import folder as socket_folder
from tests.unit.screen.terminal.recorded import Recorded

#: Elements that keep what is put into them, and what is said of each place: ``said`` of its id.
DOCUMENT = """
const made = () => ({
  style: {}, dataset: {}, hidden: null, inner: [],
  setAttribute(name, value) { this[name] = value; },
  append(...inner) { this.inner.push(...inner); },
  replaceChildren(...inner) { this.inner = inner; },
  querySelector: () => made(), querySelectorAll: () => [],
});
const places = {};
const at = (id) => (places[id] ??= made());
globalThis.document = { createElement: made, getElementById: at };
const textOf = (one) => (one.inner ? one.textContent ?? one.inner.map(textOf).join("|") : String(one));
const said = (id) => textOf(at(id));
const { showFigures, showHead } = await import("./head.js");
const { showEvents } = await import("./events.js");
const { Run } = await import("./run.js");
GIVEN
const run = new Run();
for (const entry of entries) run.take(entry);
"""
STANDING = f"""{DOCUMENT}
const about = {{ name: "sampler-0", how: "left" }};
for (let t_s = 0; t_s <= 200; t_s++) run.take({{ topic: "exited", t_s, about }});
showHead(run);
showEvents(at("events"), run);
const events = at("events").inner;
const first = [at("standing").hidden, said("standing"), events.length, textOf(events.at(-1))];
run.takeStatus({{ ...run.status, findings: [], refusals: [] }});
showHead(run);
console.log(JSON.stringify([...first, at("standing").hidden]));
"""
MACHINES = f"""{DOCUMENT}
const {{ showMachines }} = await import("./machines.js");
const hidden = [null, "minutes 1"].map((ended) => {{
  showMachines(at("machines"), Object.assign(run, {{ ended }}));
  return at("machines").hidden;
}});
console.log(JSON.stringify(hidden));
"""
PAST = f"""{DOCUMENT}
showHead(run);
if (run.status) showFigures(run);
console.log(JSON.stringify([at("state").textContent, said("scores"), said("figures").includes(" /s")]));
"""
LEFT = f"""{DOCUMENT}
const left = (status) => {{
  run.takeStatus({{ ...run.status, ...status }});
  showHead(run);
  return [at("left").textContent, at("bar").style.width];
}};
console.log(JSON.stringify(moments.map(left)));
"""


def entries_of(plan, status):
    """The run and its last status, as a browser gets them."""
    return [story.run_entry(plan, live=True), story.entry_of("status", status["t_s"], status)]


def test_what_holds_a_run_back_is_said_as_long_as_it_does(told):
    """However many events have come since."""
    run = Recorded("pendulum", "algorithm.learning_rate=1.0")
    refused = {"sender": "actor_learner-0", "kind": "policy", "word": "bad_parameters", "first": "too few"}
    for t_s in (0.0, 1.0, 9.0):
        run.record.refusals.take("evaluator-0", [{**refused, "count": 3 + int(t_s), "good": 0}], t_s)
    entries = entries_of(run.plan, run.status("training", 12.0))
    is_hidden, standing, num_lines, last_line, is_hidden_later = told(STANDING, entries=entries)
    finding, stuck = standing.split("|")
    assert finding.startswith("finding: algorithm.learning_rate is 1: each update moves")
    assert "; try: " in finding
    assert stuck == (
        "actor_learner-0: evaluator-0 refused 12 policy messages: bad_parameters: too few; none gets through"
    )
    assert (is_hidden, is_hidden_later) == (False, True)
    assert (num_lines, last_line) == (101, f"earlier ones: {run.plan.run_dir}/metrics.jsonl")


def test_the_machines_of_a_run_that_is_over_have_left(told):
    """What they did in its last second is no figure of it."""
    run = Recorded()
    about = {"node": "node-1", "host": "desk2", "cores": 64, "busy": 63.5, "memory_bytes": 1, "gone": False}
    about |= {"processes": ["sampler-8"], "most": 64, "samplers": 1}
    run.record.machines.take({**about, "sent_bytes_per_s": 1e6, "received_bytes_per_s": 0.0})
    entries = entries_of(run.plan, run.status("training", 9.0))
    assert told(MACHINES, entries=entries) == [False, True]


@pytest.fixture
def looked_at(tmp_path, monkeypatch, told):
    """The folder of a run, and a function that gives what its page says where ``spreeze view`` serves it, and
    opens the folders of MuJoCo's viewer as ``viewer`` says.
    """
    run, shown, viewers = Recorded(), [], []
    folder = RunFolder(tmp_path / "runs" / "own")
    folder.path.mkdir(parents=True)
    folder.run_file.write_text(run.plan.to_json())

    class Told:
        def __init__(self, listener, token, story, agent, others):
            listener.close()
            shown.append(story())
            viewers.pop()(agent._open_folders)

        def start(self):
            raise InputError("no page is served here")

    monkeypatch.setattr("spreeze_zmq.screen.page.server.Server", Told)

    def look(viewer=lambda _: None):
        viewers.append(viewer)
        assert main(["view", str(folder.path)]) == 2
        return told(PAST, entries=shown.pop())

    return folder, run, look


def test_a_run_that_recorded_nothing_says_so(looked_at):
    """It was killed before its first status: nothing is loading."""
    _, _, look = looked_at
    assert look() == ["past run, crashed", "nothing was recorded", False]


def test_a_temporary_folder_may_be_deep(looked_at, tmp_path, monkeypatch):
    """As that of a job on a cluster: the socket of MuJoCo's viewer would have too long a path there."""
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))

    def viewer(open_folders):
        studio._listening_at(str(open_folders()[1] / "viewer")).close()

    assert looked_at[2](viewer)[0] == "past run, crashed"
    assert list(deep.iterdir()) == []


def test_a_page_is_served_where_there_is_no_place_for_the_viewer(looked_at, monkeypatch):
    """As on a full disk: its curves need none, and a policy may show itself in pictures."""
    monkeypatch.setattr(socket_folder, "_places", list)

    def viewer(open_folders):
        with pytest.raises(SpreezeError, match="no place for sockets"):  # which is shown in its place
            open_folders()

    assert looked_at[2](viewer)[0] == "past run, crashed"


def test_a_page_that_is_read_from_a_folder_says_whether_its_run_goes_on(looked_at):
    """Without a page of its own it trains all the same; its rates are of now then, and else of its end."""
    folder, run, look = looked_at
    journal = Journal(folder.metrics)
    journal.write("status", 1.0, run.status("training", 1.0))
    journal.close()
    crashed, *_ = look()
    sockets = SocketFolder.create("viewed")
    sockets.hold(folder.path / CLAIMED)
    runs, _, has_rates = look()
    sockets.remove()
    folder.summary.write_text(json.dumps({"exit_reason": "minutes 1"}))
    ended, _, had_rates = look()
    assert [crashed, runs, ended] == [
        "past run, crashed",
        "runs; as of when this page was loaded",
        "past run",
    ]
    assert (has_rates, had_rates) == (True, False)


def test_the_time_left_is_that_of_the_terminal(told):
    """To the condition that comes first at the rates of now, which may rise: a bound only beside a return."""
    stop = {"return": None, "minutes": 10, "env_steps": 1_000_000, "trained_transitions": None}
    first = {"stop": stop, "t_s": 300.0, "env_steps": 40_000, "env_steps_per_s": 60_000.0}
    later = {"stop": {**stop, "return": 500.0}, "env_steps_per_s": 0.0}
    run = Recorded()
    moments = [first, later, {"stop": {**stop, "minutes": None}}, {"t_s": 700.0, "stop": stop}]
    status, expected = run.status("training", 9.0), []
    for moment in moments:
        status |= moment
        way = progress(status)
        at_most = " at most" if status["stop"]["return"] is not None else ""
        left = "" if way is None else f"{clock(way.left_s)} left{at_most}"
        expected.append([left, f"{100 * (way or Progress(0.04, 0.0)).done:.3g}%"])
    assert expected[0] == ["0:16 left", "4%"]
    assert told(LEFT, entries=entries_of(run.plan, run.status("training", 9.0)), moments=moments) == expected
