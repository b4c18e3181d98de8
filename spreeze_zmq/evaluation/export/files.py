"""Writes a policy as ONNX or TorchScript, and refuses a file whose actions differ from the policy's."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError, SpreezeError, hushed
from spreeze_zmq.base.files import check_output, output
from spreeze_zmq.evaluation.export.module import Deterministic
from spreeze_zmq.policy import Policy
from spreeze_zmq.policy.observations import ObservationScaling

#: Largest difference of an action, relative to the largest action if that is above 1.
TOLERANCE = 1e-5
#: Random observations on which a file is compared with the policy.
NUM_COMPARED = 1000
#: The newest operator set that runtimes of the last years support.
OPSET = 18

#: Inputs and outputs by name, see :class:`Deterministic`.
Named = dict[str, NDArray[Any]]
Run = Callable[[Named], Sequence[Any]]
#: Writes a module to a file, given example inputs of three rows; returns what runs the file.
Write = Callable[[Deterministic, Named, Path], Run]


def export_onnx(policy: Policy, path: Path | str, obs_dtype: str = "float32") -> float:
    """Write ``policy(obs)`` as ONNX: input ``obs`` ``[batch, *observation_shape]``, output ``action``, in
    which discrete ones count from the space's ``start``. A recurrent policy has a second input, ``memory``
    ``[batch, memory_size]`` float32, zeros where an episode begins, and a second output, ``next_memory``; a
    policy that takes masks has a last input, ``action_mask`` ``[batch, A]`` bool.

    The file includes scaling, normaliser, clipping and bounds. It is run by onnxruntime and compared with the
    policy before it is moved to ``path``.

    Args:
        policy: a table of layers, or a class that can be traced.
        path: the file to write.
        obs_dtype: the input's dtype, ``"float32"`` or ``"uint8"``, as in the environment's spec.

    Returns:
        The largest relative difference of an action over ``NUM_COMPARED`` random observations.

    Raises:
        InputError: ONNX's packages are not installed or too old, or the file cannot be written.
        SpreezeError: the policy cannot be traced, or the file's actions differ from the policy's.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(name) is None:
            raise InputError(f"ONNX needs {name}, which is not installed: pip install 'spreeze_zmq[export]'")

    def write(module: Deterministic, example: Named, file: Path) -> Run:
        import onnxruntime

        batch = torch.export.Dim("batch")

        with hushed("torch.onnx"):
            torch.onnx.export(
                module,
                tuple(map(torch.from_numpy, example.values())),
                str(file),
                input_names=list(example),
                output_names=list(module.outputs),
                dynamic_shapes={"given": tuple({0: batch} for _ in example)},
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, inputs)

    return _export(policy, Path(path), obs_dtype, "ONNX", write)


def export_torchscript(policy: Policy, path: Path | str, obs_dtype: str = "float32") -> float:
    """Write ``policy(obs)`` as a traced TorchScript module; otherwise as :func:`export_onnx`."""

    def write(module: Deterministic, example: Named, file: Path) -> Run:
        first = tuple(map(torch.from_numpy, example.values()))
        content = io.BytesIO()  # where a disk is full, torch's own file would end the process
        torch.jit.save(torch.jit.trace(module, first, check_trace=False), content)
        file.write_bytes(content.getbuffer())
        traced = torch.jit.load(str(file))

        def run(inputs: Named) -> Sequence[Any]:
            given = traced(*map(torch.from_numpy, inputs.values()))
            return given if isinstance(given, tuple) else (given,)

        return run

    return _export(policy, Path(path), obs_dtype, "TorchScript", write)


def random_observations(policy: Policy, num: int, obs_dtype: str, seed: int = 0) -> NDArray[Any]:
    """``[num, *observation_shape]``: pixels, or numbers as the policy's normaliser expects them, every
    tenth row beyond its clipping.
    """
    rng = np.random.default_rng(seed)
    shape = (num, *policy.observation_shape)
    if obs_dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    rows = rng.standard_normal((num, math.prod(shape[1:])), np.float32)
    scaling = ObservationScaling(policy.description["observation"], policy.arrays)
    if scaling.normalize:
        rows[::10] *= 2.0 * scaling.clip
        rows = rows * scaling.std + scaling.mean
    return rows.reshape(shape)


