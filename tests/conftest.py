"""What tests share: a cache and keys that are not the user's, and one thread where sums must repeat."""

import contextlib
import fcntl
import importlib
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from spreeze_zmq.base.machine import cache_folder
from spreeze_zmq.base.once import HAS_NO_LOCKS
from spreeze_zmq.envs import probing
from spreeze_zmq.nn.native import library
from spreeze_zmq.peers import peers as harness
from spreeze_zmq.peers.program import Life
from spreeze_zmq.policy import actor
from tests.forked import Servers

ROOT = Path(__file__).parents[1]
# A shell's background job ignores Ctrl-C, and what nohup started the end of a terminal: so would the programs
# that tests start.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
#: A worker of pytest-xdist has the screen's size in these; programs in a terminal of a test's own ask that.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)


# Beside other tests an example may take any time. The same are tried each time, as what passes
# here must pass elsewhere; others where SPREEZE_CASES is set.
settings.register_profile(
    "beside others",
    deadline=None,
    derandomize="SPREEZE_CASES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("beside others")

#: Files whose tests share a whole run or a compiled program, and therefore a worker.
TOGETHER = {
    "tests/component/foreign/test_conform.py": "built_cpp",
    "tests/component/foreign/test_cpp_failures.py": "built_cpp",
    "tests/component/foreign/test_cpp_rules.py": "built_cpp",
    "tests/component/foreign/test_foreign_policies.py": "built_cpp",
    "tests/component/foreign/test_hello.py": "built_cpp",
    "tests/component/foreign/test_robots.py": "built_cpp",
    "tests/system/test_foreign.py": "built_cpp",
    "tests/system/test_bad_input.py": "outcomes",
    "tests/system/test_launch_flags.py": "seeds",
    "tests/system/test_main_job.py": "main_job",
    "tests/system/test_python.py": "trained",
    "tests/system/test_replay.py": "recorded",
    "tests/system/test_takeaway.py": "trained",
    "tests/system/test_trust.py": "own_run",
}
#: Folders whose tests start processes, in the order in which they run; those of others are short.
PROCESSES = ("tests/system", "tests/component", "tests/peers")
#: A test that takes longer says why by its mark ``long``.
LONG_S = 10.0


class Scheduler(LoadScopeScheduling):
    """Hands out tests that start processes one by one, those that share something and other files whole."""

    def _split_scope(self, nodeid):
        file = nodeid.split("::")[0]
        return TOGETHER.get(file, nodeid if file.startswith(PROCESSES) else file)


def pytest_sessionstart():
    """Environments are looked at in a fork of the tests' process, although that has threads and torch: those
    here need neither, and a new interpreter for each would take half a second. Some files look as they are
    collected.
    """
    importlib.import_module("spreeze_zmq.envs.in_process")  # else each fork would import Gymnasium again
    importlib.import_module("spreeze_zmq.envs.tasks.classic")
    # A fork of a process that has used a GPU dies when it frees what lay there.
    probing.may_fork = lambda: not torch.cuda.is_initialized()


def pytest_xdist_make_scheduler(config, log):
    """In the order of the collection, where a hook of this file has put what takes long first."""
    config.option.loadscopereorder = False
    return Scheduler(config, log)


def pytest_collection_modifyitems(items):
    """The longest first: no worker is left with one of them at the end, while the others have nothing."""

    def place(item):
        folder = next((n for n, each in enumerate(PROCESSES) if item.nodeid.startswith(each)), len(PROCESSES))
        return item.get_closest_marker("long") is None, folder

    items.sort(key=place)
    apart = sorted({f"{file} uses {shared}" for item in items for file, shared in shared_apart(item)})
    if apart:
        raise pytest.UsageError(f"{'; '.join(apart)}: each worker would make its own; add it to TOGETHER")


def shared_apart(item):
    """The file of a test and each shared fixture that it uses without being ``TOGETHER`` with its others."""
    file = item.nodeid.split("::")[0]
    own = getattr(item, "callspec", None)
    used = set(item.fixturenames) & set(TOGETHER.values()) - set(own.params if own else ())
    return [(file, name) for name in used if file.startswith(PROCESSES) and TOGETHER.get(file) != name]


def pytest_terminal_summary(terminalreporter):
    """Name the tests that took longer than their marks say."""
    for report in terminalreporter.getreports("passed"):
        if report.when == "call" and report.duration > LONG_S and "long" not in report.keywords:
            terminalreporter.write_line(f"{report.duration:.0f} s without a reason: {report.nodeid}")


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory):
    """Where runs keep what they measured and their marks, for all workers and the processes that they start:
    native layers are compiled once, unless the user's cache has them. Their names tell sources and compiler.
    """
    names, compiled = ("XDG_CACHE_HOME", "XDG_STATE_HOME"), list(cache_folder().glob("native-*.so"))
    before = {name: os.environ.get(name) for name in names}
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        os.environ[name] = str(folder / name)
    cache_folder().mkdir(exist_ok=True)
    for path in compiled:
        with contextlib.suppress(OSError):  # another worker has linked it, or it is on another disk
            os.link(path, cache_folder() / path.name)
    yield
    for name in names:
        os.environ.pop(name)
    os.environ |= {name: value for name, value in before.items() if value is not None}


