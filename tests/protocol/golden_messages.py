"""One message of each kind, and the files that pin its bytes; running this file writes them again."""

import json
import struct
from pathlib import Path

import numpy as np

from spreeze_zmq.peers import garbage
from spreeze_zmq.wire import Message, decode, encode

FOLDER = Path(__file__).parents[2] / "components" / "golden"
REFUSED = FOLDER / "refused"

DESCRIPTION = {
    "layers": [
        {"kind": "linear", "in": 2, "out": 2},
        {"kind": "relu"},
        {"kind": "linear", "in": 2, "out": 2},
    ],
    "distribution": {"kind": "tanh_normal", "log_std": "tanh", "log_std_min": -5.0, "log_std_max": 2.0},
    "observation": {"shape": [2], "normalize": True, "clip": 10.0},
}

REPORT = {
    "role": "critic_learner",
    "name": "critic_learner-0",
    "pid": 4711,
    "time_s": 1700000000.5,
    "uptime_s": 12.25,
    "cpu_s": 11.5,
    "rss_bytes": 230_000_000,
    "clock_s": {"busy": 10.0, "blocked": 0.0, "starved": 2.0, "idle": 0.25},
    "counters": {"env_steps": 4096, "critic_updates": 128, "reports_dropped": 0},
    "gauges": {"replay_ratio": 8.0, "critic_loss": 0.5},
    "pushed": {},
    "taken": {
        "sampler-0/123456789": {"first": 0, "last": 4096, "received": 4032, "refused": 0, "lost": 64},
    },
    "policy_lag": {"p50": 1, "p99": 3, "max": 4, "stale": 256},
    "publication": {"interval_s": 0.0625, "cost": 0.015625, "bytes": 573448},
    "device": {"busy": 0.9375, "memory_bytes": 2_147_483_648, "memory_free_bytes": 17_179_869_184},
    "waiting_for": "",
    "refused": [
        {
            "sender": "sampler-0",
            "kind": "rollout",
            "word": "wrong_dtype",
            "count": 3,
            "first": "rollout.reward is float64, expected float32",
            "good": 60,
        }
    ],
}

