"""Whose code runs: that of the runs which this user made. A payload that ran would leave a file."""

import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from spreeze_zmq import Run, envs, train
from spreeze_zmq.base import importing, trust
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands import launch
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.evaluation.saved import SavedPolicy, own_modules
from spreeze_zmq.launcher.training import entry
from spreeze_zmq.launcher.training.launching import End
from spreeze_zmq.plan import topology
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire.channels import RecordingWriter
from tests.rights import NOBODY, root_only
from tests.unit.evaluation.test_saved import save, save_for


@pytest.fixture
def place(monkeypatch):
    """A folder that other users can enter, and a home; what tests import is forgotten."""
    folder = Path(tempfile.mkdtemp(prefix="trust-"))
    folder.chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    path, modules = list(sys.path), set(sys.modules)
    yield folder
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("payload"):
            del sys.modules[name]
    shutil.rmtree(folder)


@pytest.fixture
def hostile(place):
    """A stranger's folder: a policy in an environment that runs a command, and a run.json that names it."""
    run = place / "theirs"
    run.mkdir()
    save(run / "policy.safetensors", "subprocess:getoutput", cmd=f"touch {place}/proof")
    (run / "run.json").write_text(run_json(place / "t.toml", "subprocess:getoutput", place))
    yield run
    assert not (place / "proof").exists()


def run_json(topology_file, env, place):
    """A run.json of the present format that names the environment, and this command to begin it again."""
    plan = json.loads(topology.load({"run": {"env": "Pendulum-v1", "algorithm": "sac"}}).to_json())
    plan |= {"topology_file": str(topology_file), "command": [f"--env={env}"]}
    plan["run"] |= {"env": env, "env_kwargs": {"cmd": f"touch {place}/proof"}}
    plan["environment"] |= {"id": env, "kwargs": plan["run"]["env_kwargs"]}
    return json.dumps(plan)


@pytest.fixture
def own(place):
    """The folder of a run of this user's, in an environment of a module beside its topology."""
    code = "import gymnasium\n\ndef make():\n    return gymnasium.make('Pendulum-v1', max_episode_steps=4)\n"
    (place / "payload_own.py").write_text(code)
    (place / "mine.toml").write_text('[run]\nenv = "payload_own:make"\nalgorithm = "sac"\n')
    plan = topology.load(place / "mine.toml")
    folder = RunFolder.create("run", str(place / "own"))
    write_plan(plan, folder)[1].remove()
    trust.leave_mark(folder.path, own_modules(plan), place)
    save(folder.best_policy, "payload_own:make")
    sys.path.remove(str(place))
    sys.modules.pop("payload_own", None)
    return folder.path


@pytest.fixture
def other(own, place):
    """A folder with another module of that name."""
    folder = place / "other"
    folder.mkdir()
    code = (place / "payload_own.py").read_text()
    (folder / "payload_own.py").write_text(code.replace("=4", "=7"))
    return folder


def why_refused(run, **named):
    """What the user reads instead of a policy."""
    with pytest.raises(InputError) as refused:
        SavedPolicy.load(run, **named)
    assert "payload_own" not in sys.modules
    return str(refused.value)


# --- files and strangers' folders


@pytest.mark.parametrize("given", ["beside", "below", "folder"])
@pytest.mark.parametrize("command", ["eval", "play", "export", "Policy.load", "SavedPolicy.load", "Run"])
def test_nothing_that_stands_beside_a_policy_lets_it_run_code(hostile, capsys, command, given):
    """As a file beside a run.json, as one in a folder below it, and as a folder of a stranger's."""
    path = hostile / "policy.safetensors"
    if given == "below":
        (hostile / "videos").mkdir()
        path = shutil.copy(path, hostile / "videos" / "9.safetensors")
    given = hostile if given == "folder" else path
    options = {"play": ["--video", f"{hostile}/a.mp4"], "export": ["--torchscript", f"{hostile}/a.pt"]}
    if command == "Policy.load":
        assert Policy.load(given).version == 1  # numbers, of which no code follows
    elif command == "export":  # which makes no environment
        assert main([command, str(given), *options[command]]) == 0
    elif command in ("SavedPolicy.load", "Run"):
        with pytest.raises(InputError, match="--trust subprocess"):
            SavedPolicy.load(given) if command == "SavedPolicy.load" else Run(Path(given)).evaluate(1)
    else:
        assert main([command, str(given), *options.get(command, ())]) == 2
        assert "give --trust subprocess (in Python trust=['subprocess'])" in capsys.readouterr().err