def random_inputs(policy: Policy, num: int, obs_dtype: str, seed: int = 0) -> Named:
    """``num`` rows of each input of an exported policy, by name."""
    found: Named = {"obs": random_observations(policy, num, obs_dtype, seed)}
    if policy.memory_size:
        shape = num, policy.memory_size
        found["memory"] = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    if policy.takes_masks:
        found["action_mask"] = random_masks(policy, num, seed)
    return found


def random_masks(policy: Policy, num: int, seed: int = 0) -> NDArray[np.bool_]:
    """``[num, A]``: masks that allow half of all choices, and at least one of each discrete action."""
    about, rng = policy.description["distribution"], np.random.default_rng(seed)
    sizes = about["sizes"] if about["kind"] == "categorical" else [about["num_actions"]]
    masks = [rng.random((num, size)) for size in sizes]
    return np.concatenate([(rows < 0.5) | (rows == rows.min(1, keepdims=True)) for rows in masks], 1)


def _export(policy: Policy, path: Path, obs_dtype: str, kind: str, write: Write) -> float:
    """Write a temporary file, compare it with the policy, and move it to ``path``; returns the difference."""
    check_output(path)
    module = Deterministic(policy).eval()
    inputs = random_inputs(policy, NUM_COMPARED, obs_dtype)
    with output(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracers warn of their own internals
        try:
            with torch.no_grad():
                run = write(module, {name: rows[:3] for name, rows in inputs.items()}, file)
        except Exception as error:
            if isinstance(error, OSError) and error.errno:
                raise InputError(f"{path} cannot be written: {error.strerror}") from error
            _check_age(error)
            first = str(error).strip().partition("\n")[0]
            raise SpreezeError(
                f"{kind} cannot express this policy: {type(error).__name__}: {first}"
            ) from error
        difference = _difference(policy, module, inputs, *map(np.asarray, run(inputs)))
        if difference > TOLERANCE:
            raise SpreezeError(
                f"the {kind} file differs from the policy by {difference:.1e} on random observations, "
                f"{TOLERANCE:.0e} is allowed; {path} was not written"
            )
    return difference


def _check_age(error: BaseException | None) -> None:
    """Raise InputError where an error comes from a module that torch does not find in ONNX's packages."""
    while error is not None:
        if isinstance(error, ImportError) and (error.name or "").startswith("onnx"):
            raise InputError(
                f"ONNX's packages do not fit torch {torch.__version__} ({error}): "
                "pip install -U onnx onnxscript onnxruntime"
            ) from error
        error = error.__cause__


def _difference(
    policy: Policy, module: Deterministic, inputs: Named, action: NDArray[Any], *after: NDArray[Any]
) -> float:
    """The largest relative difference of ``action``, and of what a recurrent policy remembers, from the
    policy's. Discrete actions are compared by their scores, since either of two equally good ones is right.
    """
    given = {name: rows.copy() if name == "memory" else rows for name, rows in inputs.items()}
    expected = policy(**given)  # writes the next memory into the one that it is given
    remembered = _relative(after[0], given["memory"]) if after else 0.0
    if action.shape != expected.shape or action.dtype != expected.dtype:
        raise SpreezeError(
            f"it gives actions {action.dtype} {action.shape}, the policy {expected.dtype} {expected.shape}"
        )
    if module.sizes:
        seen = [torch.from_numpy(inputs[name]) for name in module.inputs if name != "action_mask"]
        with torch.no_grad():
            scores = module.scores(*seen)[0].numpy()
        scores = np.where(inputs.get("action_mask", True), scores, -np.inf)
        first = np.cumsum([0, *module.sizes[:-1]]) - np.asarray(policy.own.action_start or 0)
        action, expected = (
            np.take_along_axis(scores, chosen.reshape(len(scores), -1) + first, 1)
            for chosen in (action, expected)
        )
    elif np.issubdtype(action.dtype, np.integer):
        return 0.0 if np.array_equal(action, expected) else float("inf")
    return max(remembered, _relative(action, expected))


def _relative(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference, relative to the largest expected number of a column where that is above 1;
    infinite where a number of either is not finite.
    """
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return float("inf")
    return float((np.abs(found - expected) / np.maximum(1.0, np.abs(expected).max(0))).max())
