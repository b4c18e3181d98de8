"""Whatever a peer says, learners and policies take it or refuse it with a word; what they keep is finite."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from extreme_messages import extremes
from golden_messages import MESSAGES
from hostile_values import THOROUGH, changed, costing_little, travelled
from hypothesis import given
from hypothesis import strategies as st

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.learning_figures import GAUGES_KEPT
from spreeze_zmq.broker.receipts import MOST_UNTAKEN, REPORTED_STREAMS
from spreeze_zmq.learner import Learner
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import Message, encode
from spreeze_zmq.wire.channels.refusals import LONGEST_EXAMPLE, MOST_REFUSALS
from spreeze_zmq.wire.header import MAX_SENDER_BYTES


@pytest.fixture(scope="module")
def learners(house, houses):
    """The critic-learner and actor-learner of SAC, and both of PPO."""
    both = (house, houses("cartpole", "algorithm.hidden_sizes=[8]"))
    made = [Learner(each.component(role)) for each in both for role in each.plan.learning.learners]
    torch.set_flush_denormal(False)  # which learners ask for, and hypothesis cannot bear
    return made


def rollout_of(learner, num_steps=4, num_envs=2, sequence=0, produced=8):
    """A good one, of random numbers, with the arrays that the learner asks for."""
    env, rng = learner.component.environment, np.random.default_rng(2)
    steps = (num_steps, num_envs)
    box = env.action_kind == "box"
    arrays = {
        "obs": rng.normal(size=(num_steps + 1, num_envs, *env.obs_shape)).astype(np.float32),
        "action": rng.normal(size=(*steps, *env.action_shape)).astype(np.float32)
        if box
        else rng.integers(0, env.action_sizes[0], steps),
        "reward": rng.normal(size=steps).astype(np.float32),
        "terminated": np.zeros(steps, np.bool_),
        "truncated": np.zeros(steps, np.bool_),
        "final_obs": np.zeros((0, *env.obs_shape), np.float32),
        "final_index": np.zeros((0, 2), np.int32),
        "log_prob": -np.ones(steps, np.float32),
    }
    fields = {"produced": produced, "policy_version": 0, "num_steps": num_steps, "num_envs": num_envs}
    arrays = {name: arrays[name] for name in arrays if name in learner.experience.intake.fields}
    return Message("rollout", fields, arrays, "sampler-0", 1, sequence)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gamma", 0.5),
        ("learning_rate", "x"),
        ("learning_rate", float("nan")),
        ("learning_rate", -1),
        ("", {}),
    ],
)
def test_a_learner_follows_what_may_move_and_nothing_else(learners, option, value):
    """Of its own role; a value that it does not take it names, and goes on as before."""
    for learner in learners:
        role, said = learner.component.role, []
        learner.on_set({"role": role, "option": "learning_rate", "value": 0.125})
        assert learner.half.learning_rate == 0.125
        learner.on_set({"role": "sampler", "option": "learning_rate", "value": 0.5})
        learner.component.report_failure = lambda summary, _, said=said: said.append(summary)
        learner.on_set({"role": role, "option": option, "value": value})
        del learner.component.report_failure
        expected = [] if option != "learning_rate" else ["learning_rate is not followed: set learning_rate"]
        assert [line.partition(": expected")[0] for line in said] == expected
        assert learner.half.learning_rate == learner.gauges().get("learning_rate", 0.125) == 0.125
    critic = learners[0]
    critic.on_set({"role": "critic_learner", "option": "replay_ratio", "value": 4})
    assert critic.experience.gate.replay_ratio == 4.0


def take(learner, message):
    """Give a learner's intake one message as its channel would; returns the rollout if it was taken."""
    intake = learner.experience.intake
    channel = intake.puller
    frames = [bytes(frame) for frame in encode(message)] if isinstance(message, Message) else message
    waiting = [frames]
    receive = channel._receive_frames
    channel._receive_frames = lambda: waiting.pop() if waiting else None
    try:
        return intake.take()
    finally:
        channel._receive_frames = receive


