"""The page's connections, in node: what becomes of them as a browser, a network and a run have it."""

from spreeze_zmq.plan import topology
from spreeze_zmq.screen.page import story

#: A clock that is moved by hand, a page without a look, and sockets that are opened and closed by hand.
WORLD = """
let now_ms = 0;
const due = [];
globalThis.performance = { now: () => now_ms };
globalThis.setTimeout = (act, after_ms = 0) => due.push({ at_ms: now_ms + after_ms, act });
globalThis.setInterval = (act, each_ms) => {
  const again = () => { act(); setTimeout(again, each_ms); };
  setTimeout(again, each_ms);
};
const settled = () => new Promise((resolve) => setImmediate(resolve));
const pass = async (span_ms) => {
  const until_ms = now_ms + span_ms;
  for (;;) {
    await settled();
    due.sort((one, other) => one.at_ms - other.at_ms);
    if (!due.length || due[0].at_ms > until_ms) break;
    const { at_ms, act } = due.shift();
    now_ms = at_ms;
    act();
  }
  now_ms = until_ms;
};
class Place {
  inner = [];
  dataset = {};
  setAttribute(name, value) { this[name] = value; }
  append(...inner) { this.inner.push(...inner); }
  replaceChildren(...inner) { this.inner = inner; }
  querySelector(names) { return this.inner.find(({ tag }) => names.split(", ").includes(tag)) ?? null; }
  remove() {
    for (const place of Object.values(places)) place.inner = place.inner.filter((one) => one !== this);
  }
}
const places = {};
const listeners = {};
globalThis.document = {
  hidden: false,
  getElementById: (id) => (places[id] ??= new Place()),
  createElement: (tag) => Object.assign(new Place(), { tag }),
  addEventListener: (name, act) => (listeners[name] = act),
};
const look = (hidden) => { document.hidden = hidden; listeners.visibilitychange(); };
globalThis.location = { href: "http://127.0.0.1:1/token/" };
const sockets = [];
globalThis.WebSocket = class {
  static OPEN = 1;
  constructor(url) { Object.assign(this, { url: String(url), readyState: 0 }); sockets.push(this); }
  accept() { this.readyState = 1; this.onopen?.(); }
  hear(said) { this.onmessage?.({ data: said.blob ? said : JSON.stringify(said) }); }
  fail() { this.readyState = 3; this.onclose?.(); }
  close() { if (this.readyState < 2) { this.readyState = 2; setTimeout(() => this.fail(), 5); } }
};
const isOpen = ({ readyState }) => readyState < 2;
"""

AGENT = f"""
{WORLD}
const {{ Agent }} = await import("./agent.js");
const run = {{ ended: null }};
const agent = new Agent(run);
agent.allow(true);
"""


def test_a_hidden_page_is_sent_nothing_however_often_it_is_looked_away_from(told):
    """There and back within the time after which a lost connection is made again."""
    script = f"""{AGENT}
sockets[0].accept();
for (let i = 0; i < 3; i++) {{
  look(true);
  await pass(100);
  look(false);
  await pass(5000);
}}
const shown = sockets.filter(isOpen).length;
look(true);
await pass(5000);
const hidden = sockets.filter(isOpen).length;
look(false);
sockets.at(-1).fail();
await pass(5000);
console.log(JSON.stringify([shown, hidden, sockets.filter(isOpen).length]));
"""
    assert told(script) == [1, 0, 1]


def test_pictures_that_come_before_the_last_one_has_loaded_take_no_memory(told):
    """All but the one on the stage are released."""
    script = f"""{AGENT}
const kept = new Set();
URL.createObjectURL = ({{ blob }}) => {{ kept.add(blob); return blob; }};
URL.revokeObjectURL = (url) => kept.delete(url);
for (const blob of ["first", "second", "third"]) sockets[0].hear({{ blob }});
console.log(JSON.stringify([...kept, places.stage.inner[0].src]));
"""
    assert told(script) == ["third", "third"]


