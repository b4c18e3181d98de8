"""Which channels of a topology are encrypted, and the mistakes about it."""

import pytest

from spreeze_zmq.base.endpoints import write_keys
from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.topology import load
from spreeze_zmq.wire.channels import make_keys

BEYOND = 'channels.policy.endpoint="tcp://10.0.0.1:5555"'
HERE = 'channels.policy.endpoint="tcp://127.0.0.1:5555"'
ENCRYPTED = "channels.policy.curve=true"


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """A user who has keys."""
    monkeypatch.setenv("SPREEZE_KEYS", str(tmp_path / "keys.json"))
    write_keys(make_keys())


@pytest.mark.parametrize(
    ("overrides", "encrypted"), [([], False), ([HERE], False), ([HERE, ENCRYPTED], True), ([BEYOND], True)]
)
def test_beyond_this_machine_it_is_a_must_and_on_it_a_choice(keys, overrides, encrypted):
    """The plan says so to components in any language."""
    plan = load("pendulum", overrides)
    assert plan.channels["policy"].curve is encrypted
    assert not plan.channels["control"].curve
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([BEYOND], "CURVE keys are needed: "),
        ([HERE, ENCRYPTED], "make them with `spreeze keys`"),
        ([BEYOND, "channels.policy.curve=false"], "an endpoint beyond this machine is always encrypted"),
        (['channels.policy.endpoint="ipc:///tmp/x"', ENCRYPTED], "only a tcp endpoint is encrypted"),
        ([ENCRYPTED], "only a tcp endpoint is encrypted"),
    ],
)
def test_mistakes_are_one_line_each(overrides, said):
    """Of a user without keys."""
    with pytest.raises(TopologyError) as caught:
        load("pendulum", overrides)
    (mistake,) = caught.value.mistakes
    assert said in str(mistake)


@pytest.mark.parametrize("option", ["high_water_mark", "socket_buffer_bytes"])
def test_an_option_of_a_socket_is_a_32_bit_integer(option):
    """A larger one would end each process that opens the channel."""
    most = 2**31 - 1
    plan = load("pendulum", [f"channels.policy.{option}={most}"])
    assert getattr(plan.channels["policy"], option) == most
    with pytest.raises(TopologyError) as caught:
        load("pendulum", [f"channels.policy.{option}={most + 1}"])
    (mistake,) = caught.value.mistakes
    assert f"channels.policy.{option}" in str(mistake)


@pytest.mark.parametrize(
    ("overrides", "num_bytes"),
    [
        ([], 16 * 1024),
        (['channels.experience.critic_learner.endpoint="tcp://127.0.0.1:5555"'], 16 * 1024),
        (['channels.experience.critic_learner.endpoint="tcp://10.0.0.1:5555"'], 0),
        (
            [
                'channels.experience.critic_learner.endpoint="tcp://10.0.0.1:5555"',
                "channels.experience.critic_learner.socket_buffer_bytes=1000000",
            ],
            1_000_000,
        ),
    ],
)
def test_beyond_this_machine_the_kernel_holds_more_than_16_kib(keys, overrides, num_bytes):
    """What it holds is all that travels in a round trip; a topology may say how much."""
    plan = load("pendulum", overrides)
    assert plan.channels["experience.critic_learner"].socket_buffer_bytes == num_bytes