@THOROUGH
@given(st.integers(0, 3), st.data())
def test_learners_take_any_rollout(learners, which, data):
    """What is taken is finite, of the right shapes, and in the account; a batch can be drawn of it."""
    learner = learners[which % len(learners)]
    sequence = learner.experience.intake.receipts._sequences.get("sampler-0/1", -1) + 1
    stream = learner.experience.intake.receipts.streams.get("sampler-0/1")
    message = rollout_of(learner, sequence=sequence, produced=(stream.last if stream else 0) + 8)
    fields = changed(data, message.fields) if data.draw(st.booleans()) else message.fields
    arrays = {name: np.array(array) for name, array in message.arrays.items()}
    name = data.draw(st.sampled_from(sorted(arrays)))
    what = data.draw(st.sampled_from(["fine", "number", "left out", "dtype", "cut", "wider"]))
    if what == "number" and arrays[name].size:
        odd = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -1e16, 1e15, -7, 255]))
        with np.errstate(all="ignore"):
            arrays[name].flat[-1] = np.array(odd).astype(arrays[name].dtype)
    elif what == "left out":
        del arrays[name]
    elif what == "dtype":
        arrays[name] = arrays[name].astype(data.draw(st.sampled_from(["float64", "int64", "uint8", "bool"])))
    elif what == "cut":
        arrays[name] = arrays[name][:-1]
    elif what == "wider":
        arrays[name] = np.concatenate([arrays[name], arrays[name]], axis=-1)
    try:
        frames = [bytes(frame) for frame in encode(message._replace(fields=fields, arrays=arrays))]
    except WireError:
        return
    rollout = take(learner, frames)
    if rollout is not None:
        for given_array in rollout.arrays().values():
            assert given_array.dtype.kind != "f" or (np.abs(given_array) <= 1e15).all()
        if learner.experience.wants:
            learner.experience.add(rollout)
    for receipt in learner.experience.intake.receipts.streams.values():
        assert receipt.received + receipt.refused + receipt.lost == receipt.last - receipt.first
        assert min(receipt.lost, receipt.refused, receipt.received, receipt.first) >= 0
    encode(Message("report", learner.component.own_report(), {}, learner.component.name, 1))


def test_arrays_that_nobody_asked_for_are_passed_over(learners):
    """No check sees them: masks of no width, another memory, and a state, which is kept in order alone."""
    for learner in learners:
        intake = learner.experience.intake
        message = rollout_of(learner)._replace(sender="../../x")
        odd = {
            "action_mask": np.zeros((5, 2, 0), np.bool_),
            "final_action_mask": np.zeros((0, 3), np.bool_),
            "final_index": np.zeros((0, 2), np.int32),
            "memory": np.full((2, 7), np.nan, np.float32),
            "state": np.zeros(9, np.uint8),
        }
        rollout = take(learner, message._replace(arrays={**odd, **message.arrays}))
        assert rollout.arrays().keys() == message.arrays.keys()
        assert intake.states == {}
        learner.experience.add(rollout)


@THOROUGH
@given(st.sampled_from(["policy", "critic", "set", "checkpoint", "stop", "status", "scale"]), st.data())
def test_learners_take_any_weights_and_control(learners, kind, data):
    """Weights that do not fit are refused, and what is not understood is passed over."""
    critic, actor = learners[:2]
    fields = changed(data, MESSAGES[kind].fields)
    arrays = {name: np.array(array) for name, array in MESSAGES[kind].arrays.items()}
    if kind == "policy" and data.draw(st.booleans()):
        arrays = {**actor.half.policy_arrays()}
        arrays["parameters"] = arrays["parameters"].copy()
        arrays["parameters"][0] = data.draw(st.sampled_from([0.0, np.nan, np.inf, 3e38]))
    if kind == "critic" and data.draw(st.booleans()):
        arrays = {"parameters": critic.half.weights.numpy().copy()}
        arrays["parameters"][-1] = data.draw(st.sampled_from([0.0, np.nan, np.inf, 3e38]))
    if (heard := travelled(Message(kind, fields, arrays, "peer-0", 1))) is not None:
        say_to_learners(critic, actor, heard)


