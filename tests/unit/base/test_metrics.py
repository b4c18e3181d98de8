"""CPU time, the journal, JSON for any reader, and curves that TensorBoard reads back."""

import json
import math
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spreeze_zmq.base import usage
from spreeze_zmq.base.files import plain, write_json
from spreeze_zmq.base.journal import Journal, read_journal
from spreeze_zmq.base.usage import Family, Threads
from spreeze_zmq.broker.points import of_evaluation
from spreeze_zmq.broker.tensorboard import TensorBoard
from spreeze_zmq.run.journal_lines import JournalLines

# --- the machine ----------------------------------------------------------------------------------

PARENT = """
import subprocess, sys
for _ in range(2):
    work = "import time\\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    print("worked", flush=True)
    sys.stdin.readline()
"""


def test_the_cpu_time_of_descendants_counts_and_never_falls(monkeypatch):
    """A grandchild that has ended counts, and so does its parent; when both are gone the sum stays. Whatever
    other children this process has, new ones are looked for each time.
    """
    monkeypatch.setattr(usage, "LOOK_INTERVAL_S", 0.0)
    family = Family(psutil.Process())
    alone_s = family.cpu_s()
    child = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for rounds in (1, 2):
        assert child.stdout.readline() == "worked\n"
        assert family.cpu_s() >= alone_s + 0.25 * rounds
        child.stdin.write("on\n")
        child.stdin.flush()
    child.communicate(timeout=30)
    assert family.cpu_s() >= alone_s + 0.5


def test_the_memory_of_descendants_counts(monkeypatch):
    """As long as they live."""
    monkeypatch.setattr(usage, "LOOK_INTERVAL_S", 0.0)
    family, size = Family(psutil.Process()), 60_000_000
    alone = family.rss_bytes()
    code = f"kept = b'x' * {size}; print('kept', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"kept\n"
        assert family.rss_bytes() > alone + size
        child.communicate(b"\n")
    assert family.rss_bytes() < alone + size / 2


def test_a_threads_name_that_is_cut_inside_of_a_character_is_passed_over():
    """The kernel keeps 15 bytes; a library or an environment has named it."""
    named, done = threading.Event(), threading.Event()

    def work():
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_bytes(b"Vorg\xc3")
        named.set()
        done.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert named.wait(30)
        assert Threads("no such").cpu_s() == 0.0
        assert Threads("Vorg").cpu_s() > 0.0
    finally:
        done.set()
        thread.join()


# --- the journal ----------------------------------------------------------------------------------


def test_a_journal_comes_back_as_it_was_written(tmp_path):
    """One object a line, with its time and kind."""
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.write("status", 1.23456, {"env_steps": 512})
    journal.write("evaluation", 2, {"mean_return": math.nan})
    assert list(read_journal(tmp_path / "metrics.jsonl")) == [
        {"env_steps": 512, "t_s": 1.235, "kind": "status"},
        {"mean_return": None, "t_s": 2, "kind": "evaluation"},
    ]


WRITER = """
import os, signal, sys
from pathlib import Path
from spreeze_zmq.base import usage
from spreeze_zmq.base.journal import Journal
journal = Journal(Path(sys.argv[1]))
journal.write("status", 1.0, {"env_steps": 512})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_line_outlives_a_kill_right_after_it(tmp_path):
    """Nothing is buffered in the process."""
    path = tmp_path / "metrics.jsonl"
    subprocess.run([sys.executable, "-c", WRITER, str(path)], check=False, timeout=60)
    assert [line["env_steps"] for line in read_journal(path)] == [512]


def test_a_torn_line_costs_itself_alone(tmp_path):
    """The next process continues below it, and reading skips it."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "status", "t_s": 1}\n{"kind": "sta')
    assert [line["t_s"] for line in read_journal(path)] == [1]
    Journal(path).write("status", 2, {})
    assert [line["t_s"] for line in read_journal(path)] == [1, 2]


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["metrics.jsonl", "/proc/self/mem", "/dev/tty", "/dev/zero", "file/x"])
def test_a_journal_that_cannot_be_read_has_no_lines(tmp_path, target):
    """In a folder of somebody else its name may be a link to itself, to a device, or to a file without bytes
    where it begins.
    """
    path = tmp_path / "metrics.jsonl"
    (tmp_path / "file").write_text("")
    path.symlink_to(target)
    assert list(read_journal(path)) == []
    with JournalLines(path, ("status",)) as lines:
        assert list(lines.read("status")) == []


