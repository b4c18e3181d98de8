"""A look at an environment happens in another process, which nothing that it does outlives."""

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base import importing
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs import probing
from tests.unit.envs.wild_environments import SIMULATOR
from tests.unit.supervisor.lives import gone, until, words_of

HERE = "tests.unit.envs.wild_environments"


def refusal(env, **kwargs):
    """The line with which an environment is refused."""
    with pytest.raises(InvalidEnvironment) as caught:
        envs.try_out(f"{HERE}:{env}", kwargs)
    said = str(caught.value)
    assert said.startswith(f"{HERE}:{env}: ")
    assert "\n" not in said
    return said.removeprefix(f"{HERE}:{env}: ")


def sleeping():
    """Process ids of all living simulators of these environments."""
    found = psutil.process_iter(["cmdline", "status"])
    mine = SIMULATOR.split()
    return {each.pid for each in found if each.info["cmdline"] == mine and each.info["status"] != "zombie"}


@pytest.fixture(params=["fork", "interpreter"])
def started(request, monkeypatch):
    """Both ways to start the process."""
    monkeypatch.setattr(probing, "may_fork", lambda: request.param == "fork")


def test_a_look_says_what_an_environment_is_and_takes(started):
    """Its spec, its first observations and the times."""
    found = envs.look("tests.unit.envs.mistaken_environments:Right", {"max_episode_steps": 7})
    assert (found.spec.obs_shape, found.spec.max_episode_steps, found.fault, found.remarks) == (
        (3,),
        7,
        "",
        (),
    )
    assert found.spec.kwargs == {"max_episode_steps": 7}
    assert np.array_equal(found.observations, np.zeros((3, 3), np.float32))
    assert found.timing.backend == "gymnasium"
    assert 0.0 < found.timing.step_s < 0.1
    assert envs.Timing.from_plain(found.timing.to_plain()) == found.timing


def test_nothing_of_this_process_is_changed(started):
    """Its folder, variables, handlers, error state and modules stay; a thread of the other ends with it."""

    def state():
        handler = signal.getsignal(signal.SIGTERM)
        return os.getcwd(), dict(os.environ), handler, np.geterr(), HERE in sys.modules

    before, threads = state(), set(threading.enumerate())
    for name in ("Elsewhere", "Threads"):
        assert envs.look(f"{HERE}:{name}").remarks == ()
    assert state() == before
    assert set(threading.enumerate()) <= threads  # those of other tests may end meanwhile


def test_programs_that_stay_are_killed_and_named():
    """Also those of another process group; those that end with the process are no remark."""
    before = sleeping()
    (remark,) = envs.look(f"{HERE}:Programs").remarks
    assert remark == "2 of the processes that it started (sleep) outlived it: killed"
    assert envs.look(f"{HERE}:Tidy").remarks == ()
    assert sleeping() <= before


def test_a_close_that_raises_or_hangs_is_a_remark(monkeypatch):
    """The environment can be trained in all the same."""
    (said,) = envs.look(f"{HERE}:BadClose").remarks
    assert said.startswith("close() raised RuntimeError: not connected to the physics server [")
    assert "wild_environments.py:" in said
    monkeypatch.setattr(probing, "CLOSE_S", 0.2)
    late = envs.look(f"{HERE}:SlowClose")
    assert late.remarks == ("close() had not returned after 0 s; its process was killed",)
    assert late.timing.close_s == np.inf
    assert envs.Timing.from_plain(late.timing.to_plain()) == late.timing


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Crashes", "its reset() or step() was tried in a process of its own, and killed it by SIGSEGV"),
        ("Leaves", "making it was tried in a process of its own, and ended it with exit code 3"),
        ("Asserts", "it could not be made: AssertionError: assert 1 + 1 == 3 ["),
    ],
)
def test_an_environment_that_ends_its_process_is_refused_in_one_line(name, said):
    """What was called, and how it ended."""
    assert refusal(name).startswith(said)


def test_an_environment_that_exits_is_refused_with_its_line():
    """As any other mistake in ``step``."""
    assert refusal("Exits").endswith("step raised SystemExit: 3")


def test_an_environment_that_hangs_is_ended_at_a_deadline(monkeypatch):
    """The line names the call and the option that allows more; a long wait is announced before."""
    lines = []
    monkeypatch.setattr(probing, "SAID_S", (0.1,))
    monkeypatch.setattr(probing, "may_fork", lambda: True)  # a new interpreter would take longer to make it
    with pytest.raises(InvalidEnvironment, match="start_timeout_s") as caught:
        envs.look(f"{HERE}:Hangs", wait_s=0.4, say=lines.append)
    assert "its reset() or step() has not returned after 0 s" in str(caught.value)
    assert "one environment is tried before the run; its reset() or step() has taken 0 s" in lines[-1]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("mission", "the part 'mission' of its observations is a Mission, which does not flatten"),
        ("nested", "the part 'a.1.b' of its observations is a Graph, which does not flatten"),
        ("broken", "the part 'b' of its observations is a Broken, which does not flatten"),
        ("sequence", "its observations are a Sequence, which does not flatten"),
        ("number", "its observation_space is a builtins.int, not a gymnasium.Space"),
        ("none", "it has no observation_space (set self.observation_space in its __init__)"),
        ("old", "its observation_space is a tests.unit.envs.wild_environments.Box, not a gymnasium.Space"),
        ("scalar", "its observations have the shape ()"),
        ("empty", "its observations have the shape (0,)"),
    ],
)
def test_an_observation_space_that_no_policy_takes_is_refused_in_one_line(space, said):
    """Of any class; the part is named, and a wrapper."""
    assert refusal("Spaced", name=space).startswith(said)