_FIELDS = {
    "hello": {"role": "sampler", "name": "sampler-0", "pid": 4712, "protocol": 1, "host": "desktop"},
    "report": REPORT,
    "bye": {**REPORT, "reason": "stop requested"},
    "evaluation": {
        "version": 40,
        "env_steps": 4096,
        "mean_return": -180.5,
        "std_return": 60.25,
        "interval_low": -225.5,
        "interval_high": -135.5,
        "min": -300.0,
        "max": -1.5,
        "mean_length": 200.0,
        "min_length": 200,
        "max_length": 200,
        "num_episodes": 10,
        "num_truncated": 0,
        "timed_out": False,
        "info": {"is_success": 0.5},
        "seed": 1234,
        "wall_s": 0.75,
        "confirmed": True,
        "best": True,
        "rescored": 5,
        "final": False,
    },
    "failure": {
        "name": "sampler-0",
        "summary": "ValueError: NaN",
        "traceback": "Traceback ...\nValueError: NaN",
    },
    "part": {
        "folder": "000000004096-000012345",
        "part": {
            "critic_learner.pt": {"name": "critic_learner.pt", "bytes": 1024, "crc32": 3735928559},
        },
    },
    "exited": {"name": "sampler-1", "how": "was killed by SIGKILL", "restarting": True},
    "workers": {"role": "sampler", "count": 2, "reason": "as the topology says"},
    "fusion": {
        "groups": {
            "0": {
                "env_steps": 4096,
                "trained_transitions": 32768,
                "rounds": 3,
                "received_bytes": 1_720_344,
                "distance": 0.015625,
                "lost": False,
            }
        }
    },
    "machine": {
        "node": "node-1",
        "host": "desk2",
        "cores": 8,
        "busy": 7.5,
        "memory_bytes": 4_294_967_296,
        "sent_bytes_per_s": 11_900_000.5,
        "received_bytes_per_s": 360_000.0,
        "most": 8,
        "samplers": 2,
        "processes": ["sampler-8", "sampler-9"],
        "gone": False,
    },
    "turned_away": {
        "refused": [
            {
                "sender": "desk2",
                "kind": "join",
                "word": "other_release",
                "count": 1,
                "first": "it has numpy 1.26.4, the run 2.1.0: pip install 'numpy==2.1.0' there",
                "good": 0,
            }
        ]
    },
    "stop_request": {"reason": "interrupted by the user"},
    "request": {"who": "Plateau", "what": "set", "option": "learning_rate", "value": 1e-4, "text": ""},
    "stopping": {"roles": ["sampler", "evaluator"]},
    "status": {"state": "training", "t_s": 12.5, "env_steps": 4096},
    "entry": {
        "topic": "workers",
        "t_s": 12.5,
        "about": {"role": "sampler", "count": 2, "reason": "as the topology says"},
    },
    "stop": {"roles": ["*"], "reason": "minutes 10.00 >= 10"},
    "checkpoint": {"folder": "000000004096-000012345", "env_steps": 4096},
    "scale": {"role": "sampler", "count": 3, "reason": "critic_learner starved 40 % of the time"},
    "set": {
        "role": "critic_learner",
        "option": "batch_size",
        "value": 128,
        "reason": "batch size 512 -> 128: critic_learner starved 80 % of the time",
    },
    "join": {
        "host": "desk2",
        "cores": 8,
        "samplers": 8,
        "packages": {"spreeze-zmq": "0.1.0+5d2c0e83f1aa", "python": "3.11"},
        "before": "",
    },
    "start": {"name": "sampler-8", "nice": 0, "threads": 1, "orphaned": 9},
    "signal": {"name": "sampler-8", "number": 15},
    "beat": {
        "processes": {"sampler-8": {"pid": 4713, "printed": False}},
        "busy": 7.5,
        "memory_bytes": 4_294_967_296,
        "sent_bytes_per_s": 11_900_000.5,
        "received_bytes_per_s": 360_000.0,
    },
    "ended": {"name": "sampler-8", "code": 0, "log": "stopped: SIGTERM"},
    "want": {"about": "evaluator-0.1700000000000000000", "what": "best policy"},
    "given": {"about": "evaluator-0.1700000000000000000"},
    "taken": {"about": "evaluator-0.1700000000000000001", "path": "policy.safetensors", "end": 300000},
    "leave": {"code": 0, "reason": "minutes 10.00 >= 10"},
}


def _rollout() -> Message:
    """Two steps of two environments; environment 1 is truncated at step 0."""
    return Message(
        "rollout",
        {"produced": 8, "policy_version": 3, "num_steps": 2, "num_envs": 2},
        {
            "obs": np.arange(12, dtype=np.float32).reshape(3, 2, 2),
            "action": np.array([[[0.5], [-0.5]], [[1.0], [-1.0]]], np.float32),
            "reward": np.array([[1.0, 2.0], [3.0, -4.0]], np.float32),
            "terminated": np.zeros((2, 2), np.bool_),
            "truncated": np.array([[False, True], [False, False]]),
            "final_obs": np.array([[100.0, 101.0]], np.float32),
            "final_index": np.array([[0, 1]], np.int32),
            "log_prob": np.array([[-0.5, -0.25], [-1.0, -2.0]], np.float32),
        },
    )


def _rollout_of_images() -> Message:
    """One step of two environments that see images of 1 x 2 pixels, of which the networks take three at
    once; environment 0 is in its first episode's second step, in environment 1 an episode ends.
    """
    fields = {"produced": 2, "policy_version": 0, "num_steps": 1, "num_envs": 2}
    arrays = {
        "obs": np.array([[[[3, 4]], [[50, 60]]], [[[5, 6]], [[90, 91]]]], np.uint8),
        "action": np.array([[1, 0]]),
        "reward": np.array([[0.5, -0.5]], np.float32),
        "terminated": np.array([[False, True]]),
        "truncated": np.array([[False, False]]),
        "final_obs": np.array([[[70, 80]]], np.uint8),
        "final_index": np.array([[0, 1]], np.int32),
        "history": np.array([[[[1, 2]], [[10, 20]]], [[[1, 2]], [[30, 40]]]], np.uint8),
    }
    return Message("rollout", fields, arrays)