@pytest.fixture(scope="session")
def native_layers(cache_of_its_own):
    """Native layers are compiled before learners start, whose hello is waited for only so long."""
    library.prepare(print)


@pytest.fixture
def nothing_measured(native_layers, tmp_path, monkeypatch):
    """A cache as on a machine that has measured nothing yet, but for the native layers."""
    new = tmp_path / "cache" / "spreeze_zmq"
    new.mkdir(parents=True)
    for path in (Path(os.environ["XDG_CACHE_HOME"]) / "spreeze_zmq").glob("native-*.so"):
        os.link(path, new / path.name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(new.parent))


@pytest.fixture(scope="session", autouse=True)
def keys_of_its_own(tmp_path_factory):
    """Where keys are looked for, for this session and the processes that it starts; there are none."""
    os.environ["SPREEZE_KEYS"] = str(tmp_path_factory.mktemp("keys") / "keys.json")
    yield
    os.environ.pop("SPREEZE_KEYS")


def state_of_the_process():
    """What one test could leave behind for whichever comes next on its worker."""
    ours = [name for name in logging.Logger.manager.loggerDict if name.startswith("spreeze")]
    loggers = [logging.getLogger(name) for name in (None, *ours)]
    state = {f"logger {each.name}": each.level for each in loggers if each.level}
    state |= {f"disabled {each.name}": True for each in loggers if each.disabled}
    state.pop("logger spreeze.page", None)  # for ever silent
    state |= {each.name: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    own = ("SPREEZE", "XDG", "PATH", "HOME", "PYTHONPATH")
    state |= {name: text for name, text in os.environ.items() if name.startswith(own)}
    return state | {"folder": Path.cwd(), "logging.disable": logging.root.manager.disable}


@pytest.fixture(autouse=True)
def nothing_left():
    """A test leaves the process as it found it: which one comes next depends on how fast the workers are."""
    before = state_of_the_process()
    yield
    after = state_of_the_process()
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert not changed, {name: (before.get(name), after.get(name)) for name in changed}


@pytest.fixture(autouse=True)
def own_imports():
    """What a command or component that ran in a test's process may import is nothing for the next ones:
    folders of modules, and classes that messages may name.
    """
    path, before = sys.path[:], list(actor._loaders)
    yield
    sys.path[:], actor._loaders[:] = path, before


@pytest.fixture(autouse=True)
def denormals():
    """A learner made in a test's process has torch flush denormals, which hypothesis in a later one sees."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


@pytest.fixture
def one_thread():
    """One thread of torch: sums are bit-identical only in one order."""
    import torch  # most tests need none

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def servers(cache_of_its_own):
    """They fork shipped components, each of which would else import torch or Gymnasium once more."""
    made = Servers()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def forked(servers):
    """The harness of the protocol starts shipped components as a launcher does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "Life", servers.life)
        yield


@pytest.fixture
def by_command(forked, monkeypatch):
    """The harness starts them by their commands, as somebody else does."""
    monkeypatch.setattr(harness, "Life", Life)


@pytest.fixture(params=HAS_NO_LOCKS)
def no_locks(request, monkeypatch):
    """A file system that has none, in this process."""

    def flock(file, how):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.fixture(scope="session")
def built_cpp(cache_of_its_own):
    """The folder in which the sampler in C++ was built, with its library."""
    missing = [tool for tool in ("cmake", "c++") if shutil.which(tool) is None]
    missing += [f for f in ("zmq.h", "nlohmann/json.hpp") if not (Path("/usr/include") / f).exists()]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt install cmake g++ libzmq3-dev nlohmann-json3-dev")
    command = [sys.executable, ROOT / "components" / "sampler_cpp", "--build"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder,) = (Path(os.environ["XDG_CACHE_HOME"]) / "spreeze_zmq").glob("build-sampler_cpp-*")
    return folder


@pytest.fixture(scope="session")
def new_node(cache_of_its_own, tmp_path_factory):
    """A sampler in JavaScript as ``spreeze new`` writes it, with its packages."""
    missing = [tool for tool in ("node", "npm", "flock") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt install nodejs npm util-linux")
    folder = tmp_path_factory.mktemp("new") / "pendulum_js"
    command = [
        sys.executable,
        "-m",
        "spreeze_zmq.commands.spreeze",
        "new",
        folder,
        "--language",
        "javascript",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and subprocess.run(["npm", "ping"], capture_output=True, check=False).returncode:
        pytest.skip("npm reaches no registry to fetch zeromq and @msgpack/msgpack from")
    assert done.returncode == 0, done.stderr
    return folder
