"""What the page draws of a run's processes and channels, in node."""

from itertools import pairwise
from types import SimpleNamespace

from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.launcher.ends import Ends
from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.launcher.outcome import Outcome
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.page import story
from spreeze_zmq.supervisor import Exited, Unwanted

ARROWS = """
const svg = () => ({ setAttribute(name, value) { this[name] = value; } });
globalThis.document = { createElementNS: svg };
const { Flow } = await import("./flow.js");
GIVEN
const edges = { top: 0, bottom: 99, width: 9000 };
const box = (left) => ({ getBoundingClientRect: () => ({ left, right: left + 99, ...edges }) });
const drawn = (ended, live) => {
  const flow = new Flow(box(0), { ...run, ended, about: { ...run.about, live } });
  flow.cards = new Map(Object.keys(run.about.components).map((role, i) => [role, box(500 * i)]));
  flow.arrows = { setAttribute() {}, replaceChildren(...made) { this.made = made; } };
  flow.drawArrows(run.status);
  const moving = flow.arrows.made.filter((one) => one.class?.includes("moving"));
  return [moving.length, flow.arrows.made.map((one) => one.textContent).filter(Boolean).length];
};
console.log(JSON.stringify([drawn(null, true), drawn("minutes 1", true), drawn(null, false)]));
"""


def test_nothing_travels_in_a_run_that_is_over(told):
    """Arrows have no rate and do not move."""
    plan = topology.load("pendulum")
    about, status = (
        story.run_entry(plan, live=True)["about"],
        RunRecord(plan).status("training", Balancer(plan).status(), 1.0),
    )
    status |= {"env_steps_per_s": 9.0}
    status["publication"] = {"actor_learner": {"interval_s": 0.05, "cost": 0.01, "bytes": 1000}}
    (moving, labelled), *over = told(ARROWS, run={"about": about, "status": status})
    assert min(moving, labelled) >= 2
    assert over == [[0, 0], [0, 0]]


GONE = """
const made = () => ({ setAttribute(key, value) { this[key] = value; }, append() {} });
globalThis.document = { createElement: made };
const { Flow } = await import("./flow.js");
const { Run } = await import("./run.js");
GIVEN
const [run, shown] = [new Run(), []];
for (const entry of entries) {
  run.take(entry);
  if (!run.status) continue;
  const rows = { replaceChildren: (...inner) => (rows.inner = inner) };
  const card = { dataset: {}, querySelector: (name) => (name === ".processes" ? rows : {}) };
  new Flow(null, run).drawCard("sampler", card, run.status);
  shown.push([card.dataset.state, ...rows.inner.map((row) => row["data-name"].at(-1))]);
}
console.log(JSON.stringify(shown));
"""


def test_who_is_waited_for_is_gone_until_it_is_back_or_not_wanted_any_more(told, tmp_path):
    """As the launcher tells the broker of its end, and the broker the page."""
    plan, record = topology.load("pendulum"), RunRecord(topology.load("pendulum"))
    crew = SimpleNamespace(deadlines=SimpleNamespace(begin=lambda name: None))
    entries = [story.run_entry(plan, live=True)]

    def tell(kind, **about):
        """What the broker hears of the launcher is noted, and told in the next status."""
        if kind == "exited":
            record.lose(about["name"], about["how"])
            entries.append(story.entry_of(kind, float(len(entries)), about))

    def status(*ready):
        """That of the broker, where these processes have said hello before."""
        t_s = float(len(entries))
        for name in ready:
            record.take_hello(name, len(entries), {"role": "sampler", "pid": 1}, t_s)
        entries.append(story.entry_of("status", t_s, record.status("training", Balancer(plan).status(), t_s)))

    ends = Ends(Outcome(RunFolder(tmp_path), plan), crew, None, Interrupts(), tell, lambda line: None)
    about = {"pid": 1, "code": None, "signal": 9, "words": "", "log_path": tmp_path / "log", "lived_s": 3.0}
    about |= {"expected": False, "killed": False, "overdue": False, "restarting": True}
    status("sampler-0", "sampler-1")
    for name in ("sampler-0", "sampler-1"):
        ends.on_event(Exited(name, **about))
        status()
        status(*{"sampler-0"} & {name})
    ends.on_event(Unwanted("sampler-1"))
    status()
    shown = [
        ["working", "0", "1"],
        ["gone", "1", "0"],
        ["working", "0", "1"],
        ["gone", "0", "1"],
        ["working", "0"],
    ]
    assert [one for one, after in pairwise([*told(GONE, entries=entries), None]) if one != after] == shown
