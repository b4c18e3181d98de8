"""Signals between two runs of ``spreeze-launch --seeds``, which no run would hear."""

import signal

import pytest

from spreeze_zmq.base.errors import interrupt
from spreeze_zmq.commands import launch
from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.run.folder import RunFolder, write_plan

#: What each does where no run heeds it.
USUAL = {
    signal.SIGINT: interrupt,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGTSTP: signal.SIG_DFL,
}
SEEDS = ("--env", "CartPole-v1", "--seeds", "2", "--set", "run.stop.env_steps=1000", "--run-dir", "all")


@pytest.fixture
def handlers():
    """Each signal as it usually is, which the test may change."""
    before = {number: signal.signal(number, usual) for number, usual in USUAL.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP, signal.SIGTSTP)], ids=["all", "nohup"])
@pytest.mark.usefixtures("handlers")
def test_between_two_runs_the_signals_have_their_usual_effect(ignored, tmp_path, monkeypatch, capsys):
    """A closed terminal and Ctrl-Z too; one that is ignored stays so. A run that has left no summary has a
    line at the end like any other.
    """
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    found = []

    def run(plan, *given):
        found.append({number: signal.getsignal(number) for number in USUAL})
        write_plan(plan, RunFolder.create(plan.name, given[-1]))[1].remove()
        Interrupts().heed()
        return 0

    monkeypatch.setattr(launch, "_launch", run)
    monkeypatch.chdir(tmp_path)
    assert launch.main(SEEDS) == 0
    ended = "nothing evaluated in 0:00, 0 env steps (failed)"
    said = [f"seed {seed}: {ended}; all/seed-{seed}" for seed in (0, 1)]
    assert capsys.readouterr().out.splitlines() == said
    assert found == [USUAL | dict.fromkeys(ignored, signal.SIG_IGN)] * 2