def test_the_stage_of_a_run_that_ends_unseen_says_so(told):
    """MuJoCo's viewer was taken off it, which would be fed; a picture stays, and one that is seen as well."""
    script = f"""{AGENT}
const shown = () => {{
  const [{{ tag, inner }}] = places.stage.inner;
  return tag === "p" ? inner[0] : tag;
}};
const end = (hidden) => {{
  document.getElementById("stage").replaceChildren();
  look(false);
  sockets.at(-1).hear({{ mode: "viewer" }});
  look(hidden);
  run.ended = "minutes 1";
  agent.end();
  agent.end();
  look(false);
  run.ended = null;
  agent.follow();
  return shown();
}};
console.log(JSON.stringify([end(false), end(true)]));
"""
    assert told(script) == ["iframe", "the run is over: spreeze view shows its best policy at work"]


#: A page of a run that trains: its feed, and what it says; what the address answers is given by each test.
FEED = f"""
{WORLD}
const {{ Agent }} = await import("./agent.js");
const {{ Feed }} = await import("./feed.js");
const {{ Run }} = await import("./run.js");
let answer = null;
let knocks = 0;
globalThis.fetch = async () => {{
  knocks++;
  if (!answer) throw new TypeError("refused");
  return {{ status: answer }};
}};
const run = new Run();
const agent = new Agent(run);
let said = "";
const feed = new Feed(run, {{
  begin() {{}},
  change() {{}},
  allow: (connected) => agent.allow(connected),
  notice: (text) => (said = text),
}});
const story = [{{ topic: "run", t_s: 0, about: {{ live: true, run_dir: "runs/one" }} }}];
const status = [{{ topic: "status", t_s: 1, about: {{ t_s: 1, processes: {{}} }} }}];
const fed = () => sockets.filter(({{ url }}) => url.endsWith("/feed"));
const live = () => sockets.filter(isOpen).map(({{ url }}) => url.split("/").at(-1));
fed()[0].accept();
fed()[0].hear(story);
sockets[1].hear({{ mode: "viewer" }});
const [viewer] = places.stage.inner;
viewer.contentWindow = {{ rest: () => (viewer.rests = true) }};
"""


def test_a_connection_that_leads_nowhere_is_left_and_made_again(told):
    """Nothing closes it where a machine slept or a tunnel's other end is gone, nor ever ends its closing."""
    script = f"""{FEED}
sockets[1].accept();
for (const socket of sockets) socket.close = () => {{ socket.readyState = 2; }};
for (let i = 0; i < 10; i++) {{ await pass(5000); fed()[0].hear(status); }}
const before = [fed().length, run.lost, said];
await pass(16_000);
const lost = [run.lost, said];
await pass(1000);
fed()[1].accept();
fed()[1].hear(story);
fed()[0].hear([{{ topic: "over", t_s: 0, about: {{ reason: "late" }} }}]);
console.log(JSON.stringify([before, lost, [fed().length, run.lost, said, run.ended], live()]));
"""
    before, lost, after, live = told(script)
    assert before == [1, "", ""]
    assert lost == ["not connected", "Nothing comes from the run any more; connecting again"]
    assert after == [2, "", "", None]
    assert live == ["feed", "agent"]


def test_the_story_of_a_long_run_may_take_its_time(told):
    """As long as its server waits until it is taken."""
    script = f"""{FEED}
fed()[0].fail();
await pass(1000);
fed()[1].accept();
await pass(40_000);
console.log(JSON.stringify([fed().length, (await pass(10_000), fed().length)]));
"""
    assert told(script) == [2, 3]


def test_a_story_that_is_still_read_is_waited_for_and_said_to_be(told):
    """However slow its disk: who asked again would have it read once more. Its sending takes its own time."""
    script = f"""{FEED}
fed()[0].fail();
await pass(1000);
fed()[1].accept();
for (let i = 0; i < 30; i++) {{ await pass(5000); fed()[1].hear([]); }}
const reading = [fed().length, run.lost, said];
await pass(30_000);
fed()[1].hear(story);
const after = [fed().length, run.lost, said];
console.log(JSON.stringify([reading, after, (await pass(17_000), fed().length)]));
"""
    reading, after, then = told(script)
    assert reading == [2, "", "The record of the run is being read, for 2:30 by now"]
    assert after == [2, "", ""]
    assert then == 3


