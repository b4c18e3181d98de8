"""The samplers in other languages, where a broker that was started again does not know them as ready."""

import sys

import pytest

from spreeze_zmq.peers import policies
from spreeze_zmq.peers.sampler_acts import publish_policy
from tests.component.conftest import ROOT

CHEETAH = ["run.env=HalfCheetah-v5", "components.sampler.use=sampler_cpp"]
EXAMPLE = ROOT / "components" / "examples" / "sampler_python" / "sampler.py"
COMMANDS = {
    "c++": lambda request: [str(request.getfixturevalue("built_cpp") / "sampler_cpp")],
    "python": lambda request: [sys.executable, str(EXAMPLE)],
    "javascript": lambda request: ["node", str(request.getfixturevalue("new_node") / "sampler.js")],
}


@pytest.fixture
def command(request):
    """The sampler in a language."""
    return COMMANDS[request.param](request)


@pytest.mark.parametrize(
    ("peers", "command"),
    [(CHEETAH, "c++"), ([], "python"), ([], "javascript")],
    indirect=True,
    ids=["c++", "python", "javascript"],
)
def test_a_hello_that_went_with_the_broker_before_is_said_again(by_command, peers, command):
    """Once; else the launcher would wait for it until the start's deadline, and start the process again."""
    peers.play("sampler")
    peers.command = command
    publish_policy(peers, 0, policies.random_policy(peers.plan.environment, "tanh_normal", 1))
    peers.start()
    row = {"pid": peers.next("hello").fields["pid"], "ready": True}

    def say(**about):
        """A status that says this of the process."""
        peers.publish("control", "status", processes={"sampler-0": {**row, **about}})

    def told(**about):
        """How many hellos there are two reports after such a status."""
        say(**about)
        for _ in range(2):  # the first may have been made before it was heard
            peers.later_report()
        return hellos()

    def hellos():
        return len(peers.between(None, None, "hello"))

    began_s = peers.report()["uptime_s"]
    while peers.report()["uptime_s"] < began_s + 2.0:
        assert told() == 1
    assert told(ready=False, pid=1) == 1
    for _ in range(2):  # heard together: the second comes too soon for another hello
        say(ready=False)
    peers.until("", "another hello", lambda: hellos() > 1)
    assert told() == 2
