"""What a command line asks for, and what it is told that it does not get."""

import socket

import pytest

from spreeze_zmq.base.errors import ComponentFailed, InputError
from spreeze_zmq.commands import launch
from spreeze_zmq.commands.check import FirstLook
from spreeze_zmq.commands.launch_line import load, not_recorded, parser
from spreeze_zmq.nodes.listening import Listening

LISTEN = ("--listen", "127.0.0.1")
PLACED = ("--set", "placement.actor_learner=node")


def plan_of(*words):
    """Of pendulum."""
    return load(parser().parse_args(["pendulum", *words]), FirstLook())


@pytest.mark.parametrize("name", ["actor_learner", "actor_learner-0"])
def test_a_process_on_another_machine_cannot_be_recorded(name):
    """The line says what can."""
    assert plan_of(*PLACED, "--record", "critic_learner").recording
    with pytest.raises(InputError, match=f"--record {name}: placement.actor_learner has it run on another"):
        plan_of(*PLACED, "--record", name)


def test_what_no_thread_heeds_is_said():
    """Of what the line writes; the page remains a process, with a priority of its own."""
    written = ["--set", "components.sampler={count = [2, 4], nice = 3}", "--inproc"]
    written += ["--set", "components.visualizer.nice=9"]
    assert plan_of(*written).replaced == (
        "components.sampler.count = [2, 4] has no effect with --inproc: it is 2",
        "components.sampler.nice = 3 has no effect with --inproc: threads have the priority of their process",
    )
    assert plan_of(*written[:2]).replaced == ()
    assert plan_of("--inproc").replaced == ()


def test_what_is_not_recorded_is_said():
    """Of samplers that join, and of further groups; of a run that has all here nothing."""
    samplers = plan_of("--record", "sampler")
    assert not_recorded(samplers, listens=False) == ""
    assert not_recorded(samplers, listens=True) == "--record: samplers on other machines are not recorded"
    assert not_recorded(plan_of("--record", "critic_learner"), listens=True) == ""
    groups = plan_of("--record", "sampler-0", "--set", "groups.count=2")
    said = "--record: samplers on other machines and the groups from 1 on are not recorded"
    assert not_recorded(groups, listens=True) == said


def test_a_number_that_no_process_has_is_not_recorded():
    """It would begin no recording."""
    assert plan_of("--record", "sampler-0").recording
    with pytest.raises(InputError, match="--record sampler-00: expected a role or a process such as"):
        plan_of("--record", "sampler-00")


def test_a_size_of_no_recording_is_refused():
    """Whoever writes it expects a recording."""
    assert plan_of("--record", "sampler").recording == {"sampler": 1000.0}
    assert plan_of("--record", "sampler", "--record-mb", "3").recording == {"sampler": 3.0}
    with pytest.raises(InputError, match="--record-mb is the size of a recording: write --record PROCESS"):
        plan_of("--record-mb", "3")


