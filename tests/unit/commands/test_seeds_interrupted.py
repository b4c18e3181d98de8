"""Signals of ``spreeze-launch --seeds``: at the end of a run, and between two, where no run hears them."""

import signal

import pytest

from spreeze_zmq.base.errors import InputError, interrupt
from spreeze_zmq.commands import launch
from spreeze_zmq.launcher.interrupts import give_back
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


def run_to_its_end(plan, arguments, look, lines, folder, interrupts):
    """What a run leaves that has failed before its first summary."""
    write_plan(plan, RunFolder.create(plan.name, folder))[1].remove()
    interrupts.heed()
    return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("handlers")
def test_a_request_that_comes_while_a_run_ends_already_ends_the_seeds_too(number, tmp_path, monkeypatch):
    """No further run begins."""

    def run(*given):
        code = run_to_its_end(*given)
        signal.raise_signal(number)
        return code

    monkeypatch.setattr(launch, "_launch", run)
    monkeypatch.chdir(tmp_path)
    assert launch.main(SEEDS) == 0
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["seed-0"]


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP, signal.SIGTSTP)], ids=["all", "nohup"])
@pytest.mark.usefixtures("handlers")
def test_between_two_runs_the_signals_have_their_usual_effect(ignored, tmp_path, monkeypatch, capsys):
    """A closed terminal and Ctrl-Z too; one that is ignored stays so. A run that has left no summary has a
    line at the end like any other.
    """
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    found = []

    def run(*given):
        found.append({number: signal.getsignal(number) for number in USUAL})
        return run_to_its_end(*given)

    monkeypatch.setattr(launch, "_launch", run)
    monkeypatch.chdir(tmp_path)
    assert launch.main(SEEDS) == 0
    ended = "nothing evaluated in 0:00, 0 env steps (failed)"
    said = [f"seed {seed}: {ended}; all/seed-{seed}" for seed in (0, 1)]
    assert capsys.readouterr().out.splitlines() == said
    assert found == [USUAL | dict.fromkeys(ignored, signal.SIG_IGN)] * 2


def _mistake():
    raise InputError("the topology has changed")


@pytest.mark.parametrize(
    ("happens", "code"),
    [(lambda: signal.raise_signal(signal.SIGINT), 130), (_mistake, 2)],
    ids=["Ctrl-C", "mistake"],
)
@pytest.mark.usefixtures("handlers")
def test_what_ends_the_seeds_between_two_runs_takes_no_line_of_those_that_have_ended(
    happens, code, tmp_path, monkeypatch, capsys
):
    """They may have taken hours."""
    monkeypatch.setattr(launch, "_launch", run_to_its_end)
    monkeypatch.setattr(launch, "give_back", lambda: (give_back(), happens()))
    monkeypatch.chdir(tmp_path)
    assert launch.main(SEEDS) == code
    ended = "nothing evaluated in 0:00, 0 env steps (failed)"
    assert capsys.readouterr().out.splitlines() == [f"seed 0: {ended}; all/seed-0"]
