"""Messages of each kind with the extremes of each field: what a peer may say at worst, and be understood."""

from golden_messages import MESSAGES

from spreeze_zmq.plan.roles import CHANNELS
from spreeze_zmq.wire import KINDS

#: What the broker hears, and who says it where that is nobody of any role.
REPORTS = [kind for kind in CHANNELS["report"].kinds if kind not in ("stop_request", "stopping")]
SENDERS = {
    "evaluation": "evaluator-0",
    "part": "critic_learner-0",
    "fusion": "fuser-0",
    **dict.fromkeys(("exited", "workers", "machine", "turned_away"), "launcher"),
}
#: For each type of field what may stand there.
EXTREMES = {
    "count": [0, 2**53 - 1],
    "number": [0.0, -1e308, 1e308, 5e-324, float("nan"), float("inf")],
    "text": ["", "x" * 60_000, "\x1b[2J", "a\0b", "../..", "/"],
    "flag": [False, True],
    "names": [[], ["x" * 15] * 4000],
    "numbers": [{}, {"pushed": 1e308}],
    "counts": [{}, {"critic_learner": 2**53 - 1}, {str(number): 2**53 - 1 for number in range(4000)}],
    "streams": [
        {},
        {"sampler-0/1": {"first": 0, "last": 2**53 - 1, "received": 2**53 - 1, "refused": 0, "lost": 0}},
        {
            f"s/{number}": {"first": 9, "last": 9, "received": 0, "refused": 0, "lost": 0}
            for number in range(900)
        },
    ],
    "rows": [{}, {str(number): {} for number in range(4000)}],
    "map": [{}, {"a": 2**53 - 1}],
    "maps": [[], [{}] * 4000, [{"count": 2**53 - 1, "good": -1, "sender": "\x1b[2J" * 99}]],
    "any": [0, 2**53 - 1, -(2**63), 1e308, "x" * 60_000],
}
#: Texts that are the name of no process, and some of no file.
ODD_NAMES = (
    *("", "a\0b", "x" * 300, "w" * 64, "y" * 60_000, "é" * 200, "../..", "/", "sampler-0/../x"),
    *("\x1b[2J", "sampler-0\0", f"{'z' * 300}-0"),
)


def extremes(kind):
    """The golden message of a kind with each field in turn at each extreme, and all counts at once."""
    golden, specs = MESSAGES[kind], KINDS[kind].fields
    known = [name for name in golden.fields if name in specs]
    counts = [name for name in known if specs[name].type == "count"]
    for name in known:
        bound = [specs[name].most] if name in counts else []
        for value in EXTREMES[specs[name].type] + bound:
            yield golden._replace(fields={**golden.fields, name: value})
    yield golden._replace(fields={**golden.fields, **{name: specs[name].most for name in counts}})