def test_plain_values_are_strict_json():
    """Numpy values become numbers and lists, non-finite ones null."""
    value = {
        "nan": math.nan,
        "inf": [math.inf, -math.inf],
        "numpy": (np.float32(1.5), np.int64(2), np.float64("nan"), np.bool_(True)),
        3: np.array([[1.0, math.nan]]),
    }
    assert plain(value) == {
        "nan": None,
        "inf": [None, None],
        "numpy": [1.5, 2, None, True],
        "3": [[1.0, None]],
    }


def test_what_has_no_meaning_in_json_is_named():
    """It is not converted to a string that a reader must parse."""
    with pytest.raises(TypeError, match="set has no place in JSON"):
        plain({"a": {1, 2}})


def test_a_summary_replaces_the_old_one_whole(tmp_path):
    """Nothing else is left in the folder."""
    path = tmp_path / "summary.json"
    write_json(path, {"exit_reason": "", "best_return": math.nan})
    write_json(path, {"exit_reason": "return 6000 >= 6000"})
    assert json.loads(path.read_text()) == {"exit_reason": "return 6000 >= 6000"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_summary_that_cannot_be_written_leaves_the_old_one(tmp_path):
    """A value of a wrong type loses only the new figures."""
    path = tmp_path / "summary.json"
    write_json(path, {"wall_s": 1.0})
    with pytest.raises(TypeError):
        write_json(path, {"wall_s": object()})
    assert json.loads(path.read_text()) == {"wall_s": 1.0}


# --- TensorBoard ----------------------------------------------------------------------------------


def curves(folder):
    """Every curve that TensorBoard finds in a folder: ``{tag: [(step, value), ...]}``."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


STATUS = {
    "t_s": 12.0,
    "env_steps": 2048,
    "env_steps_per_s": 6300.0,
    "critic_updates": 64,
    "critic_updates_per_s": 190.0,
    "actor_updates_per_s": 180.0,
    "trained_transitions_per_s": 48_640.0,
    "replay_ratio": {"target": 8.0, "measured": 7.75},
    "policy_lag": {"p50": 1, "p99": 3, "recent_p50": 2, "recent_p99": 4, "max": 4},
    "episodes": {"count": 2, "mean_return": -12.5, "mean_length": 1000.0},
}


def test_curves_have_the_names_that_stable_baselines3_uses(tmp_path):
    """TensorBoard itself reads them over env steps while the file is still open."""
    board = TensorBoard(tmp_path)
    gauges = {
        "actor_loss": -1.5,
        "critic_loss": 0.5,
        "temperature": 0.125,
        "learning_rate": 0.25,
        "q_mean": math.nan,
    }
    board.status(STATUS, gauges)
    score = {"env_steps": 2000, "mean_return": 100.0, "std_return": 2.0, "mean_length": 1000.0}
    first = {**score, "best": True, "info": {"is_success": 0.75, "distance": 1.5}}  # kept for its look
    board.evaluation(first)
    board.evaluation({**score, "mean_return": 90.0, "confirmed": True, "best": True})
    board.evaluation({**score, "mean_return": 80.0, "confirmed": True, "best": False})
    found = curves(tmp_path)
    expected = {
        "rollout/ep_rew_mean": -12.5,
        "rollout/ep_len_mean": 1000.0,
        "time/fps": 6300.0,
        "time/total_timesteps": 2048.0,
        "train/actor_loss": -1.5,
        "train/critic_loss": 0.5,
        "train/ent_coef": 0.125,
        "train/learning_rate": 0.25,
        "train/n_updates": 64.0,
        "balance/replay_ratio": 7.75,
        "balance/policy_lag_p99": 4.0,
    }
    assert {tag: found[tag] for tag in expected} == {tag: [(2048, value)] for tag, value in expected.items()}
    assert found["eval/mean_reward"] == [(2000, 100.0)]
    assert found["eval/mean_ep_length"] == [(2000, 1000.0)]
    assert (found["eval/success_rate"], found["eval/info/distance"]) == ([(2000, 0.75)], [(2000, 1.5)])
    assert found["eval/best_mean_reward"] == [(2000, 100.0), (2048, 90.0)]
    assert "train/q_mean" not in found


def test_a_look_that_time_has_cut_is_a_curve_of_its_own():
    """Its mean is of beginnings of episodes, which compares with no other."""
    look = {"mean_return": 9.0, "std_return": 1.0, "mean_length": 5.0, "best": True, "confirmed": False}
    whole = of_evaluation({**look, "info": {"is_success": 0.5}})
    assert set(whole) >= {"eval/mean_reward", "eval/best_mean_reward", "eval/success_rate"}
    cut = of_evaluation({**look, "info": {"is_success": 0.5}, "timed_out": True})
    assert cut == {name.replace("eval/", "eval_cut_by_time/"): value for name, value in whole.items()}


def test_a_status_without_progress_adds_no_point(tmp_path):
    """Else a curve would be a vertical line. Before the first step there is no file."""
    board = TensorBoard(tmp_path)
    board.status({**STATUS, "env_steps": 0, "critic_updates": 0}, {})
    assert list(tmp_path.iterdir()) == []
    none_yet = {"count": 0, "mean_return": None, "mean_length": None}
    board.status({**STATUS, "episodes": none_yet}, {})
    board.status({**STATUS, "t_s": 13.0}, {})
    board.status({**STATUS, "env_steps": 4096}, {})
    found = curves(tmp_path)
    assert [step for step, _ in found["time/fps"]] == [2048, 4096]
    assert [step for step, _ in found["rollout/ep_rew_mean"]] == [4096]


@pytest.mark.parametrize(("offline", "drawn"), [(False, [1000, 2000]), (True, [50_000, 50_001, 50_002])])
def test_a_run_has_one_axis_with_what_it_goes_on_from(tmp_path, offline, drawn):
    """Whether there were samplers before or not: updates are more than env steps, and would hide these."""
    board = TensorBoard(tmp_path, offline=offline)
    for before, steps in enumerate((0, 1000, 2000)):
        board.status({**STATUS, "env_steps": steps, "critic_updates": 50_000 + before}, {})
    assert [step for step, _ in curves(tmp_path)["time/fps"]] == drawn


@pytest.mark.parametrize(("offline", "step"), [(False, 3), (True, 50)])
def test_a_learner_that_went_back_is_drawn_on_that_axis(tmp_path, offline, step):
    """Beside the other curves, not at env steps that nobody sampled."""
    board = TensorBoard(tmp_path, offline=offline)
    board.went_back({"learner": "critic_learner", "updates": 50, "env_steps": 3})
    assert curves(tmp_path) == {"train/critic_learner_went_back_after_updates": [(step, 50.0)]}


def test_the_lag_of_an_older_status_is_drawn(tmp_path):
    """It has that of all rollouts alone: a resumed run's curve has no gap before it."""
    board = TensorBoard(tmp_path)
    board.status({**STATUS, "policy_lag": {"p50": 3.0, "p99": 7.0}}, {})
    assert curves(tmp_path)["balance/policy_lag_p99"] == [(2048, 7.0)]


def test_a_second_life_of_the_broker_goes_on_with_the_curves(tmp_path):
    """TensorBoard joins both files of the folder."""
    TensorBoard(tmp_path).write({"time/fps": 1.0}, 1)
    code = "import sys; from pathlib import Path; from spreeze_zmq.broker.tensorboard import TensorBoard; "
    code += "TensorBoard(Path(sys.argv[1])).write({'time/fps': 2.0}, 2)"
    time.sleep(1.0)  # TensorBoard orders the files by the second in their names
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert curves(tmp_path)["time/fps"] == [(1, 1.0), (2, 2.0)]


def test_the_broker_pays_for_tensorboard_only_when_it_writes():
    """Importing the metrics brings neither tensorboard nor numpy nor torch."""
    code = "import sys, spreeze_zmq.broker.tensorboard as m; from pathlib import Path; "
    code += "m.TensorBoard(Path('.')); "
    code += "print([name for name in ('tensorboard', 'tensorflow', 'numpy', 'torch') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