def _rollout_of_a_camera() -> Message:
    """One step of two environments that observe a number, an image of 1 x 1 x 3 pixels and two more numbers,
    packed: 0.5, -2 and 8 with the pixels 7, 8 and 255 come first; in environment 1 an episode ends.
    """
    fields = {"produced": 2, "policy_version": 5, "num_steps": 1, "num_envs": 2}
    numbers = [(0.5, -2.0, 8.0), (1.0, 0.0, 0.0), (0.25, -2.5, 8.0), (1.5, 0.0, 0.0), (-1.0, 4.0, 0.0)]
    pixels = [(7, 8, 255), (0, 0, 0), (9, 8, 254), (1, 2, 3), (4, 5, 6)]
    each = [struct.pack("<3f3Bx", *rest, *seen) for rest, seen in zip(numbers, pixels, strict=True)]
    rows = np.frombuffer(b"".join(each), np.uint8).reshape(5, 16)
    arrays = {
        "obs": rows[:4].reshape(2, 2, 16),
        "action": np.array([[[0.5], [-0.5]]], np.float32),
        "reward": np.array([[0.5, -0.5]], np.float32),
        "terminated": np.array([[False, True]]),
        "truncated": np.array([[False, False]]),
        "final_obs": rows[4:],
        "final_index": np.array([[0, 1]], np.int32),
    }
    return Message("rollout", fields, arrays)


def _rollout_that_remembers() -> Message:
    """One step of two environments by a policy that keeps three numbers of each; environment 1 begins."""
    fields = {"produced": 2, "policy_version": 5, "num_steps": 1, "num_envs": 2}
    arrays = {
        "obs": np.array([[[0.5], [1.0]], [[0.25], [2.0]]], np.float32),
        "action": np.array([[1, 0]]),
        "reward": np.array([[0.5, -0.5]], np.float32),
        "terminated": np.array([[False, False]]),
        "truncated": np.array([[False, False]]),
        "final_obs": np.empty((0, 1), np.float32),
        "final_index": np.empty((0, 2), np.int32),
        "log_prob": np.array([[-0.5, -1.0]], np.float32),
        "memory": np.array([[0.125, -0.5, 0.75], [0.0, 0.0, 0.0]], np.float32),
    }
    return Message("rollout", fields, arrays)


def _rollout_of_legal_actions() -> Message:
    """One step of two environments with three actions, of which some are legal; in environment 1 the episode
    terminates, and none is legal any more.
    """
    fields = {"produced": 2, "policy_version": 5, "num_steps": 1, "num_envs": 2}
    masks = [[[1, 0, 1], [0, 1, 0]], [[1, 1, 1], [1, 0, 0]]]
    arrays = {
        "obs": np.array([[[0.5], [1.0]], [[0.25], [2.0]]], np.float32),
        "action": np.array([[2, 1]]),
        "reward": np.array([[0.5, -0.5]], np.float32),
        "terminated": np.array([[False, True]]),
        "truncated": np.array([[False, False]]),
        "final_obs": np.array([[3.0]], np.float32),
        "final_index": np.array([[0, 1]], np.int32),
        "action_mask": np.array(masks, np.bool_),
        "final_action_mask": np.zeros((1, 3), np.bool_),
    }
    return Message("rollout", fields, arrays)


def _policy() -> Message:
    """A network of two linear layers and one action, whose parameters count up in eighths."""
    return Message(
        "policy",
        {
            "version": 40,
            "critic_updates": 130,
            "actor_updates": 128,
            "description": DESCRIPTION,
            "extras": {"temperature": 0.125},
            "collect_until": {"sampler-0/123456789": 4608},
        },
        {
            "parameters": np.arange(12, dtype=np.float32) / 8,
            "action_low": np.array([-2.0], np.float32),
            "action_high": np.array([2.0], np.float32),
            "observation_mean": np.array([0.0, 1.0], np.float32),
            "observation_std": np.array([1.0, 2.0], np.float32),
        },
    )