def test_no_neighbour_names_the_class_of_a_policy(hostile, place):
    """A module in the folder of the topology that run.json names is not imported, neither for a file nor for
    the folder.
    """
    (place / "payload_class.py").write_text(f"open({str(place / 'proof')!r}, 'w')\n")
    spec = envs.probe("Pendulum-v1", {})
    save_for(hostile / "policy.safetensors", spec.to_dict(), "sac")
    policy = Policy.load(hostile / "policy.safetensors")
    policy.description = {**policy.description, "class": "payload_class:Own"}
    policy.save(hostile / "policy.safetensors", policy.metadata)
    plan = json.loads((hostile / "run.json").read_text())
    plan["run"] |= {"algorithm": "payload_class:Own"}
    (hostile / "run.json").write_text(json.dumps(plan))
    for given in (hostile, hostile / "policy.safetensors"):
        for load in (Policy.load, SavedPolicy.load, lambda path: Run(Path(path)).policy):
            with pytest.raises(InputError, match="names a class of the module 'payload_class', whose code"):
                load(given)


def test_a_strangers_page_shows_curves_and_runs_nothing(hostile, capsys):
    """``spreeze view``: ended by SIGTERM once it serves."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end():
        while signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    try:
        assert main(["view", str(hostile)]) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "Ctrl-C ends it" in capsys.readouterr().out


def test_tables_of_strangers_runs_execute_nothing(hostile, capsys):
    """``runs`` and ``compare`` read."""
    (hostile / "metrics.jsonl").write_text(
        '{"kind": "evaluation", "t_s": 1.0, "env_steps": 10, "mean_return": 3.0}\n'
    )
    assert main(["runs", str(hostile)]) == 0
    assert main(["compare", str(hostile)]) == 0
    assert capsys.readouterr().out.count("getoutput") >= 2


def test_a_strangers_run_is_resumed_only_by_a_command_that_is_typed(hostile, capsys):
    """The one in its run.json would run code."""
    assert launch.main(["--resume", str(hostile)]) == 2
    said = capsys.readouterr().err
    assert "its command would run code, and" in said
    assert "write its TOPOLOGY or --env ID beside --resume (it says --env=subprocess:getoutput)" in said


def test_a_strangers_recording_runs_nothing(hostile, capsys):
    """Its header holds a plan of its own."""
    about = {"name": "sampler-0", "role": "sampler", "index": 0, "incarnation": 1, "channels": []}
    about["plan"] = json.loads((hostile / "run.json").read_text())
    writer = RecordingWriter(hostile / "recordings", about, 1.0)
    writer.close()
    assert main(["replay", str(writer.path), "--run-dir", f"{hostile}/again"]) == 2
    assert "names an environment of the module 'subprocess', whose code would run" in capsys.readouterr().err


def test_a_shipped_environment_imports_nothing_of_the_current_directory(place, monkeypatch):
    """A file is evaluated where it stands: no neighbour that is called as a module is imported later."""
    monkeypatch.chdir(place)
    save(place / "policy.safetensors", "Pendulum-v1", max_episode_steps=2)
    before = list(sys.path)
    assert SavedPolicy.load(place / "policy.safetensors").play(1).lengths.tolist() == [2]
    assert sys.path == before


# --- folders of one's own


def test_the_folder_of_a_run_of_ones_own_is_trusted_where_it_was_made_and_where_it_is_moved(own, place):
    """From any directory; its file alone is not."""
    assert "and anybody may have written it" in why_refused(own / "policy.safetensors")
    moved = own.rename(place / "moved")
    (place / "link").symlink_to(moved)
    assert SavedPolicy.load(place / "link").play(1).lengths.tolist() == [4]


@pytest.mark.parametrize("loaded", [False, True], ids=["to be imported", "imported"])
def test_another_module_of_the_same_name_is_not_played_in(own, place, other, monkeypatch, loaded):
    """In programs the current folder comes first; there the user must say that its module is the one."""
    monkeypatch.chdir(other)
    if loaded:
        monkeypatch.syspath_prepend(str(other))
        importlib.import_module("payload_own")
    with pytest.raises(InputError) as refused, importing.marked():
        SavedPolicy.load(own)
    mend = f"go on in that folder{' and a new process' if loaded else ''}, or give --trust payload_own"
    assert str(refused.value) == (
        f"{own}: payload_own is the one in {other} here, and the run's is in {place}: "
        f"{mend} (in Python trust=['payload_own']) to take this one"
    )
    assert SavedPolicy.load(own, trust=["payload_own"]).play(1).lengths.tolist() == [7]
    if loaded:
        monkeypatch.chdir(place)
        with pytest.raises(InputError, match=rf"the run's is in {place}: go on in a new process, or give"):
            SavedPolicy.load(own)


def test_the_current_folder_of_a_script_hides_no_module_of_a_run(own, other, monkeypatch):
    """It comes last there, behind the run's."""
    monkeypatch.chdir(other)
    assert SavedPolicy.load(own).play(1).lengths.tolist() == [4]


