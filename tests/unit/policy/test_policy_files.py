"""Policy files of others: whatever they hold, one line refuses them within a second and 100 MB."""

import json
import os
import resource
import struct
import time

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands import evaluate
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.evaluation.arena import ENDLESS_STEPS
from spreeze_zmq.evaluation.saved import SavedPolicy
from spreeze_zmq.policy.file import parsed_list, read_file, write_file
from tests.pace import slowness
from tests.unit.evaluation.test_saved import save_for


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Metadata and arrays of a good file."""
    path = tmp_path_factory.mktemp("whole") / "policy.safetensors"
    save_for(path, {**envs.probe("Pendulum-v1", {}).to_dict(), "kwargs": {"max_episode_steps": 5}}, "ppo")
    assert main(["eval", str(path)]) == 0
    with safe_open(path, framework="numpy") as file:
        return dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


NESTED = "[" * 60_000
ODD = [None, [], {}, "x", 5, -1, 1e308, 10**400, True, [[]], {"a": {}}]


def of(about, name, **more):
    """A changed table of a file's metadata."""
    return {name: json.dumps({**json.loads(about[name]), **more})}


def changed(about):
    """Texts of the metadata, in which something else stands."""
    numbers = ("num_episodes", "evaluation_seed", "step_cap", "mean_return")
    for name in ("description", "environment", "extras", "version", *numbers):
        yield from ({name: text} for text in (NESTED, "x", "", '"x"', "[[]]"))
    yield from ({name: "9" * 5000} for name in numbers)
    yield {"num_episodes": "3000000"}
    yield {"num_episodes": "0"}
    description = json.loads(about["description"])
    for more in ([{"kind": "relu"}] * 300_000, [{"kind": "append", "size": 1}] * 1000, [[]]):
        yield of(about, "description", layers=description["layers"] + more)
    yield from (of(about, "description", layers=odd) for odd in ODD)
    for name in ("observation", "distribution"):
        yield from (of(about, "description", **{name: odd}) for odd in ODD)
    for name in ("id", "kwargs", "obs_shape", "obs_dtype", "action_kind", "action_low", "obs_parts"):
        odd = [value for value in ODD if not (value in (None, [], {}) or (name == "id" and value == "x"))]
        yield from (of(about, "environment", **{name: value}) for value in odd)
    for bounds in ([1e308], [-1e308], [10**400]):
        yield of(about, "environment", action_low=bounds)
    for name in ("num_envs", "num_workers", "step_info", "backend"):
        yield of(about, "environment", kwargs={name: 3})
    yield from (
        of(about, "environment", kwargs={"max_episode_steps": odd}) for odd in ODD if odd not in (5, -1)
    )
    yield of(about, "environment", kwargs={"max_episode_steps": 2**53})
    yield of(about, "environment", kwargs={}, max_episode_steps=2**53)
    shipped = {"class": "spreeze_zmq.algorithms.ppo:PPO", "environment": json.loads(about["environment"])}
    for options in ({"hidden_sizes": [1] * 15_000}, {"hidden_sizes": [10**6] * 2}, []):
        yield of(about, "description", **shipped, options=options)


def refusal(path, capsys, why=""):
    """The line that refuses a file."""
    began_s, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = main(["eval", str(path)])
    spent_s, peak = time.process_time() - began_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1), (str(why)[:300], said)
    assert spent_s < 1.0 or spent_s < slowness()  # which takes longer to find than most refusals
    assert (peak - before) / 1e3 < 100
    return said


def test_odd_texts_are_refused_in_a_line(tmp_path, whole, capsys):
    """Nested too deep, of another type, too many, too large."""
    about, arrays = whole
    path = tmp_path / "policy.safetensors"
    for more in changed(about):
        path.write_bytes(save(arrays, {**about, **more}))
        refusal(path, capsys, more)


def test_odd_files_are_refused_in_a_line(tmp_path, whole, capsys):
    """A FIFO, holes, a header or a number of arrays that no policy has."""
    path, num = tmp_path / "policy.safetensors", 1_500_000_000
    os.mkfifo(path)
    assert "it is no file" in refusal(path, capsys)
    path.unlink()
    sparse = {"dtype": "F32", "shape": [num], "data_offsets": [0, 4 * num]}
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    for tables in ({"parameters": sparse}, {f"t{number}": empty for number in range(40_000)}):
        header = json.dumps({"__metadata__": whole[0], **tables}).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        if "parameters" in tables:
            os.truncate(path, 8 + len(header) + 4 * num)
        refusal(path, capsys)
    with pytest.raises(ValueError, match="no list of numbers"):
        parsed_list("[" * 999)
    assert parsed_list("[1.5, 2]") == [1.5, 2]
    path.write_bytes(struct.pack("<Q", 50 << 20) + bytes(50 << 20))
    assert "its header has 52,428,800 bytes" in refusal(path, capsys)
    path.write_bytes(save({**whole[1], "parameters": np.zeros(3, np.float64)}, whole[0]))
    assert "parameters is F64, expected F32" in refusal(path, capsys)


def test_a_file_whose_blocks_are_not_counted_yet_is_whole(tmp_path, monkeypatch):
    """ZFS says one block of a file until some seconds after it was written; holes are holes there, too."""
    path, fstat = tmp_path / "policy.safetensors", os.fstat
    fields, parameters = {"description": {}, "version": 1, "extras": {}}, np.ones(5000, np.float32)
    write_file(path, fields, {"parameters": parameters}, {})

    def just_written(descriptor):
        found = fstat(descriptor)
        return os.stat_result(tuple(found), {"st_blocks": 1})

    monkeypatch.setattr(os, "fstat", just_written)
    read, arrays, _ = read_file(path)
    assert read == fields
    np.testing.assert_array_equal(arrays["parameters"], parameters)
    os.truncate(path, 100_000_000)
    with pytest.raises(InputError, match="its 100,000,000 bytes are mostly holes"):
        read_file(path)


def test_a_file_without_a_time_limit_is_played_and_a_long_play_says_so(tmp_path, whole, capsys, monkeypatch):
    """An evaluation sets a limit where the environment has none; a file that names none has that one, too."""
    about, arrays = whole
    monkeypatch.setattr(evaluate, "LATE_S", 0.0)
    path = tmp_path / "policy.safetensors"
    endless = {"max_episode_steps": -1}
    path.write_bytes(
        save(arrays, {**about, **of(about, "environment", max_episode_steps=None, kwargs=endless)})
    )
    assert SavedPolicy.load(path).environment.max_episode_steps == ENDLESS_STEPS
    assert main(["eval", str(path), "--episodes", "1"]) == 0
    said = capsys.readouterr()
    assert "Ctrl-C ends it" in said.err
    assert f"episodes of {ENDLESS_STEPS} steps" in said.out
