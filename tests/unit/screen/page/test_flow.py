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

DRAWN = """
const svg = () => ({ setAttribute(name, value) { this[name] = value; }, append() {} });
globalThis.document = { createElementNS: svg, createElement: svg };
const { Flow } = await import("./flow.js");
GIVEN
const edges = { top: 0, bottom: 99, width: 9000 };
const card = () => ({ dataset: {}, querySelector: () => ({ replaceChildren() {} }) });
const box = (left) => ({ ...card(), getBoundingClientRect: () => ({ left, right: left + 99, ...edges }) });
const gone = new Map([["sampler-7", { how: "left", restarting: true }]]);
const drawn = (ended, state) => {
  const flow = new Flow(box(0), { ...run, gone, ended, about: { ...run.about, state } });
  flow.cards = new Map(Object.keys(run.about.components).map((role, i) => [role, box(500 * i)]));
  flow.arrows = { setAttribute() {}, replaceChildren(...made) { this.made = made; } };
  flow.draw();
  const moving = flow.arrows.made.filter((one) => one.class?.includes("moving"));
  const states = [...flow.cards].map(([role, { dataset }]) => `${role} ${dataset.state}`);
  return [moving.length, flow.arrows.made.map((one) => one.textContent).filter(Boolean).length, states];
};
console.log(JSON.stringify([drawn(null, "running"), drawn("minutes 1", "running"), drawn(null, "ended")]));
"""


def test_nothing_works_or_travels_in_a_run_that_is_over(told):
    """Its last status is of a time in which it ended: processes have no shares, arrows no rates."""
    plan = topology.load("pendulum")
    record = RunRecord(plan)
    record.take_hello("critic_learner-0", 1, {"role": "critic_learner", "pid": 1}, 0.5)
    about, status = (
        story.run_entry(plan, live=True)["about"],
        record.status("training", Balancer(plan).status(), 1.0),
    )
    status |= {"env_steps_per_s": 9.0}
    status["publication"] = {"actor_learner": {"interval_s": 0.05, "cost": 0.01, "bytes": 1000}}
    (moving, labelled, states), *over = told(DRAWN, run={"about": about, "status": status})
    assert min(moving, labelled) >= 2
    assert {"sampler gone", "critic_learner working", "evaluator absent"} < {*states}
    assert over == [[0, 0, [f"{role} absent" for role in about["components"]]]] * 2


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