def test_a_run_whose_broker_says_little_does_not_stand_still(told):
    """A status may be due more rarely than the page would wait for one."""
    rarely = ["components.broker.status_interval_s=20", "components.broker.heartbeat_timeout_s=60"]
    begins = [story.run_entry(topology.load("pendulum", rarely), live=True)]
    script = f"""GIVEN
{FEED}
const beats = async (num) => {{ for (let i = 0; i < num; i++) {{ await pass(5000); fed()[0].hear([]); }} }};
fed()[0].hear(begins);
await beats(11);
const early = run.lost;
fed()[0].hear(status);
await beats(13);
console.log(JSON.stringify([early, run.lost, fed().length]));
"""
    assert told(script, begins=begins) == ["", "silent", 1]


def test_a_run_that_stands_still_behind_a_connection_that_holds_is_said_to(told):
    """Its server speaks, and nobody else: nothing is read again for that."""
    script = f"""{FEED}
const beats = async () => {{ for (let i = 0; i < 4; i++) {{ await pass(5000); fed()[0].hear([]); }} }};
fed()[0].hear(status);
await beats();
const silent = [run.lost, said];
fed()[0].hear(status);
console.log(JSON.stringify([silent, [run.lost, said], fed().length]));
"""
    (lost, said), after, num = told(script)
    assert lost == "silent"
    assert said.startswith("The run has said nothing for 0:")
    assert (after, num) == (["", ""], 1)


def test_who_was_left_by_a_run_knocks_at_no_other_runs_door(told):
    """The address may be another run's by now, whose page would be started for nobody; the agent is not asked
    for while the run's server is not there.
    """
    script = f"""{FEED}
const refuse = async (span_ms) => {{
  for (let until_ms = now_ms + span_ms; now_ms < until_ms; await pass(100))
    for (const socket of sockets) if (socket.readyState === 0) socket.fail();
}};
sockets.forEach((socket) => socket.fail());
await refuse(60_000);
const [lost, tries] = [said, fed().length];
await refuse(300_000);
const rarely = [said, run.lost, fed().length - tries, sockets.length - fed().length];
answer = 403;
await refuse(60_000);
const [known, tried] = [said, sockets.length + knocks];
await refuse(600_000);
const later = sockets.length + knocks - tried;
console.log(JSON.stringify([lost, rarely, known, later, places.stage.inner[0].rests]));
"""
    lost, (away, state, tries, agents), known, later, rests = told(script)
    assert lost == "The connection is lost; trying again"
    assert away == "No run answers here any more. If it has ended: spreeze view runs/one"
    assert state == "not connected"
    assert 9 <= tries <= 12
    assert agents == 1
    assert "Another run has this address now" in known
    assert "spreeze view runs/one" in known
    assert (later, rests) == (0, True), "MuJoCo's viewer keeps what it shows, and asks for no more"


def test_a_page_whose_server_is_back_goes_on_as_before(told):
    """However long it was away; with another viewer than the one that has lost its own connections."""
    script = f"""{FEED}
sockets.forEach((socket) => socket.fail());
for (let i = 0; i < 3000; i++) {{ await pass(100); fed().at(-1).readyState === 0 && fed().at(-1).fail(); }}
await pass(35_000);
fed().at(-1).accept();
fed().at(-1).hear(story);
const emptied = !places.stage.inner.length;
sockets.at(-1).hear({{ mode: "viewer" }});
console.log(JSON.stringify([run.lost, said, live(), emptied, places.stage.inner[0] !== viewer]));
"""
    assert told(script) == ["", "", ["feed", "agent"], True, True]
