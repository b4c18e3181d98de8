"""What the tests of the judge share."""

import pytest

from spreeze_zmq.nn.native.library import prepare


@pytest.fixture(scope="session")
def native_layers(cache_of_its_own):
    """Native layers are compiled before learners start, whose hello is waited for only so long."""
    prepare(print)
