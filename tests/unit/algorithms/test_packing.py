"""The digest of how a half packs its networks, and the refusal of another."""

import hashlib

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.packing import Layout
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan import topology

TWO = Layout((("a.weight", (2, 3)), ("a.scale", ())))


def halves(*overrides):
    """Both halves of the algorithm of a run of Pendulum-v1."""
    plan = topology.load("pendulum", ["algorithm={hidden_sizes=[8]}", "balance={}", *overrides])
    algorithm, options = algorithm_of(plan)
    made = (algorithms.make(part, algorithm, options, plan.environment, "cpu", 1) for part in PARTS)
    return dict(zip(PARTS, made, strict=True))


PARTS = ("critic", "policy")


def test_the_digest_is_that_of_a_line_for_each_tensor():
    """Names, shapes and order; a number has no dimension."""
    assert TWO.layout == hashlib.sha256(b"a.weight:2,3\na.scale:\n").hexdigest()[:16]
    others = (
        TWO.tensors[::-1],
        (("a.weight", (3, 2)), TWO.tensors[1]),
        (("b.weight", (2, 3)), TWO.tensors[1]),
    )
    assert len({TWO.layout, *(Layout(tensors).layout for tensors in others)}) == 4


@pytest.mark.parametrize("algorithm", ["sac", "td3", "ppo"])
def test_each_half_expects_what_the_other_one_names(algorithm):
    """And refuses any other."""
    both = halves(f"run.algorithm={algorithm}")
    both["policy"].load("critic", {"parameters": both["critic"].weights.numpy()}, both["critic"].layout)
    both["critic"].load("policy", both["policy"].policy_arrays(), both["policy"].layout)
    for reader, kind in (("policy", "critic"), ("critic", "policy")):
        with pytest.raises(WireError, match=r"layout '0+', expected '[0-9a-f]{16}'") as refusal:
            both[reader].load(kind, {"parameters": both[kind].weights.numpy()}, "0" * 16)
        assert refusal.value.reason == "bad_parameters"


def test_networks_of_equal_size_and_other_shape_differ():
    """Two hidden layers for the four inputs and one output of the critics: 33 numbers each."""
    few, many = (halves(f"algorithm.hidden_sizes={sizes}")["critic"] for sizes in ("[1,9]", "[4,2]"))
    assert few.weights.shape == many.weights.shape == (2 * 33,)
    assert few.layout != many.layout
