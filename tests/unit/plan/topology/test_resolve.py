"""What "auto" becomes on machines of every size."""

import pytest

from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.topology.resolve import (
    device_problem,
    num_visible,
    resolve_count,
    resolve_device,
    resolve_threads,
)


@pytest.mark.parametrize(
    ("written", "cores", "expected"),
    [
        ("auto", 1, Count(1, 1, 8)),
        ("auto", 2, Count(1, 1, 8)),
        ("auto", 8, Count(6, 1, 8)),
        ("auto", 128, Count(126, 1, 128)),
        ("auto", 256, Count(195, 1, 195)),
        (3, 2, Count(3, 3, 3)),
        ([1, 4], 2, Count(1, 1, 4)),
        ([1, 4], 8, Count(4, 1, 4)),
        ([3, 4], 2, Count(3, 3, 4)),
    ],
)
def test_samplers_take_what_the_learners_leave(written, cores, expected):
    """Two cores are the learners', the range of the topology is kept, and a run has room for 195."""
    assert resolve_count("sampler", written, cores, 2, 195) == expected


def test_every_other_role_has_one_process():
    """Whatever the machine."""
    assert resolve_count("evaluator", "auto", 64, 2) == Count(1, 1, 1)


@pytest.mark.parametrize(
    ("role", "written", "cores", "num_samplers", "expected"),
    [
        ("critic_learner", "auto", 2, 1, 1),
        ("critic_learner", "auto", 8, 2, 3),
        ("actor_learner", "auto", 8, 6, 1),
        ("actor_learner", "auto", 2, 9, 1),
        ("actor_learner", 5, 2, 1, 5),
        ("sampler", "auto", 64, 2, 1),
        ("broker", "auto", 64, 2, 1),
    ],
)
def test_learners_share_the_threads_that_samplers_leave(role, written, cores, num_samplers, expected):
    """Never fewer than one, and a written number stands."""
    assert resolve_threads(role, written, cores, num_samplers, 2) == expected


@pytest.mark.parametrize(
    ("role", "written", "num_devices", "expected"),
    [
        ("critic_learner", "auto", 0, "cpu"),
        ("critic_learner", "auto", 1, "cuda:0"),
        ("actor_learner", "auto", 1, "cuda:0"),
        ("critic_learner", "auto", 2, "cuda:0"),
        ("actor_learner", "auto", 2, "cuda:1"),
        ("actor_learner", "cuda", 2, "cuda:0"),
        ("actor_learner", "cpu", 2, "cpu"),
    ],
)
def test_two_learners_take_two_gpus(role, written, num_devices, expected):
    """One each where there are two, the same where there is one."""
    assert resolve_device(role, written, num_devices) == expected


@pytest.mark.parametrize(
    ("written", "num_devices", "torch_has_cuda", "fragment"),
    [
        ("cuda:1", 0, True, "this machine has no CUDA devices"),
        ("cuda:1", 1, True, "this machine has 1 CUDA device"),
        ("cuda:2", 2, True, "this machine has 2 CUDA devices"),
        ("cuda", 0, False, "this machine has no CUDA devices"),
        ("cuda", 1, False, "needs a torch with CUDA"),
    ],
)
def test_an_absent_gpu_is_reported_before_torch_is_imported(written, num_devices, torch_has_cuda, fragment):
    """With the number that there is."""
    assert fragment in device_problem(written, num_devices, torch_has_cuda)


@pytest.mark.parametrize("written", ["cpu", "auto", "cuda", "cuda:0", "cuda:1"])
def test_a_present_device_has_no_problem(written):
    """Two GPUs and a torch that uses them."""
    assert device_problem(written, 2, True) == ""


@pytest.mark.parametrize(
    ("present", "listed", "expected"),
    [
        (2, None, 2),
        (0, "0", 0),
        (2, "", 0),
        (2, "1", 1),
        (4, "0, 2", 2),
        (2, "0,5,1", 1),
        (2, "-1", 0),
        (2, "GPU-a", 1),
        (2, "GPU-a,GPU-b", 2),
        (2, "MIG-a,MIG-b", 1),
        (2, "0,0", 0),
    ],
)
def test_hidden_gpus_are_not_counted(present, listed, expected):
    """CUDA_VISIBLE_DEVICES as CUDA reads it: the first invalid entry ends the list, a repeated one
    empties it, and a process has one instance of MIG.
    """
    assert num_visible(present, listed) == expected