def say_to_learners(critic, actor, heard):
    """Have the learners of SAC hear a message of the broker, or each other's weights."""
    kind = heard.kind
    if kind in ("policy", "critic"):
        reader, weights = (critic, critic.others) if kind == "policy" else (actor, actor.others)
        weights.subscriber.newest = lambda: heard
        reader.take_weights()
        assert np.isfinite(reader.half.weights.numpy()).all()
    elif kind != "stop":
        for handler in critic.component._handlers.get(kind, ()):
            handler(heard.fields)
    critic.component.stop_reason = ""


def test_nobody_in_a_learner_keeps_a_message_from_another(learners):
    """A status says whether a hello was heard, what the run has sampled and what time it is, and to who
    publishes by rounds how many samplers live.
    """
    actor, experience = learners[3], learners[3].experience
    own = [actor.component._say_hello_again, experience.hear_run, experience.on_status]
    assert actor.component._handlers["status"] == [*own, actor.course.time.hear]


@THOROUGH
@given(st.data())
def test_a_checkpoint_is_asked_for_by_a_plain_name(learners, data):
    """Another writes nothing."""
    component = learners[0].component
    vault = Vault(component, learners[0].state, learners[0].experience.replay, lambda: True)
    folder = data.draw(st.sampled_from(["../x", "/tmp/x", "a/b", "", ".", "..", "x\0y"]))
    vault._on_request({"folder": folder})
    vault.serve()
    assert list(component.folder.checkpoints.iterdir()) == []


@THOROUGH
@given(st.data())
def test_a_policy_is_acted_with_or_refused(learners, data):
    """What a sampler and an evaluator make of a message: a policy, or a refusal that names the reason."""
    actor = learners[1].half
    fields = {**MESSAGES["policy"].fields, "description": actor.description(), "extras": {}}
    heard = travelled(Message("policy", changed(data, fields), actor.policy_arrays(), "actor_learner-0", 1))
    if heard is None:
        return
    with suppress(WireError), np.errstate(all="ignore"):
        policy = Policy.from_message(heard.fields, heard.arrays)
        policy.act(np.zeros((2, 3), np.float32), np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["policy", "critic", "set", "checkpoint"])
def test_no_number_sizes_what_a_learner_does(learners, kind):
    """Each field at its extremes."""
    for message in extremes(kind):
        if (heard := travelled(message._replace(sender="peer-0", incarnation=1))) is None:
            continue
        with costing_little(message), suppress(WireError):
            say_to_learners(*learners[:2], heard)


def test_no_report_outgrows_its_header(houses):
    """What others send is told in it: the longest names of most streams, and examples of every channel, in
    characters of four bytes.
    """
    learner = Learner(houses("pendulum", "algorithm.hidden_sizes=[8]").component("actor_learner"))
    name, long = f"{{:0>{MAX_SENDER_BYTES}}}", "\U0001f600" * LONGEST_EXAMPLE
    for number in range(MOST_UNTAKEN):
        stream = f"{name.format(number)}/{2**53 - 1 - number}"
        learner.experience.intake.receipts.refuse(stream, 2**53, 2**24, sure=True)
    for channel in learner.component._channels.values():
        for number in range(2 * MOST_REFUSALS):
            error = WireError("stale" if number % 2 else "wrong_field_type", long)
            channel.refusals.refuse(error, name.format(number), "learner_failure")
    gauges = {f"policy_gradient_norm_{number}": 1 / 3 for number in range(GAUGES_KEPT)}
    learner.component.figures["gauges"] = lambda: gauges
    reports = learner.component._reports()
    assert len(reports) > MOST_UNTAKEN / REPORTED_STREAMS
    for fields in reports:
        assert len(fields["taken"]) == REPORTED_STREAMS
        encode(Message("report", fields, {}, learner.component.name, 2**53 - 1))