def test_what_is_on_the_path_of_a_script_hides_a_module_of_the_current_folder(own, place, other, monkeypatch):
    """As one beside the script does: what would be imported is not the run's."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(other))
    with pytest.raises(InputError, match=f"is in {place}: go on with that folder first on sys.path, or give"):
        SavedPolicy.load(own)


def test_a_script_that_has_imported_another_module_evaluates_no_run_of_its_own_in_it(
    own, place, other, monkeypatch
):
    """As that of an earlier run: what the run is trusted with is its own module."""
    monkeypatch.setattr(entry, "launch", lambda *_, show: End(0, "", 0))
    run = train(topology=place / "mine.toml", run_dir=own)
    monkeypatch.syspath_prepend(str(other))
    importlib.import_module("payload_own")
    with pytest.raises(InputError, match=f"is the one in {other} here, and the run's is in {place}"):
        run.evaluate(1)
    del sys.modules["payload_own"]
    sys.path.remove(str(other))
    assert run.evaluate(1).lengths.tolist() == [4]


def test_a_run_without_modules_of_ones_own_changes_nobodys_path(place, monkeypatch):
    """A script that trains and evaluates what ships imports nothing from the folder of the topology."""
    path = list(sys.path)
    (place / "shipped.toml").write_text('[run]\nenv = "Pendulum-v1"\nalgorithm = "sac"\n')
    plan = topology.load(place / "shipped.toml")
    folder = RunFolder.create("run", str(place / "of_shipped"))
    write_plan(plan, folder)[1].remove()
    trust.leave_mark(folder.path, own_modules(plan), place)
    save(folder.best_policy, "Pendulum-v1")
    sys.path[:] = path
    monkeypatch.setattr(entry, "launch", lambda *_, show: End(0, "", 0))
    run = train(topology=place / "shipped.toml", run_dir=folder.path)
    assert not trust.grant_of(folder.path).why_not
    assert run.policy.version == 1
    assert sys.path == path


def test_a_folder_of_the_modules_name_is_no_other_module(own, place, monkeypatch):
    """A project often has the name of its module: from above it is a namespace, which no module follows."""
    (place / "above" / "payload_own").mkdir(parents=True)
    monkeypatch.chdir(place / "above")
    assert SavedPolicy.load(own).play(1).lengths.tolist() == [4]


def test_a_module_that_is_found_through_a_link_is_the_same(own, place, monkeypatch):
    """As where the home of a cluster is a link, in the mark or on the path."""
    (place / "home").symlink_to(place)
    monkeypatch.syspath_prepend(str(place / "home"))
    monkeypatch.chdir("/")
    trust.leave_mark(own, ["payload_own"], Path("/"))
    trust.grant_of(own).make_importable()
    assert SavedPolicy.load(own).play(1).lengths.tolist() == [4]


def edit(run):
    """Any change of run.json."""
    (run / "run.json").write_text((run / "run.json").read_text() + "\n")


def link(run):
    """A policy elsewhere."""
    (run / "policy.safetensors").rename(run / "elsewhere")
    (run / "policy.safetensors").symlink_to(run / "elsewhere")


def replace_policy(run):
    """One in a command."""
    save(run / "policy.safetensors", "subprocess:getoutput", cmd=f"touch {run.parent}/proof")


def give_other_arguments(run):
    """The run's environment, made in another way."""
    save(run / "policy.safetensors", "payload_own:make", cmd="touch")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edit, r"/state/spreeze_zmq/runs has no mark of .*/own, as of a run that another user or machine"),
        (link, r"policy\.safetensors is a link or no file"),
        (replace_policy, "its run used another: give --trust subprocess"),
        (give_other_arguments, "its run used another: give --trust payload_own"),
        (lambda run: run.chmod(0o770), r"others may write .*/own \(chmod go-w would end that\)"),
        (lambda run: (run.chmod(0o755), (run / "run.json").chmod(0o666)), "others may write .*run.json"),
        (lambda run: (run.chmod(0o750), (run / "policy.safetensors").chmod(0o660)), "others may write"),
        (lambda run: (run / "run.json").unlink(), "has no run.json, so no run made it"),
        (lambda run: os.environ.update(XDG_STATE_HOME="/nowhere"), "/nowhere/spreeze_zmq/runs has no mark"),
        (lambda _: trust.marks_folder().chmod(0o777), "others may write .*/state/spreeze_zmq/runs"),
    ],
)
def test_a_folder_that_is_not_as_its_run_left_it_is_not_trusted(own, place, change, said):
    """And the line says why, and what to type."""
    change(own)
    with pytest.raises(InputError, match=said):
        SavedPolicy.load(own)
    assert "payload_own" not in sys.modules
    assert not (place / "proof").exists()


