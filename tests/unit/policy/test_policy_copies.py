"""Copies and pickles of policies: ``multiprocessing`` and other libraries make them."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from spreeze_zmq import Policy, Run, algorithms, envs
from tests.unit.algorithms.shipped import BOX
from tests.unit.algorithms.test_shared_encoder import DOT, ONE_PART
from tests.unit.evaluation.test_saved import save_for

ENVIRONMENTS = {"layers": BOX, "conv2d": DOT, "class": ONE_PART}
WAYS = {
    "pickle": lambda each: pickle.loads(pickle.dumps(each)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}
ELSEWHERE = "import pickle, sys; policy, obs = pickle.load(sys.stdin.buffer); print(policy(obs).tolist())"
pytestmark = pytest.mark.usefixtures("one_thread")


def published(env):
    """What SAC publishes, and observations for it."""
    kind = algorithms.get("sac")
    settings = {"hidden_sizes": (32,), "precision": "fp32", "batch_size": 64, "replay_capacity": 4_000}
    half = algorithms.make("policy", kind, algorithms.options_from(kind.Options, settings), env, "cpu", 1)
    fields = {"version": 3, "description": half.description(), "extras": {"temperature": 0.5}}
    obs = np.random.default_rng(0).integers(0, 255, (2, *env.obs_shape)).astype(env.obs_dtype)
    arrays = {name: array.copy() for name, array in half.policy_arrays().items()}
    return Policy(fields, arrays, {"a": "b"}), obs


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_a_copy_of_a_policy_acts_as_it_does(kind):
    """Whatever acts in it: layers in NumPy, a convolution in torch, a class."""
    policy, obs = published(ENVIRONMENTS[kind])
    assert ("class" in policy.description) == (kind == "class")
    for name, copied in WAYS.items():
        again = copied(policy)
        np.testing.assert_array_equal(again(obs), policy(obs), err_msg=name)
        assert (again.version, again.extras, again.metadata) == (3, {"temperature": 0.5}, {"a": "b"})


def test_a_pickled_class_policy_acts_in_another_process():
    """Which has imported nothing of this library."""
    policy, obs = published(ONE_PART)
    code = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(code, input=pickle.dumps((policy, obs)), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    np.testing.assert_allclose(json.loads(done.stdout), policy(obs), rtol=1e-5)


def test_a_run_is_pickled_also_when_its_policy_has_been_read(tmp_path):
    """As a result of ``multiprocessing``, for instance."""
    save_for(tmp_path / "policy.safetensors", envs.probe("Pendulum-v1").to_dict(), "sac")
    run, obs = Run(tmp_path, ("mine",)), np.ones(3, np.float32)
    acted = run.policy(obs)
    for copied in WAYS.values():
        again = copied(run)
        assert again == run
        np.testing.assert_array_equal(again.policy(obs), acted)