def test_a_run_that_is_resumed_again_and_again_keeps_one_of_each(tmp_path, monkeypatch):
    """As by a script that repeats its line: the callback is called once, and the last value of a key holds,
    also beside a table that holds the key.
    """
    source = "from spreeze_zmq import Callback\n\n\nclass Mine(Callback):\n    pass\n"
    (tmp_path / "called_once.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    callback = "called_once:Mine"
    again = ["--callback", callback, "--set", "run.stop.minutes=7", "--without", "visualizer"]
    words = ["pendulum", "--set", "run.stop.minutes=5", "--set", "run.stop={env_steps = 9}", *again]
    for _ in range(3):
        plan = load(parser().parse_args(words), FirstLook())
        words = [*plan.command, *again]
        assert plan.components["observer"].options["callbacks"] == [callback]
        assert (plan.run.stop.minutes, plan.run.stop.env_steps) == (7.0, 9)
        flags = [word.partition("=")[0] for word in plan.command]
        assert (flags.count("--callback"), flags.count("--without")) == (1, 1)
        settings = [word for word in plan.command if word.startswith("--set=")]
        assert sorted(settings) == [
            "--set=run.seed=1",
            "--set=run.stop.minutes=7",
            "--set=run.stop={env_steps = 9}",
        ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--listen", "nonsense"), "--listen nonsense: expected the IPv4 address"),
        ((*LISTEN, "--set", "balance.mode=lockstep"), "take another balance.mode, or leave --listen out"),
        (("--nodes", "foo"), "--nodes foo: give --listen ADDRESS too"),
        ((*LISTEN, "--nodes", "foo"), "--nodes foo: expected ssh:HOST"),
        (PLACED, 'placement.actor_learner = "node": it needs another machine'),
        (("--seeds", "0"), "--seeds 0: at least 1 is expected"),
        (("--seeds", "2", *LISTEN), "leave --listen out"),
        (("--run-dir", "."), "--run-dir"),
        (
            ("--algorithm", "td3", "--set", "run.algorithm=sac"),
            '--algorithm td3: --set run.algorithm says something else, "sac": leave one of them out',
        ),
        (("--algorithm", "td3", "--set", "run.algorithm=sac", "--resume", "nowhere"), "nowhere"),
        (
            ("--callback", "mine:A", "--set", 'components.observer={callbacks = ["mine:B"]}'),
            '--callback mine:A: --set components.observer.callbacks says something else, ["mine:B"]: leave',
        ),
        (
            ("--without", "observer"),
            "--without observer: a run without callbacks has no process of this role (name them in comp",
        ),
    ],
)
def test_a_line_that_cannot_be_is_refused_by_its_check(words, said, tmp_path, monkeypatch, capsys):
    """As it is where the run is to begin."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").touch()
    assert launch.main(["pendulum", "--check", *words]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err


def test_a_line_for_slurm_is_checked_where_there_is_no_job(monkeypatch, capsys):
    """As on the login node where it is written, and all else of it as ever."""
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    assert launch.main(["pendulum", "--check", *LISTEN, "--nodes", "slurm"]) == 0
    assert launch.main(["pendulum", "--check", "--nodes", "slurm"]) == 2
    assert "--nodes slurm: give --listen ADDRESS too" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "left"), [((), "runs"), (("--run-dir", "named"), "named")])
def test_a_run_whose_port_another_program_has_taken_leaves_none(tmp_path, monkeypatch, capsys, words, left):
    """One line, and nothing that looks like a run that has crashed; a folder that was named stays."""
    look, stranger = Listening.at, socket.socket()

    def at(*given):
        found = look(*given)
        stranger.bind(("127.0.0.1", int(found.address.rpartition(":")[2])))
        stranger.listen()
        return found

    monkeypatch.setattr(Listening, "at", at)
    monkeypatch.chdir(tmp_path)
    with stranger:
        assert launch.main(["pendulum", *LISTEN, *words]) == 2
    assert "cannot be bound: another process has it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == [left]


def test_slurm_is_asked_once_for_the_nodes_of_a_run(tmp_path, monkeypatch):
    """Before anything is made."""
    program, asked, seen = tmp_path / "scontrol", tmp_path / "asked", []
    program.write_text(f"#!/bin/sh\necho once >> {asked}\necho desk2\necho desk3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "desk[2-3]")
    monkeypatch.setenv("SLURMD_NODENAME", "desk2")

    def begin(*_, listening, **about):
        seen.extend(way.name for way in listening.ways)
        raise ComponentFailed("seen enough")

    monkeypatch.setattr(launch, "Launch", begin)
    words = ["pendulum", *LISTEN, "--nodes", "slurm", "--run-dir", str(tmp_path / "run")]
    assert launch.main(words) == 1
    assert seen == ["srun desk3"]
    assert asked.read_text() == "once\n"


STOPS = "from spreeze_zmq import Callback\n\n\nclass Stops(Callback):\n    pass\n"


@pytest.mark.parametrize(
    ("callback", "code", "said"),
    [
        ("stops_them:Stops", 0, "never; nothing ends this run but a callback or Ctrl-C; "),
        ("spreeze_zmq.callbacks:Logger", 2, "would never end: nothing ends this run but Ctrl-C; "),
    ],
)
def test_a_callback_may_be_the_end_of_each_of_several_runs(
    callback, code, said, tmp_path, monkeypatch, capsys
):
    """A logger only draws, and ends none."""
    (tmp_path / "stops_them.py").write_text(STOPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["--env", "Pendulum-v1", "--callback", callback, "--seeds", "2", "--check"]
    assert launch.main(words) == code
    assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize("words", [["pendulum"], ["pendulum", "--check"], ["pendulum", "--inproc"]])
def test_a_wrong_level_of_logs_is_refused_before_anything_starts(words, tmp_path, monkeypatch, capsys):
    """It would end each process of the run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPREEZE_LOG", "loud")
    assert launch.main(words) == 2
    expected = "SPREEZE_LOG=loud: expected DEBUG, INFO, WARNING, ERROR or CRITICAL"
    assert capsys.readouterr().err == f"spreeze-launch: {expected}\n"
    assert list(tmp_path.iterdir()) == []
