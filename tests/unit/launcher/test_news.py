"""What a user is told of each status: what is new, and not a flood of it."""

import pytest

from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.launcher.news import LINES_AT_ONCE, LINES_PER_S, News
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder


def test_looks_that_compare_with_no_other_are_told_once(tmp_path):
    """Such a look never ends a run at its return, so its user must know."""
    news = News(RunFolder(tmp_path))
    row = {"num_episodes": 10, "num_truncated": 10, "timed_out": False}
    assert news.of({"evaluation": {"last": None}}) == news.of({"evaluation": {"last": row}}) == []
    cut = {"evaluation": {"last": {**row, "num_truncated": 4, "timed_out": True}}}
    [line] = news.of(cut)
    assert line.startswith("evaluator: 4 of 10 episodes had not ended after components.evaluator.max_s")
    assert news.of(cut) == []
    few, most = ({"evaluation": {"last": {**row, "num_failed": num}}} for num in (10, 1011))
    assert news.of(few) == []
    [line] = news.of(most)
    assert line.startswith("evaluator: 1,011 episodes ended with a failure of their environment, and the 10 ")
    assert news.of(most) == news.of(cut) == []


@pytest.mark.parametrize(
    ("look_s", "limit"), [(8.0, "max_s"), (11.0, "half of components.evaluator.stop_grace_s")]
)
def test_what_has_cut_a_look_is_named(tmp_path, look_s, limit):
    """The first policy of a run that ends early is looked at in its grace, whatever ``max_s`` is."""
    news, row = News(RunFolder(tmp_path)), {"num_episodes": 5, "num_truncated": 5, "timed_out": True}
    assert news.of({"t_s": 10.0, "state": "stopping", "evaluation": {"last": None}}) == []
    last = {**row, "t_s": look_s}
    [line] = news.of({"t_s": 11.5, "state": "stopping", "evaluation": {"last": last}})
    assert (
        f"5 of 5 episodes had not ended after {limit.replace('max_s', 'components.evaluator.max_s')} and"
        in line
    )


def test_a_finding_is_told_when_it_comes_and_when_it_leaves(tmp_path):
    """Once each, whatever its figures are meanwhile; not at the end, when nothing is judged any more."""
    news, plan = News(RunFolder(tmp_path)), topology.load("pendulum", ["algorithm.learning_rate=1.0"])
    status = RunRecord(plan).status("training", {}, 1.0)
    [line] = news.of(status)
    assert line.startswith("finding: algorithm.learning_rate is 1: each update moves every weight")
    assert line.endswith("; try: algorithm.learning_rate = 1e-3")
    status["findings"][0]["seen"] = "other figures"
    assert news.of(status) == []
    assert news.of({**status, "findings": []}) == ["no longer: other figures"]
    assert news.of({**status, "findings": []}) == []
    news.of(status)
    assert news.of({**status, "findings": [], "state": "stopping"}) == []


ROWS = {
    "refusals": {
        **dict.fromkeys(("taker", "sender", "kind", "word", "line"), "a"),
        "count": 1,
        "stuck": False,
    },
    "failures": {"kind": "a", "name": "sampler-0", "summary": "it fell", "count": 1, "survived": True},
    "findings": dict.fromkeys(("name", "seen", "why", "try"), "a"),
}


@pytest.mark.parametrize(("table", "field"), [(table, field) for table in ROWS for field in ROWS[table]])
def test_a_row_with_a_field_of_another_type_is_passed_over(tmp_path, table, field):
    """A broker may be another program; the row as it should be is a line."""
    assert len(News(RunFolder(tmp_path)).of({table: [ROWS[table]]})) == 1
    for odd in ([], {}, None, 1.5):
        assert News(RunFolder(tmp_path)).of({table: [{**ROWS[table], field: odd}]}) == []


@pytest.mark.parametrize("name", ["", "x" * 60_000, "a\0b", "../" * 2000])
def test_a_failure_of_what_can_be_no_file_is_a_line(tmp_path, name):
    """Somebody made the name up; there is no log of it."""
    [line] = News(RunFolder(tmp_path)).of({"failures": [{**ROWS["failures"], "name": name}]})
    assert line == f"{name}: it fell; it goes on"


@pytest.mark.parametrize(
    ("table", "row", "rest"),
    [
        ("requests", {"t_s": 1.0, "line": "x: {}"}, "further requests"),
        ("went_back", {"learner": "critic_learner-0", "why": "{}"}, "further returns to a checkpoint"),
    ],
)
def test_a_flood_is_some_lines_and_where_the_rest_is(tmp_path, table, row, rest):
    """An hour of a peer that asks, or goes back, all the time, eight times in each status."""
    now_s, told = 0.0, []
    news = News(RunFolder(tmp_path), clock=lambda: now_s)
    for second in range(3600):
        now_s = float(second)
        rows = [{name: str(value).format(8 * second + n) for name, value in row.items()} for n in range(8)]
        told += news.of({table: rows})
        assert news.of({table: rows}) == []
    assert LINES_AT_ONCE <= len(told) <= LINES_AT_ONCE + 3600 * LINES_PER_S
    assert told[LINES_AT_ONCE - 1].endswith(str(LINES_AT_ONCE - 1))
    assert set(told[LINES_AT_ONCE:]) == {f"{rest} are in {tmp_path}/metrics.jsonl"}
    now_s += 600
    assert news.of({table: []}) == [f"{rest} are in {tmp_path}/metrics.jsonl"]
    assert len(news.of({table: [{**row, "line": "again", "why": "again"}]})) == 1
