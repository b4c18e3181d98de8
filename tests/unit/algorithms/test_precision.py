"""bf16 is used where the device has it and nowhere else."""

import pytest
import torch

from spreeze_zmq.algorithms.precision import allow_tf32, compute_dtype, cpu_flags
from spreeze_zmq.errors import InputError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("precision", "flags", "expected"),
    [
        ("auto", {"avx2"}, torch.float32),
        ("auto", {"avx512_bf16"}, torch.bfloat16),
        ("auto", {"amx_bf16"}, torch.bfloat16),
        ("fp32", {"amx_bf16"}, torch.float32),
        ("bf16", {"amx_bf16"}, torch.bfloat16),
    ],
)
def test_the_format_follows_the_processor(precision, flags, expected):
    """auto takes the faster one that is native."""
    assert compute_dtype(precision, CPU, frozenset(flags)) == expected


def test_emulated_bf16_is_refused_with_the_reason():
    """It would be many times slower than what the user hoped to speed up."""
    with pytest.raises(InputError, match=r"cpu has none of amx_bf16 or avx512_bf16.*emulate"):
        compute_dtype("bf16", CPU, frozenset({"avx2"}))


def test_tf32_is_refused_where_there_are_no_tensor_cores():
    """And is float32 to everything but their products."""
    with pytest.raises(InputError, match="cpu has no TF32, a GPU has"):
        allow_tf32("tf32", CPU)
    allow_tf32("fp32", CPU)
    assert compute_dtype("tf32", torch.device("cuda")) == torch.float32


def test_flags_are_read_whole_words(tmp_path):
    """One processor's line is enough; no such file means no flags."""
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_bf16_not\nflags\t\t: other\n")
    assert cpu_flags(str(path)) == {"fpu", "avx512_bf16", "amx_bf16_not"}
    assert cpu_flags(str(tmp_path / "absent")) == frozenset()
