"""bf16 is used where the device has it and nowhere else."""

import pytest
import torch

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.machine import cpu_flags
from spreeze_zmq.nn import allow_tf32, choose, dtypes_of, mlp
from spreeze_zmq.nn.native.library import library

CPU, GPU = torch.device("cpu"), torch.device("cuda")
FP32, BF16 = (torch.float32,), (torch.bfloat16,)


@pytest.mark.parametrize(
    ("precision", "auto_bf16", "flags", "expected"),
    [
        ("auto", True, {"avx2"}, FP32),
        ("auto", True, {"avx512_bf16"}, (*FP32, *BF16)),
        ("auto", True, {"amx_bf16"}, (*FP32, *BF16)),
        ("auto", False, {"amx_bf16"}, FP32),
        ("fp32", True, {"amx_bf16"}, FP32),
        ("bf16", False, {"amx_bf16"}, BF16),
    ],
)
def test_the_format_follows_the_processor(precision, auto_bf16, flags, expected):
    """auto tries bf16 only in hardware, and only for an algorithm that learns as well with it."""
    assert dtypes_of(precision, CPU, auto_bf16, frozenset(flags)) == expected


def test_emulated_bf16_is_refused_with_the_reason():
    """It would be many times slower than what the user hoped to speed up."""
    with pytest.raises(InputError, match=r"cpu has none of amx_bf16 or avx512_bf16.*emulate"):
        dtypes_of("bf16", CPU, True, frozenset({"avx2"}))


def test_tf32_is_refused_where_there_are_no_tensor_cores():
    """And is float32 to everything but their products."""
    with pytest.raises(InputError, match="cpu has no TF32, a GPU has"):
        allow_tf32("tf32", CPU)
    allow_tf32("fp32", CPU)
    assert dtypes_of("tf32", GPU, True) == FP32


@pytest.fixture
def a_gpu_of(monkeypatch):
    """A function that makes the GPU one of a generation; what is set for it is put back."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    def is_of(capability):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        has_bf16 = capability >= (8, 0)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)

    yield is_of
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def test_an_older_gpu_is_told_what_it_lacks(a_gpu_of):
    """Not the flags of a CPU; a V100 has neither format."""
    a_gpu_of((7, 0))
    with pytest.raises(InputError, match=r"cuda multiplies no bf16 in hardware.*emulate"):
        dtypes_of("bf16", GPU, True)
    with pytest.raises(InputError, match="cuda has no TF32, a GPU from Ampere on has"):
        allow_tf32("tf32", GPU)
    assert dtypes_of("auto", GPU, True) == FP32


@pytest.mark.parametrize(
    ("precision", "of_matrices", "of_convolutions"),
    [("fp32", "highest", False), ("tf32", "high", True), ("auto", "highest", True)],
)
def test_fp32_rounds_no_factors_of_convolutions_either(a_gpu_of, precision, of_matrices, of_convolutions):
    """cuDNN has a switch of its own, which torch leaves on."""
    a_gpu_of((9, 0))
    allow_tf32(precision, GPU)
    assert torch.get_float32_matmul_precision() == of_matrices
    assert torch.backends.cudnn.allow_tf32 == of_convolutions


def test_flags_are_read_whole_words(tmp_path):
    """One processor's line is enough; no such file means no flags."""
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_bf16_not\nflags\t\t: other\n")
    assert cpu_flags(str(path)) == {"fpu", "avx512_bf16", "amx_bf16_not"}
    assert cpu_flags(str(tmp_path / "absent")) == frozenset()


@pytest.mark.skipif(library().code is None, reason="no native layers here")
@pytest.mark.parametrize("threads", [1, 3])
def test_the_line_says_where_threads_stand_idle(one_thread, threads):
    """A native call takes one, however many the learner has been given."""
    torch.set_num_threads(threads)
    line = choose({"policy": mlp((4, 16, 2))}, 64, FP32).line
    assert line.startswith("layers: native")
    assert line.endswith("; each in one of 3 threads") == (threads == 3)
