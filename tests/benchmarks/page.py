"""What the page costs while somebody looks: trained transitions/s of one run, page open and closed in turn.

    python tests/benchmarks/page.py halfcheetah --turns 8 --seconds 20

The visitor takes everything that a browser takes (the feed, the captions and pictures, the stream of MuJoCo's
viewer) and draws nothing: what a browser draws depends on its graphics card, and where it has none it takes
cores from the run. Its own share of a core is printed. Each open turn is compared with the mean of its closed
neighbours, so that a drift of the machine's speed cancels.
"""

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from spreeze_zmq.metrics import read_journal

LAUNCH = (sys.executable, "-m", "spreeze_zmq.commands.launch")
#: Before the first turn: learning has begun and worker counts have settled.
WARM_UP_S = 30.0
#: At the start of each turn, which counts for neither: the stage opens, or is kept for the next visitor.
SWITCH_S = 6.0
#: For which a visitor stays after its turn was measured.
SETTLE_S = 0.5


async def take(address, until_s, received):
    """Read one stream to the end of the turn; one that is not there yet is asked for again."""
    while (left_s := until_s - time.monotonic()) > 0:
        with contextlib.suppress(OSError, WebSocketException, TimeoutError):
            async with asyncio.timeout(left_s), connect(address, max_size=None, ping_interval=None) as stream:
                async for message in stream:
                    received[address.rpartition("/")[2]] += len(message)
        await asyncio.sleep(0.5)


async def visit(address, seconds):
    """Look at the page; returns the bytes that each stream brought."""
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
    """Trained transitions/s of each turn, in turn closed and open, a closed one last."""
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topology")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        command = [*LAUNCH, arguments.topology, "--run-dir", str(run)]
        command += ["--set", "run.stop={minutes=60}"]
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
