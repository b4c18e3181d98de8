"""The page's connections, in node: what becomes of them as a browser, a network and a run have it."""

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
