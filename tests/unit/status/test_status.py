"""What a person sees: a table of 80 columns in a terminal, greppable lines elsewhere, cheap to draw."""

import io
import os
import subprocess
import sys
import time

import pytest
from rich.cells import cell_len
from rich.console import Console, Group

from spreeze_zmq import topology
from spreeze_zmq.autoscale.balancer import Balancer
from spreeze_zmq.run.record import RunRecord
from spreeze_zmq.status import PLAIN_INTERVAL_S, Status, StatusView, plain_line, remaining_s, table


def workers(count, busy, blocked, starved, cpu_percent, rss_bytes):
    """One role's row."""
    return {
        "count": count,
        "busy": busy,
        "blocked": blocked,
        "starved": starved,
        "cpu_percent": cpu_percent,
        "rss_bytes": rss_bytes,
    }


def score(t_s, env_steps, mean_return, std_return):
    """One evaluation."""
    return {"t_s": t_s, "env_steps": env_steps, "mean_return": mean_return, "std_return": std_return}


LIVING = {
    **{"role": "sampler", "pid": 4242, "ready": True, "silent_s": 0.2, "waiting_for": ""},
    **{"busy": 0.9, "blocked": 0.0, "starved": 0.1, "cpu_percent": 90.0, "rss_bytes": 60_000_000},
}
#: A run that is just being started.
STARTING: Status = {
    "t_s": 0.4,
    "state": "starting",
    "learners": ["critic_learner", "actor_learner"],
    "env_steps": 0,
    "env_steps_per_s": 0.0,
    "trained_transitions": 0,
    "trained_transitions_per_s": 0.0,
    "critic_updates": 0,
    "critic_updates_per_s": 0.0,
    "actor_updates": 0,
    "actor_updates_per_s": 0.0,
    "replay_ratio": {"target": 8.0, "measured": 0.0},
    "policy_lag": {"p50": 0, "p99": 0, "max": 0, "stale": 0, "bound": None},
    "samples": {"produced": 0, "received": 0, "dropped": 0, "in_flight": 0},
    "workers": {},
    "episodes": {
        "count": 0,
        "mean_return": None,
        "std_return": None,
        "recent_return": None,
        "mean_length": None,
    },
    "evaluation": {"last": None, "best": None},
    "stop": {"return": None, "env_steps": None, "trained_transitions": None, "minutes": None},
    "publication": {},
    "devices": {},
    "balance": {"movable": True, "settled": False, "last_change": ""},
    "processes": {
        "actor_learner-0": {
            **LIVING,
            "role": "actor_learner",
            "waiting_for": "critic_learner-0: its weights",
        }
    },
    "gauges": {},
}

#: A long run on a large machine: nothing gets wider than this.
LARGE: Status = {
    "t_s": 36_083.4,
    "state": "warming up",
    "learners": ["critic_learner", "actor_learner"],
    "env_steps": 1_123_456_789,
    "env_steps_per_s": 1_230_123.4,
    "trained_transitions": 912_345_678_901,
    "trained_transitions_per_s": 12_345_678.0,
    "critic_updates": 1_234_567,
    "critic_updates_per_s": 190.2,
    "actor_updates": 617_000,
    "actor_updates_per_s": 88.17,
    "replay_ratio": {"target": 8.0, "measured": 7.981},
    "policy_lag": {"p50": 1, "p99": 13, "max": 12_000, "stale": 0, "bound": None},
    "samples": {
        "produced": 1_123_457_289,
        "received": 1_123_456_789,
        "dropped": 400,
        "in_flight": 100,
    },
    "workers": {
        "broker": workers(1, 0.01, 0.0, 0.0, 1.2, 61e6),
        "critic_learner": workers(1, 0.99, 0.0, 0.01, 99.7, 12.4e9),
        "sampler": workers(128, 0.39, 0.61, 0.0, 4800.0, 290e9),
    },
    "episodes": {
        "count": 1_123_456,
        "mean_return": -1234.567,
        "std_return": 80.5,
        "recent_return": -1230.0,
        "mean_length": 1000.0,
    },
    "evaluation": {
        "last": score(35_000.0, 1_120_000_000, 5123.44, 88.2),
        "best": score(30_000.0, 1_000_000_000, 6123.44, 8.2),
    },
    "stop": {
        "return": 10_000.0,
        "env_steps": 2_000_000_000,
        "trained_transitions": 1_000_000_000_000,
        "minutes": 1000.0,
    },
    "publication": {},
    "devices": {},
    "processes": {"sampler-3": {**LIVING, "pid": 4243}},
    "gauges": {},
    "balance": {"movable": True, "settled": True, "last_change": "samplers 1 -> 4: starved"},
}


