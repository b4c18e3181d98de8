"""What a peer may say at worst, as strategies: any value anywhere, and what hearing it may cost."""

import copy
import signal
from contextlib import contextmanager

import psutil
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.wire import decode, encode

THOROUGH = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
MANY = {str(number): float(number) for number in range(4000)}
EXTREME = st.sampled_from(
    [
        *(
            float("nan"),
            float("inf"),
            -float("inf"),
            3e38,
            -1e308,
            5e-324,
            -1,
            0,
            2**31,
            2**53 - 1,
            2**53,
            2**63,
        ),
        *("", "x" * 60_000, "\x1b[2J", "../../../etc", "sampler-0", None, True, [], {}, [{}], {"": {}}),
    ]
)
PLAIN = st.recursive(
    EXTREME | st.builds(lambda: MANY) | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


def changed(data, fields):
    """The fields with one somewhere left out, another value in its place, or an unknown one beside it."""
    fields = copy.deepcopy(dict(fields))
    place = fields
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        what = data.draw(st.sampled_from(["replace", "leave out", "add"]))
        if what == "add" or not keys:
            if isinstance(place, dict):
                place[data.draw(st.text(min_size=1, max_size=8))] = data.draw(PLAIN)
            else:
                place.append(data.draw(PLAIN))
            return fields
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and data.draw(st.booleans()):
            place = place[key]
        elif what == "replace":
            place[key] = data.draw(PLAIN)
            return fields
        else:
            del place[key]
            return fields


def travelled(message):
    """The message as a receiver has it; None where the sender finds out or the decoder refuses."""
    try:
        return decode([bytes(frame) for frame in encode(message)])
    except WireError:
        return None


#: CPU time and memory that one message may cost whoever hears it.
MOST_CPU_S, MOST_BYTES = 2.0, 100_000_000


@contextmanager
def costing_little(message):
    """Fail if what is done takes too much time or memory."""
    what = f"{message.kind} {message.fields!r:.300}"

    def interrupt(*_):
        raise AssertionError(f"{what} takes more than {MOST_CPU_S} s")

    before, process = signal.signal(signal.SIGVTALRM, interrupt), psutil.Process()
    held = process.memory_info().rss
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
    grown = process.memory_info().rss - held
    assert grown < MOST_BYTES, f"{what} takes {grown / 1e6:.0f} MB"