def _bodies() -> dict[str, Message]:
    messages = {kind: Message(kind, fields) for kind, fields in _FIELDS.items()}
    messages["rollout"] = _rollout()
    messages["rollout_of_images"] = _rollout_of_images()
    messages["rollout_of_a_camera"] = _rollout_of_a_camera()
    messages["rollout_that_remembers"] = _rollout_that_remembers()
    messages["rollout_of_legal_actions"] = _rollout_of_legal_actions()
    messages["policy"] = _policy()
    critic = {"parameters": np.array([0.5, -0.5, 1.5], np.float32)}
    counts = {"version": 7, "critic_updates": 130, "env_steps": 4096, "taken": {"sampler-0/123456789": 4096}}
    messages["critic"] = Message("critic", counts, critic)
    for kind in ("critic", "policy"):
        plain = messages[kind]
        fields = {**plain.fields, "layout": "4636ca5eee2fc23f"}
        messages[f"{kind}_with_its_layout"] = Message(kind, fields, plain.arrays)
    counts = {"version": 7, "critic_updates": 130, "env_steps": 0, "trained": 33280}
    messages["critic_of_data_alone"] = Message("critic", counts, critic)
    model = {"group": 1, "part": "critic", "layout": "0123456789abcdef", "round": 3, "number": 5}
    sums = np.array([2.0, 1.0, 0.5], np.float64)
    arrays = {"change": np.array([0.25, -0.5], np.float32), "statistics": sums}
    counts = {"stepped": 1, "env_steps": 4096, "trained": 32768}
    messages["model"] = Message("model", {**model, **counts}, arrays)
    fused = {"part": "critic", "layout": "0123456789abcdef", "round": 4, "numbers": {"0": 9, "1": 5}}
    arrays = {"parameters": np.array([1.25, -1.5], np.float32), "statistics": sums}
    messages["fused"] = Message("fused", fused, arrays)
    keys = {"public": "p" * 40, "secret": "s" * 40, "server": "h" * 40}
    files = {"plan": np.frombuffer(b"{}", np.uint8), "bundle": np.frombuffer(b"", np.uint8)}
    messages["welcome"] = Message("welcome", {"node": "node-1", **keys}, files)
    piece = {"about": "evaluator-0.1700000000000000001", "path": "policy.safetensors", "begin": 262144}
    rest = {"bytes": np.frombuffer(b"the rest", np.uint8)}
    messages["piece"] = Message("piece", {**piece, "size": 262152}, rest)
    ended = {"returns": np.array([-180.5, -20.25], np.float32), "lengths": np.array([200, 200], np.int32)}
    messages["episodes"] = Message("episodes", {}, ended)
    return messages


#: Name of a file -> a message, as if sent by the process named here; there is a file of each kind's name.
MESSAGES = {
    name: Message(body.kind, body.fields, body.arrays, "sampler-0", 123456789, 42)
    for name, body in _bodies().items()
}


def to_file(frames: list[bytes]) -> str:
    """What is kept of one message: its frames in hexadecimal, and beside them what they mean."""
    message = decode(frames)
    content = {
        "frames": [bytes(frame).hex() for frame in frames],
        "sender": message.sender,
        "incarnation": message.incarnation,
        "sequence": message.sequence,
        "fields": message.fields,
        "arrays": {
            name: {"dtype": array.dtype.name, "shape": array.shape, "values": array.tolist()}
            for name, array in message.arrays.items()
        },
    }
    return json.dumps(content, indent=1) + "\n"


def refused_files() -> dict[str, str]:
    """By the word of its refusal what is kept of a message that must be refused: its frames."""
    vectors = garbage.refused(["*"]).items()
    return {
        word: json.dumps({"frames": [frame.hex() for frame in frames]}) + "\n" for word, frames in vectors
    }


def main() -> None:
    """Write every file again."""
    REFUSED.mkdir(parents=True, exist_ok=True)
    for word, text in refused_files().items():
        (REFUSED / f"{word}.json").write_text(text)
    for name, message in MESSAGES.items():
        (FOLDER / f"{name}.json").write_text(to_file([bytes(frame) for frame in encode(message)]))


if __name__ == "__main__":
    main()