@pytest.mark.parametrize("space", ["mission", "broken", "number", "none", "scalar", "empty"])
def test_an_action_space_in_which_no_policy_acts_is_refused_in_one_line(space):
    """Likewise."""
    assert "action" in refusal("Spaced", name=space, of="action")


def test_a_part_that_flattens_is_taken():
    """A text has numbers of its own."""
    assert envs.look(f"{HERE}:Spaced", {"name": "text"}).spec.obs_shape[0] > 3


def test_what_it_prints_is_shown(capfd):
    """Where it was shown before."""
    envs.look(f"{HERE}:Loud")
    assert capfd.readouterr().out == "starting the simulator\n"


def test_arguments_that_are_no_plain_data_need_a_fork(monkeypatch):
    """A new interpreter cannot have them."""
    monkeypatch.setattr(probing, "may_fork", lambda: False)
    with pytest.raises(InvalidEnvironment, match="plain data"):
        envs.look(f"{HERE}:Spaced", {"name": object()})


def test_arguments_come_as_those_of_a_run(started):
    """In which a tuple is a list, however the process has begun; the spec says what it was made with."""
    spec = envs.probe(f"{HERE}:Typed", {"given": (1, 2)})
    assert (spec.obs_shape, spec.kwargs) == ((len("list"),), {"given": [1, 2]})


def test_all_environments_of_a_batch_are_made_of_the_same_arguments():
    """Those in workers, and the one here, from which their spaces are taken."""
    with contextlib.closing(envs.make(f"{HERE}:Typed", 2, num_workers=1, given=(1, 2))) as batch:
        assert batch.reset()[0].shape == (2, len("list"))


SHADOWS = {
    "needy.py": "import torch\nfrom tests.unit.envs.mistaken_environments import Right\nRight.x = torch.nn\n",
    "plain.py": "from tests.unit.envs.mistaken_environments import Right\n",
}


@pytest.mark.parametrize(
    ("module", "package"), [("needy", "torch"), ("plain", "torch"), ("plain", "gymnasium")]
)
def test_a_file_that_hides_an_installed_package_is_named(module, package, tmp_path):
    """Whether the environment needs the package, the rest of the run, or what looks at it: in a launcher."""
    for name, text in {**SHADOWS, f"{package}.py": ""}.items():
        (tmp_path / name).write_text(text)
    code = f"from spreeze_zmq import envs; envs.look('{module}:Right')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd(), importing.VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{tmp_path}/{package}.py hides the" in done.stderr.splitlines()[-1]
    assert "rename it" in done.stderr


@pytest.mark.parametrize(("begun", "place"), [(contextlib.nullcontext, -1), (importing.marked, 0)])
def test_the_current_folder_comes_first_in_our_own_programs_alone(begun, place, tmp_path, monkeypatch):
    """What a script imports later is still its own, and not a file of that name in the current folder."""
    (tmp_path / "of_here.py").write_text("from tests.unit.envs.mistaken_environments import Right\n")
    monkeypatch.chdir(tmp_path)
    before = [path for path in sys.path if path]
    monkeypatch.setattr(sys, "path", list(before))
    with begun():
        batch = envs.make("of_here:Right", 1)
    batch.close()
    assert sys.path.pop(place) == str(tmp_path)
    assert sys.path == before
    del sys.modules["of_here"]


@pytest.mark.parametrize("forks", [True, False])
def test_the_death_of_the_process_that_looks_ends_the_others(forks):
    """A launcher that is killed meanwhile leaves no simulator."""
    code = "from spreeze_zmq import envs; from spreeze_zmq.envs import probing\n"
    code += f"probing.may_fork = lambda: {forks}; envs.look('{HERE}:Hangs')"
    looking = subprocess.Popen([sys.executable, "-c", code])
    others = []
    try:
        until_s = time.monotonic() + 60
        while SIMULATOR not in [" ".join(words_of(other)) for other in others]:
            assert time.monotonic() < until_s, others
            time.sleep(0.02)
            others = psutil.Process(looking.pid).children(recursive=True)
    finally:
        looking.kill()
        looking.wait()
    until(lambda: all(gone(other.pid) for other in others), "their end")


@pytest.mark.parametrize("fails", [0, 1])
def test_a_look_that_cannot_begin_leaves_nothing(fails, monkeypatch):
    """Neither an open file nor a process, whichever of its pipes is one too many."""

    def scarce():
        calls.append("pipe")
        if len(calls) > fails:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pipe()

    def held():
        return {*os.listdir("/proc/self/fd"), *psutil.Process().children()}

    gc.collect()  # what other tests have left open may be closed meanwhile, and its number taken
    before, calls, pipe = held(), [], os.pipe
    monkeypatch.setattr(os, "pipe", scarce)
    with pytest.raises(OSError, match="Too many open files"):
        envs.look("CartPole-v1")
    assert held() <= before


def test_the_last_words_of_a_process_are_heard_however_late(monkeypatch):
    """It writes all that it has to say and ends while nobody looks, as on a busy machine."""
    visits, real, others = [], probing.select.select, psutil.Process().children()

    def late(*files_and_time):
        if visits:
            return real(*files_and_time)
        visits.append("late")
        new = [child for child in psutil.Process().children() if child not in others]
        [own] = [child for child in new if "spreeze-guard" not in words_of(child)]
        while own.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.02)
        return [], [], []

    monkeypatch.setattr(probing.select, "select", late)
    assert envs.look("CartPole-v1").spec.num_actions == 2
    assert visits
