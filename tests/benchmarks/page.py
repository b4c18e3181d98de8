"""The cost of the page with a visitor: trained transitions/s of one run, page open and closed in turn.

    python tests/benchmarks/page.py halfcheetah --turns 8 --seconds 20

The visitor receives everything that a browser does (the feed, the captions and pictures, the stream of
MuJoCo's viewer) and draws nothing: drawing depends on the graphics card, and without one it takes cores from
the run. The visitor's own share of a core is printed. Each open turn is compared with the mean of its closed
neighbours, so that a drift of the machine's speed cancels.
"""

import asyncio
import contextlib
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import whole_runs
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from spreeze_zmq.base.journal import read_journal

#: Seconds before the first turn: learning begins and worker counts settle.
WARM_UP_S = 30.0
#: Seconds at the start of each turn that are not counted: the stage opens, or waits for the next visitor.
SWITCH_S = 6.0
#: Seconds that a visitor stays after its turn was measured.
SETTLE_S = 0.5


async def take(address, until_s, received):
    """Read one stream to the end of the turn, and connect again while it is not available."""
    while (left_s := until_s - time.monotonic()) > 0:
        with contextlib.suppress(OSError, WebSocketException, TimeoutError):
            async with asyncio.timeout(left_s), connect(address, max_size=None, ping_interval=None) as stream:
                async for message in stream:
                    received[address.rpartition("/")[2]] += len(message)
        await asyncio.sleep(0.5)


async def visit(address, seconds):
    """Visit the page; returns the bytes received on each stream."""
    base = address.replace("http", "ws", 1).rstrip("/")
    received = dict.fromkeys(("feed", "agent", "state", "ui"), 0)
    until_s = time.monotonic() + seconds
    paths = ("feed", "agent", "viewer/state", "viewer/ui")
    await asyncio.gather(*(take(f"{base}/{path}", until_s, received) for path in paths))
    return received


def progress(run):
    """(seconds since the run began, trained transitions) of its last status."""
    lines = [line for line in read_journal(run / "metrics.jsonl") if line["kind"] == "status"]
    return lines[-1]["t_s"], lines[-1]["trained_transitions"]


def turns_of(run, num_turns, seconds):
    """Trained transitions/s of each turn: closed and open alternately, a closed one last."""
    address, rates, busy_s = (run / "page.url").read_text().strip(), [], 0.0
    for turn in range(num_turns * 2 + 1):
        began_cpu_s = time.process_time()
        visitor = ThreadPoolExecutor(1)
        if turn % 2:
            visit_s = SWITCH_S + seconds + SETTLE_S
            received = visitor.submit(asyncio.run, visit(address, visit_s))
        time.sleep(SWITCH_S)
        begin_s, begin = progress(run)
        time.sleep(seconds)
        end_s, end = progress(run)
        rates.append((end - begin) / (end_s - begin_s))
        visitor.shutdown()
        if turn % 2:
            busy_s += time.process_time() - began_cpu_s
    print(f"the visitor took {busy_s / num_turns / visit_s:.1%} of a core; bytes: {received.result()}")
    return rates


def main():
    """Print each turn and the median cost."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("topology")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        command = whole_runs.launch(arguments.topology, run, ["run.stop={minutes=60}"])
        launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(WARM_UP_S)
            rates = turns_of(run, arguments.turns, arguments.seconds)
        finally:
            launcher.terminate()
            launcher.wait()
    costs = []
    for turn in range(1, len(rates), 2):
        closed = (rates[turn - 1] + rates[turn + 1]) / 2
        costs.append(1 - rates[turn] / closed)
        print(f"open {rates[turn]:,.0f}, closed {closed:,.0f} trained transitions/s: {costs[-1]:+.1%}")
    print(f"the open page costs {statistics.median(costs):.1%} (median of {len(costs)} turns)")


if __name__ == "__main__":
    main()
