"""What is logged of environments that fail now and then, for as long as a run lasts."""

import logging

from spreeze_zmq.envs.failures import LINE_S, LOGGED, Failures


def test_failures_of_a_week_are_few_lines(caplog):
    """The first ones and the first of each kind with their tracebacks, then a line a minute that counts them;
    all are reported.
    """
    now_s, told = 0.0, []
    failures = Failures(10**9, told.append, lambda: now_s)
    trace, num, step_s = "Traceback: it fell over\n" * 20, 20_000, 3.0
    with caplog.at_level(logging.ERROR, logger="spreeze.envs"):
        for number in range(num):
            now_s += step_s
            failures.note(f"environment {number % 16} raised at step {number}", traceback=trace)
        failures.note("environment 3 hangs", traceback="Traceback: a wait\n")
    lines = [record.getMessage() for record in caplog.records]
    assert sum(trace.strip() in line for line in lines) == LOGGED
    assert LOGGED + num * step_s / LINE_S / 2 < len(lines) < LOGGED + num * step_s / LINE_S + 3
    assert "a wait" in lines[-1]
    counted = sum(int(line.split("with it ")[1].split()[0]) for line in lines[LOGGED:-1])
    assert num - LOGGED - LINE_S / step_s <= counted <= num - LOGGED
    assert len(told) == failures.count == num + 1
