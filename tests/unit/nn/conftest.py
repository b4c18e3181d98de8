"""Native code of every kind that this processor can run."""

import pytest
import torch

from spreeze_zmq.nn import native_calls
from spreeze_zmq.nn.native.library import NativeLibrary, compiled, loaded, runnable

#: Every kind of code that this processor can run, and torch alone.
WAYS = [*runnable(), "torch"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Every kind of code that this processor can run, one after the other, and torch alone."""
    if request.param == "torch":
        library = NativeLibrary(None, problem="none wanted")
    else:
        path = compiled(request.param)
        library = NativeLibrary(loaded(path), path.stem, request.param)
    monkeypatch.setattr(native_calls, "library", lambda: library)
    assert (native_calls.code_for(torch.ones(1)) is None) == (request.param == "torch")
    return request.param
