"""Numbers and times as the page writes them, in node, beside the terminal's."""

import pytest

from spreeze_zmq.screen.page import story
from spreeze_zmq.screen.terminal.numbers import clock, decimal
from spreeze_zmq.screen.terminal.words import group_lines
from tests.unit.screen.terminal.recorded import Recorded

WRITTEN = """
import { clock, decimal } from "./format.js";
GIVEN
console.log(JSON.stringify([values.map(decimal), seconds.map(clock)]));
"""
GROUPS = """
const made = () => ({
  inner: [],
  setAttribute() {},
  append(...inner) { this.inner.push(...inner); },
  replaceChildren(...inner) { this.inner = inner; },
  querySelector: () => table,
});
const table = made();
globalThis.document = { createElement: made };
const { showGroups } = await import("./groups.js");
GIVEN
showGroups(made(), { status });
const [, body] = table.inner;
console.log(JSON.stringify(body.inner.map((row) => row.inner.at(-1).inner.join())));
"""
#: Charts that are drawn nowhere, and keep how they would be.
CANVAS = """
globalThis.document = { documentElement: null, getElementById: () => place };
globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => name });
const place = { clientWidth: 300, clientHeight: 190, dataset: {}, replaceChildren() {}, append() {} };
globalThis.uPlot = class {
  destroy() {}
  constructor(options) {
    Object.assign(this, options);
    this.root = { querySelectorAll: () => Array(9).fill({ style: {} }) };
  }
};
"""
AXES = """CANVAS
const { Charts, line } = await import("./charts.js");
GIVEN
const charts = new Charts({});
const drawn = (counted, series) => {
  charts.show("chart", [[]], series, { counted });
  return charts.charts.get("chart");
};
const { axes, series } = drawn("env steps", [line("return", "blue")]);
const labels = axes.slice(0, 2).map((axis) => splits.map(([from, step]) => {
  const values = [0, 1, 2, 3].map((i) => from + step * i);
  return axis.values(null, values, 1, 34, step);
}));
const clocks = drawn("", [line("lag", "blue")]).axes[0];
const read = series.map(({ value }) => value(null, 12_345.6));
const [least_s, room] = [Math.min(...clocks.incrs), axes[1].size(null, ["-12,345.678"])];
console.log(JSON.stringify({ labels, read, least_s, room }));
"""


def test_the_page_writes_numbers_and_times_as_the_terminal_does(told):
    """One run is read on both."""
    values = [0.0, -0.0, 0.00001234, -0.0042, 0.0999, 0.1, 9.996, 10.0, 99.96, 999.4, 1234.56, 9999.4]
    values += [12_345.6, -123_456_789.0, 1e9, -2.5e12, 1e20, 3e-7, 1e-120]
    seconds = [0.0, 0.6, 59.9, 60.0, 3599.7, 3600.0, 86_400.0, 360_000.5]
    assert told(WRITTEN, values=values, seconds=seconds) == [
        [decimal(value) for value in values],
        [clock(second) for second in seconds],
    ]


def test_a_group_that_is_close_to_the_fused_model_is_not_at_it(told):
    """As the terminal has it."""
    row = {"env_steps": 1, "trained_transitions": 1, "rounds": 3, "received_bytes": 100, "lost": False}
    status = {"groups": {"0": {**row, "distance": 0.0031}, "1": {**row, "distance": 0.0}}}
    assert told(GROUPS, status=status) == ["0.3 %", "0.0 %"]
    assert "0.3% from the fused model" in group_lines(status)["group 0"]


def test_labels_of_an_axis_differ_where_its_ticks_do(told):
    """Also of a short stretch far from 0; what is read off a curve has its digits, and no label of a time is
    of less than a second.
    """
    starts_and_steps = [(12_000, 10), (-12_000, 2.5), (1_000_000, 25_000), (2e9, 1), (999_500, 250)]
    starts_and_steps += [(0, 0.25), (0, 2.5e-5), (0.00123, 1e-6), (-1, 0.5), (1000, 500), (5e12, 1e12)]
    drawn = told(AXES.replace("CANVAS", CANVAS), splits=starts_and_steps)
    for labels in drawn["labels"]:
        for (start, step), written in zip(starts_and_steps, labels, strict=True):
            assert [number_of(label) for label in written] == pytest.approx(
                [start + step * i for i in range(4)], abs=step / 50, rel=0
            )
    assert drawn["labels"][1][0] == ["12.00k", "12.01k", "12.02k", "12.03k"]
    assert drawn["read"] == ["12,346", "12,346"]
    assert drawn["least_s"] == 1
    assert drawn["room"] > 65


LINES = f"""{CANVAS}
globalThis.uPlot.join = (tables) => tables.flat();
globalThis.uPlot.paths = {{ stepped: () => null }};
globalThis.document.createElement = () => ({{ append() {{}}, setAttribute() {{}} }});
const {{ Charts }} = await import("./charts.js");
const {{ Run }} = await import("./run.js");
GIVEN
const run = new Run();
for (const entry of entries) run.take(entry);
const charts = new Charts(run);
charts.draw();
const told = ({{ axes, series, legend }}) => ({{
  axes: axes.slice(1).map((axis) => axis.stroke),
  lines: series.slice(1).map((one, i) => [one.stroke, one.dash ?? [], legend.markers.width(null, i + 1)]),
}});
const [rates, lag] = ["rates", "lag"].map((name) => told(charts.charts.get(name)));
console.log(JSON.stringify({{ rates, lag }}));
"""


def test_two_lines_differ_by_more_than_their_colour(told):
    """In the chart and in its legend; each axis has the colour of the line that it measures."""
    run = Recorded("pendulum", "balance.mode=bounded")
    status = run.status("training", 1.0)
    entries = [story.run_entry(run.plan, live=True), story.entry_of("status", 1.0, status)]
    drawn = told(LINES, entries=entries)
    assert drawn["rates"]["axes"] == [colour for colour, *_ in drawn["rates"]["lines"]]
    assert drawn["lag"]["axes"] == ["--muted"]
    for chart in drawn.values():
        dashes, marked = zip(*((tuple(dash), width > 0) for _, dash, width in chart["lines"]), strict=True)
        assert len({*dashes}) == len(dashes) > 1
        assert marked == tuple(map(bool, dashes))


def number_of(label):
    """The number that a label of an axis stands for."""
    unit = {"k": 1e3, "M": 1e6, "G": 1e9}.get(label[-1])
    return float(label.rstrip("kMG").replace(",", "")) * (unit or 1)