class FakeClock:
    """Time that the test moves."""

    now_s = 0.0

    def __call__(self):
        """The time now."""
        return self.now_s


def lines(status):
    """The table as it stands on a terminal of 80 columns, colours left out."""
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(Group(table(status)))
    return out.getvalue().splitlines()


def terminal(width=80):
    """A console that believes to be a terminal, and what it has written."""
    out = io.StringIO()
    return Console(file=out, width=width, force_terminal=True, _environ={"TERM": "xterm-256color"}), out


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [STARTING, LARGE], ids=["starting", "large"])
def test_the_table_fits_80_columns_and_cuts_nothing(status):
    """From the first moment to the largest run."""
    shown = lines(status)
    assert max(cell_len(line) for line in shown) == 80
    assert not any("…" in line for line in shown)


def test_the_table_of_a_large_run_reads_as_it_should():
    """Aligned, with every figure that a person asks for."""
    assert [line.rstrip() for line in lines(LARGE)] == [
        "warming up  10:01:23" + " " * 48 + "  11:52 left",
        "until return 10000 or 2G env steps or 1000G trained or 1000 min".rjust(80),
        "─" * 80,
        "env steps             1,123,456,789   1,230,123 /s   replay ratio   7.98 of 8",
        "trained transitions 912,345,678,901  12,345,678 /s   policy lag p50 1",
        "critic updates            1,234,567         190 /s   policy lag p99 13",
        "actor updates               617,000        88.2 /s   policy lag max 12,000",
        "",
        "processes            count     busy   blocked   starved      cpu    memory",
        "broker                   1       1%        0%        0%       1%     61 MB",
        "critic learner           1      99%        0%        1%     100%   12.4 GB",
        "sampler                128      39%       61%        0%    4800%  290.0 GB",
        "",
        "training return     -1234.6  in 1,000 steps; 1,123,456 episodes so far",
        "evaluation          5123.4 ± 88.2  at 1,120,000,000 env steps, 9:43:20",
        "best evaluation     6123.4 ± 8.2  at 1,000,000,000 env steps, 8:20:00",
        "samples produced    1,123,457,289 = 1,123,456,789 received + 400 dropped",
        "                     + 100 in flight",
    ]


def test_before_anything_has_happened_the_table_says_so():
    """No dashes to guess at, and who waits for whom."""
    shown = "\n".join(lines(STARTING))
    assert "starting  0:00" in shown
    assert "until Ctrl-C" in shown
    assert "no episode has ended yet" in shown
    assert "actor_learner-0 waits for critic_learner-0: its weights" in shown


def test_a_process_that_waits_for_nothing_takes_no_line():
    """Only waits are news."""
    assert not any("sampler-3" in line for line in lines(LARGE))


def shape(value):
    """The nested names of a status, without its numbers."""
    return {name: shape(inner) for name, inner in value.items()} if isinstance(value, dict) else ""


def test_the_statuses_of_these_tests_have_the_very_fields_that_the_broker_publishes():
    """A dict written by hand drifts from its producer: the live view once read a field that nobody sent."""
    plan = topology.load("pendulum")
    record, balancer = RunRecord(plan), Balancer(plan)
    evaluation = {**score(1.0, 512, -200.0, 3.0), "version": 3}
    record.take_evaluation(evaluation, 1.0)
    record.take_hello("sampler-3", 7, {"role": "sampler", "pid": os.getpid()}, 1.0)
    published = shape(record.status("training", balancer.status(), 2.0))
    for status in (STARTING, LARGE):
        expected = shape(status)
        for varying in ("processes", "workers"):
            rows = {str(row) for row in (*expected.pop(varying).values(), *published[varying].values())}
            assert len(rows) == 1, varying
        if status is STARTING:
            expected["evaluation"] = published["evaluation"]
        assert expected == {name: published[name] for name in expected}
        assert published.keys() - expected.keys() == {"processes", "workers"}


@pytest.mark.parametrize(
    ("stop", "left_s"),
    [
        ({"return": 6000.0}, None),
        ({"minutes": 10.0}, 540.0),
        ({"env_steps": 3000, "minutes": 10.0}, 20.0),
        ({"env_steps": 3000, "trained_transitions": 16_000}, 10.0),
        ({"env_steps": 100_000_000, "minutes": 10.0}, 540.0),
        ({"env_steps": 500}, 0.0),
    ],
)
def test_what_remains_is_the_nearest_condition_that_can_be_foreseen(stop, left_s):
    """By time or by the rate of env steps or of transitions trained on; never negative."""
    counts = {"env_steps": 1000, "env_steps_per_s": 100.0}
    trained = {"trained_transitions": 8000, "trained_transitions_per_s": 800.0}
    status = {"t_s": 60.0, **counts, **trained, "stop": {**STARTING["stop"], **stop}}
    assert remaining_s(status) == left_s


