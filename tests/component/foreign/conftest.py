"""What the tests of the sampler in C++ share."""

import subprocess
from pathlib import Path

import pytest

from components.sampler_cpp import __main__ as program
from spreeze_zmq.base.once import BUILD_S, alone

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def probe(built_cpp):
    """A program that plays the parts of the sampler in C++ without a run."""
    source = ROOT / "components" / "sampler_cpp"
    configure = ["cmake", "-S", source, "-B", built_cpp, f"-DPROBE={Path(__file__).with_name('probe.cpp')}"]
    with alone(built_cpp / "probe", "building the probe", most_s=BUILD_S), program.in_turn(built_cpp):
        for command in (configure, ["cmake", "--build", built_cpp, "--target", "probe"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return built_cpp / "probe"
