"""The least time that this machine needs for N frames of Pong-v5: EnvPool's emulation of them, and the
network's products for acting and learning, each measured on all cores.

    pip install -e '.[envpool]'
    python tests/benchmarks/pong.py --frames 4_000_000 --trained-per-step 8 --batch 32
    python tests/benchmarks/pong.py --run runs/pong-... --batch 512 --network small_cnn --pixels 42 \\
        --networks 2 --target-passes 0

An env step is four frames of the emulator. A run does both on the same cores, so the floor is the sum of the
two times. Products are those of a network's convolutions and two linear layers, without activations, loss,
optimiser, copies or messages; the fastest of float32 and bfloat16 in both layouts counts.
"""

import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import whole_runs
from torch import nn

FRAME_SKIP = 4
#: ``(filters, kernel, stride)`` of each convolution, then the hidden layer: Mnih et al. 2015 and 2013.
NETWORKS = {
    "nature_cnn": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    "small_cnn": (((16, 8, 4), (32, 4, 2)), 256),
}
NUM_ACTIONS = 6


def emulated(pixels, num_envs, batch_size, seconds, num_threads):
    """Env steps/s of EnvPool with random actions, ``batch_size`` first-finished environments at a time."""
    import envpool

    envs = envpool.make(
        "Pong-v5",
        env_type="gymnasium",
        num_envs=num_envs,
        batch_size=batch_size,
        num_threads=num_threads,
        seed=1,
        img_height=pixels,
        img_width=pixels,
    )
    rng = np.random.default_rng(1)
    envs.async_reset()
    steps, began_s = 0, time.perf_counter()
    until_s, counts_from_s = began_s + 1 + seconds, began_s + 1
    while time.perf_counter() < until_s:
        info = envs.recv()[-1]
        envs.send(rng.integers(NUM_ACTIONS, size=batch_size), info["env_id"])
        if time.perf_counter() < counts_from_s:
            steps, began_s = 0, time.perf_counter()
        else:
            steps += batch_size
    rate = steps / (time.perf_counter() - began_s)
    envs.close()
    return rate


def network_of(name, pixels):
    """The network's products without activations, for images as floats."""
    filters, hidden = NETWORKS[name]
    layers, channels, side = [], 4, pixels
    for out, kernel, stride in filters:
        layers.append(nn.Conv2d(channels, out, kernel, stride))
        channels, side = out, (side - kernel) // stride + 1
    features = channels * side * side
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, hidden), nn.Linear(hidden, NUM_ACTIONS))


def per_second(call, seconds):
    """Calls per second: the median over five parts of the time."""
    call()
    rates = []
    for _ in range(5):
        calls, began_s = 0, time.perf_counter()
        while (spent_s := time.perf_counter() - began_s) < seconds / 5:
            call()
            calls += 1
        rates.append(calls / spent_s)
    return statistics.median(rates)


def products(name, pixels, batch, seconds):
    """Transitions/s of a forward pass, and of a forward and a backward pass, in the fastest format:
    ``{"forward": (rate, format), "both": (rate, format)}``.
    """
    rates = {"forward": [], "both": []}
    for dtype in (torch.float32, torch.bfloat16):
        for layout in (torch.contiguous_format, torch.channels_last):
            network = network_of(name, pixels).to(dtype=dtype, memory_format=layout)
            images = torch.rand(batch, 4, pixels, pixels).to(dtype=dtype, memory_format=layout)
            gradient = torch.rand(batch, NUM_ACTIONS).to(dtype)

            def both(network=network, images=images, gradient=gradient):
                network.zero_grad()
                network(images).backward(gradient)

            def forward(network=network, images=images):
                with torch.no_grad():
                    network(images)

            way = f"{dtype} {layout}".replace("torch.", "")
            for what, call in (("forward", forward), ("both", both)):
                rates[what].append((batch * per_second(call, seconds), way))
    return {what: max(measured) for what, measured in rates.items()}


def floor(env_steps, trained_transitions, rates, target_passes):
    """Seconds of emulation, of acting, and of learning.

    Args:
        env_steps: of all environments together.
        trained_transitions: batch size x updates.
        rates: env steps/s of the emulation, transitions/s of acting's forward pass and of learning's.
        target_passes: forward passes of one update for its target: 1 for DQN, 2 for double DQN; PQN has
            the values of the next observations from acting, 0.
    """
    learning = trained_transitions * (1 / rates["both"] + target_passes / rates["forward"])
    return env_steps / rates["emulated"], env_steps / rates["acting"], learning


def parse():
    """The command line."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("--frames", type=float, default=4e6)
    parser.add_argument("--trained-per-step", type=float, default=8, help="transitions for each env step")
    parser.add_argument("--run", type=Path, help="folder of a run, in place of both: what it has done")
    parser.add_argument("--network", choices=NETWORKS, default="nature_cnn")
    parser.add_argument("--pixels", type=int, default=84, help="height and width of an image")
    parser.add_argument("--networks", type=int, default=1, help="trained on each transition: 2 PPO")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--env-batches", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--acting-batch", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32, help="of an update")
    parser.add_argument("--target-passes", type=int, default=1, help="1 DQN, 2 double DQN, 0 PQN and PPO")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="where to write every figure")
    return parser.parse_args()


def main():
    """Measure, then print the floor."""
    arguments = parse()
    env_steps = arguments.frames / FRAME_SKIP
    trained = env_steps * arguments.trained_per_step
    if arguments.run:
        summary = json.loads((arguments.run / "summary.json").read_text())
        env_steps, trained = summary["env_steps"], summary["trained_transitions"]
    torch.set_num_threads(arguments.threads)
    emulation = {
        batch: emulated(arguments.pixels, arguments.envs, batch, arguments.seconds, arguments.threads)
        for batch in arguments.env_batches
    }
    for batch, rate in emulation.items():
        print(f"EnvPool, {arguments.envs} envs in batches of {batch}: {FRAME_SKIP * rate:,.0f} frames/s")
    networks = {
        batch: products(arguments.network, arguments.pixels, batch, arguments.seconds)
        for batch in {arguments.acting_batch, arguments.batch}
    }
    for batch, found in networks.items():
        shown = ", ".join(f"{what} {rate:,.0f}/s ({name})" for what, (rate, name) in found.items())
        print(f"products at batch {batch}: {shown}")
    rates = {what: rate for what, (rate, _) in networks[arguments.batch].items()}
    rates |= {
        "emulated": max(emulation.values()),
        "acting": networks[arguments.acting_batch]["forward"][0],
    }
    parts = floor(env_steps, trained * arguments.networks, rates, arguments.target_passes)
    print(
        f"floor of {FRAME_SKIP * env_steps:,.0f} frames with {trained:,.0f} transitions trained:"
        f" {sum(parts):.0f} s = emulation {parts[0]:.0f} + acting {parts[1]:.0f} + learning {parts[2]:.0f}"
    )
    if arguments.run:
        print(f"the run took {summary['wall_s']:.0f} s, {summary['wall_s'] / sum(parts):.2f} times its floor")
    if arguments.json:
        figures = {"rates": rates, "emulation": emulation, "products": networks, "floor_s": parts}
        arguments.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
