"""``spreeze export RUN``: the best policy of a run as ONNX or TorchScript, to use without this package."""

from __future__ import annotations

import argparse

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.evaluate import add_run_arguments
from spreeze_zmq.evaluation.saved import load_with_spaces


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    parser.add_argument("--onnx", metavar="FILE", help="write ONNX; input 'obs', output 'action'")
    parser.add_argument("--torchscript", metavar="FILE", help="write TorchScript")


def main(arguments: argparse.Namespace) -> int:
    """Write the files and compare each with the policy."""
    if not (arguments.onnx or arguments.torchscript):
        raise InputError("nothing to write: give --onnx FILE, --torchscript FILE or both")
    from spreeze_zmq.evaluation.export import export_onnx, export_torchscript
    from spreeze_zmq.evaluation.export.files import NUM_COMPARED

    policy, environment = load_with_spaces(arguments.run, arguments.trust)
    dtype = environment.obs_dtype
    shape = ", ".join(map(str, ("batch", *policy.observation_shape)))
    start = list(policy.own.action_start)
    counted = f" counted from {start if len(start) > 1 else start[0]}" if start else ""
    memory = policy.memory_size
    remembers = (f" and memory [batch, {memory}]", " and next_memory") if memory else ("", "")
    if policy.takes_masks:
        remembers = (
            f"{remembers[0]} and action_mask bool [batch, {environment.num_choices}]",
            remembers[1],
        )
    flattened = " flattened by gymnasium.spaces.flatten" if policy.own.parts else ""
    for path, export in ((arguments.onnx, export_onnx), (arguments.torchscript, export_torchscript)):
        if path:
            difference = export(policy, path, dtype)
            say(
                f"{path}: obs {dtype} [{shape}]{flattened}{remembers[0]} to action{counted}{remembers[1]}; "
                f"on {NUM_COMPARED} random observations at most {difference:.1e} from the policy"
            )
    return 0