def test_a_copy_of_a_folder_of_ones_own_is_not_trusted(own, place):
    """It says whose copy it is; ``--trust`` finds the module in the current directory."""
    copy = shutil.copytree(own, place / "copy")
    assert f"{copy} is a copy of your run {own}: give --trust payload_own" in why_refused(copy)


def test_a_module_that_the_user_trusts_is_found_in_the_current_directory(own, place, monkeypatch):
    """Never in the folder that an unmarked run.json names."""
    copy = shutil.copytree(own, place / "copy")
    with pytest.raises(InputError, match="there is no module 'payload_own'"):
        SavedPolicy.load(copy, trust=["payload_own"]).play(1)
    monkeypatch.chdir(place)
    assert SavedPolicy.load(copy, trust=["payload_own"]).play(1).lengths.tolist() == [4]


def test_permissions_of_files_in_a_folder_that_nobody_else_can_enter_do_not_matter(own):
    """A umask of 002 is usual."""
    (own / "run.json").chmod(0o664)
    (own / "policy.safetensors").chmod(0o664)
    assert own.stat().st_mode & 0o777 == 0o700
    assert SavedPolicy.load(own).play(1).lengths.tolist() == [4]


def test_a_home_that_cannot_be_written_costs_the_mark_alone(own, place, monkeypatch):
    """The run goes on, and the reason is said when it matters."""
    (place / "file").touch()
    for home in (place / "file", Path("/proc/none")):
        monkeypatch.setenv("XDG_STATE_HOME", str(home))
        trust.leave_mark(own, ("payload_own",), place)
        assert f"{home}/spreeze_zmq/runs has no mark of {own}" in why_refused(own)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user without a home
    trust.leave_mark(own, ("payload_own",), place)
    assert "this user has no home folder: set HOME" in why_refused(own)


def test_marks_stay_few_and_those_in_use_stay(own, place, monkeypatch):
    """The oldest go, but not the one of a run that was just evaluated."""
    monkeypatch.setattr(trust, "MOST_MARKS", 3)
    (mark,) = trust.marks_folder().iterdir()
    os.utime(mark, (1, 1))
    SavedPolicy.load(own)
    for number in range(6):
        other = place / f"run{number}"
        other.mkdir()
        (other / "run.json").write_text(json.dumps(number))
        trust.leave_mark(other, (), place)
        os.utime(trust.marks_folder() / trust._digest(json.dumps(number).encode()), (number + 2,) * 2)
    assert len(left := list(trust.marks_folder().iterdir())) == 3
    assert mark in left


# --- two users


@root_only
@pytest.mark.parametrize("name", ["", "run.json", "policy.safetensors"])
def test_what_belongs_to_another_user_is_not_trusted(own, name):
    """Not even by root, who could read it; nor marks that another user left."""
    os.chown(own / name, NOBODY, NOBODY)
    assert f"belongs to {trust.user_name(NOBODY)}, not to you" in why_refused(own)
    os.chown(own / name, 0, 0)
    os.chown(trust.marks_folder(), NOBODY, NOBODY)
    assert "/state/spreeze_zmq/runs belongs to" in why_refused(own)


@root_only
def test_another_user_does_not_trust_this_one(own, place):
    """In a process that is that user's."""
    for path in (own, own / "run.json", own / "policy.safetensors"):
        path.chmod(0o755)
    said = place / "said"
    said.touch()
    said.chmod(0o666)
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said.write_text(why_refused(own))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert "belongs to the user root, not to you: give --trust payload_own" in said.read_text()