def test_nothing_is_foreseen_from_a_rate_of_zero():
    """Before the first step, too, there is no division by nothing."""
    stop = {**STARTING["stop"], "env_steps": 1000, "trained_transitions": 8000}
    assert remaining_s({**STARTING, "stop": stop}) is None


def test_a_run_with_one_learner_has_no_line_for_the_other():
    """An algorithm without a policy loss has no actor; the lag's lines stay."""
    shown = "\n".join(lines({**LARGE, "learners": ["critic_learner"]}))
    assert "actor updates" not in shown
    assert "policy lag max 12,000" in shown


# --- a terminal -----------------------------------------------------------------------------------


def test_a_terminal_keeps_notes_above_one_table():
    """The table is drawn over itself, a note stays; in the end the cursor is back."""
    console, out = terminal()
    view = StatusView(console)
    view.update(STARTING)
    view.note("sampler-1 was killed by SIGKILL [not markup]")
    view.update(LARGE)
    view.close()
    text = out.getvalue()
    assert text.count("sampler-1 was killed by SIGKILL [not markup]") == 1
    assert text.index("sampler-1 was killed") < text.index("warming up")
    assert "\x1b[1A\x1b[2K" in text  # up one line and clear it: drawn in place
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") >= 0


def test_drawing_twice_a_second_costs_less_than_a_hundredth_of_a_core():
    """The launcher shares the machine with the training."""
    console, _ = terminal()
    view = StatusView(console)
    view.update(LARGE)
    began_s = time.process_time()
    for _ in range(50):
        view.update(LARGE)
    spent_s = (time.process_time() - began_s) / 50
    view.close()
    assert 2 * spent_s < 0.01


# --- no terminal ----------------------------------------------------------------------------------


def plain(clock):
    """A view that writes to no terminal, and what it has written."""
    out = io.StringIO()
    return StatusView(Console(file=out, width=80, force_terminal=False), clock), out


def test_a_plain_line_has_every_figure_under_a_stable_name():
    """One line, `key=value`, however long."""
    assert plain_line(LARGE) == (
        "t=36083.4s left=713s state=warming_up env_steps=1123456789 fps=1230123 trained_per_s=12345678 "
        "critic_updates=1234567 critic_per_s=190.2 actor_updates=617000 actor_per_s=88.2 ratio=7.98/8 "
        "lag=1/13/12000 episodes=1123456 return=-1234.6 eval=5123.4 best=6123.4 dropped=400 "
        "workers=broker:1,critic_learner:1,sampler:128"
    )


def test_a_plain_line_has_the_same_names_from_the_beginning():
    """What is not there yet is a dash, so that columns never move."""

    def names(line):
        return [word.partition("=")[0] for word in line.split()]

    assert names(plain_line(STARTING)) == names(plain_line(LARGE))
    assert " left=- " in plain_line(STARTING)
    assert " eval=- best=- " in plain_line(STARTING)


def test_plain_lines_come_now_and_then_and_at_once_when_the_state_changes():
    """A log of a night is not a gigabyte, and it tells when training began."""
    clock = FakeClock()
    view, out = plain(clock)
    for _ in range(4):
        view.update(STARTING)
        clock.now_s += 0.5
    assert len(out.getvalue().splitlines()) == 1
    view.update(LARGE)
    view.update(LARGE)
    assert len(out.getvalue().splitlines()) == 2
    clock.now_s += PLAIN_INTERVAL_S
    view.update(LARGE)
    assert len(out.getvalue().splitlines()) == 3


def test_plain_notes_and_the_last_figures_are_never_left_out():
    """Without colour, cursor movement or markup."""
    view, out = plain(FakeClock())
    view.update(STARTING)
    view.note("samplers 3 -> 2: blocked 61 % of the time [of 8.0]")
    view.update({**STARTING, "t_s": 0.9})
    view.close()
    shown = out.getvalue().splitlines()
    assert shown[1] == "note samplers 3 -> 2: blocked 61 % of the time [of 8.0]"
    assert shown[2].startswith("t=0.9s ")
    assert "\x1b" not in out.getvalue()


def test_a_dumb_terminal_gets_plain_lines():
    """An editor's shell cannot move its cursor."""
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, _environ={"TERM": "dumb"})
    StatusView(console).update(STARTING)
    assert out.getvalue().startswith("t=0.4s ")


def test_the_status_needs_neither_numpy_nor_torch_nor_zmq():
    """The launcher starts at once."""
    code = "import sys, spreeze_zmq.status; "
    code += "print([name for name in ('numpy', 'torch', 'zmq') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout == "[]\n"
