"""The example samplers in Python and JavaScript, where what they are given is not as it should be."""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import pytest
from strangers import policy

from spreeze_zmq import envs
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire import Message, rollout_from

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "components" / "examples"
PYTHON = [sys.executable, str(EXAMPLES / "sampler_python" / "sampler.py")]
NODE = ["node", str(EXAMPLES / "sampler_node" / "sampler.js")]
EXPERIENCE = "experience.critic_learner"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node: apt install nodejs")
BOTH = pytest.mark.parametrize("language", ["python", "javascript"])


@needs_node
@pytest.mark.parametrize(
    ("program", "changed", "words"),
    [
        (PYTHON, {"run": {"randomize": {"mass": [0.9, 1.1]}}}, "run.randomize"),
        (NODE, {"run": {"randomize": {"mass": [0.9, 1.1]}}}, "run.randomize"),
        (PYTHON, {"environment": {"id": "Blackjack-v1"}}, "run.env: obs"),
        (NODE, {"environment": {"kwargs": {"g": 5.0}}}, "run.env_kwargs"),
        (PYTHON, {"channels": {"policy": {"curve": True}}}, "channels.policy.curve"),
        (NODE, {"channels": {"policy": {"curve": True}}}, "channels.policy.curve"),
    ],
)
def test_what_an_example_cannot_do_it_refuses(tmp_path, program, changed, words):
    """In one line, with the code of bad input, before it waits for anybody."""
    plan = topology.load("pendulum", [])
    _, sockets = write_plan(plan, folder := RunFolder.create("run", str(tmp_path / "run")))
    told = json.loads(folder.run_file.read_text())
    for table, keys in changed.items():
        for key, value in keys.items():
            told[table][key] = {**told[table][key], **value} if isinstance(value, dict) else value
    folder.run_file.write_text(json.dumps(told))
    done = subprocess.run(
        [*program, folder.run_file, "0"], capture_output=True, text=True, timeout=60, check=False
    )
    sockets.remove()
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def broken_policies():
    """What is wrong -> fields and arrays of a policy message of which that is so, and the word of refusal."""
    right = policy(1)
    one, nothing = np.ones(3, np.float32), np.zeros(3, np.float32)
    nan = np.full(8, np.nan, np.float32)
    without = {name: array for name, array in right.arrays.items() if name != "action_high"}
    return {
        "NaN": (right.fields, {**right.arrays, "parameters": nan}, "not_finite"),
        "one bound": (right.fields, without, "missing_array"),
        "a limit in words": (
            {**right.fields, "collect_until": {"*": "far"}},
            right.arrays,
            "wrong_field_type",
        ),
        "no spread": (
            right.fields,
            {**right.arrays, "observation_mean": one, "observation_std": nothing},
            "not_finite",
        ),
        "float64": (right.fields, {**right.arrays, "parameters": np.ones(8)}, "wrong_dtype"),
    }


def frames_of(fields, arrays, sequence, protocol=1):
    """The frames of a policy message, unchecked."""
    listed = [[name, array.dtype.name, array.shape] for name, array in arrays.items()]
    header = {"protocol": protocol, "kind": "policy", "sender": "actor_learner-0", "incarnation": 7}
    header |= {"arrays": listed, "sequence": sequence, "fields": fields}
    return [msgpack.packb(header), *(array.tobytes() for array in arrays.values())]


@BOTH
def test_a_broken_policy_is_passed_over_and_counted(played, start, language):
    """Nothing is collected under it; the report says which, and arrays that nobody knows do no harm."""
    peers = played()
    peers.publish_policy(0)
    process = start(language, peers)
    peers.pull(EXPERIENCE)
    peers.pull("experience.actor_learner")
    broken = broken_policies()
    peers.ends["policy"].forward(frames_of({}, {}, 0, protocol="9" * 65_300))
    newer = policy(9)
    known = {**newer.arrays, "unknown": np.arange(3)}
    seen = set()
    for sequence, (fields, arrays, _) in enumerate([*broken.values(), (newer.fields, known, "")]):
        peers.ends["policy"].forward(frames_of(fields, arrays, sequence))
        seen |= {peers.pull(EXPERIENCE).fields["policy_version"] for _ in range(4)}
        for _ in range(4):
            peers.pull("experience.actor_learner")
    while 9 not in seen:
        seen.add(peers.pull(EXPERIENCE).fields["policy_version"])
        peers.pull("experience.actor_learner")
    assert seen == {0, 9}

    def has_counted_all(message):
        rows = message.fields.get("refused", ())
        return len(rows) == 5 and all(row["good"] for row in rows)

    rows = peers.pull("report", has_counted_all).fields["refused"]
    counts = {(row["sender"], row["kind"], row["word"]): row["count"] for row in rows}
    words = ["unknown_version", *(word for _, _, word in broken.values())]
    assert counts == {("actor_learner-0", "policy", word): words.count(word) for word in words}
    assert {row["good"] for row in rows} == {1}
    assert process.poll() is None
    assert not any(end.refusals.rows() for end in peers.ends.values())


ONE_NUMBER = {"action_low": np.array([-2.0], np.float32), "action_high": np.array([2.0], np.float32)}


@BOTH
@pytest.mark.parametrize(
    ("numbers", "others"),
    [
        (7, {}),
        (9, {}),
        (16, {"layers": [{"kind": "linear", "in": 3, "out": 4}]}),
        (8, {"observation": {"shape": [3], "normalize": False, "clip": 10.0, "stack": 2}}),
    ],
)
def test_a_policy_that_does_not_suit_the_environment_ends_it(
    played, start, last_line, language, numbers, others
):
    """Parameters too few or too many, two actions, stacks: code 2, and the policy is named."""
    peers = played()
    peers.ends["policy"].publish(policy(0, numbers, **others))
    process = start(language, peers)
    assert peers.ended(process) == 2
    assert "policy version 0 cannot be used" in last_line()


FAULTY = """
module.exports = class {
  static obsSize = 3;
  static actionSize = 1;
  reset() { this.steps = 0; return [0, 0, 0]; }
  step() {
    if (++this.steps < 5) return { obs: [0, 0, 0], reward: 1, terminated: false };
    FAULT
  }
};
"""


@BOTH
@pytest.mark.parametrize("fault", ["raises", "nan"])
def test_an_environment_that_fails_ends_the_process_with_code_1(played, start, last_line, language, fault):
    """It is started again, and nobody blames the policy."""
    number = "return { obs: [NaN, 0, 0], reward: 1, terminated: false };"
    script = FAULTY.replace("FAULT", number if fault == "nan" else 'throw new Error("contact lost");')
    env = envs.probe("tests.protocol.told:Faulty-v0", {"fault": fault})
    peers = played(env=env if language == "python" else None)
    peers.publish_policy(1)
    process = start(language, peers, script)
    assert peers.ended(process) == 1
    assert ("contact lost" if fault == "raises" else "a number that is not finite") in last_line()
    assert peers.ends[EXPERIENCE].pull(0.0) is None


ECHO = """
module.exports = class {
  static obsSize = 3;
  static actionSize = 1;
  reset() { return [0, 0, 0]; }
  step([action]) { return { obs: [0, 0, 0], reward: action, terminated: false }; }
};
"""


@BOTH
def test_an_environment_that_is_bounded_in_part_gets_no_action_beyond(played, start, language):
    """The policy has no bounds, and the rollout keeps what was drawn."""
    peers = played(env=envs.probe("tests.protocol.told:Half-v0", {}))
    message = policy(1, distribution={"kind": "normal", "log_std_min": -5.0, "log_std_max": 2.0})
    parameters = {"parameters": message.arrays["parameters"]}
    peers.ends["policy"].publish(Message("policy", message.fields, parameters))
    start(language, peers, ECHO)
    rollout = rollout_from(peers.pull(EXPERIENCE))
    assert rollout.action.max() > 2 > 1 > rollout.action.min()
    np.testing.assert_array_equal(rollout.reward, np.minimum(rollout.action[..., 0], 1.0))


@BOTH
def test_no_episode_is_lost_while_the_broker_is_away(played, start, language):
    """The report finds no place and is counted; the episodes are told when it is there, before ``bye``."""

    def shallow(plan):
        report = replace(plan.channels["report"], high_water_mark=1)
        environment = envs.probe("Pendulum-v1", {"max_episode_steps": 5})
        kwargs = environment.kwargs if language == "python" else {}
        return replace(
            plan,
            environment=replace(environment, kwargs=kwargs),
            channels={**plan.channels, "report": report},
        )

    peers = played("components.sampler.envs=4", away=["report"], change=shallow)
    peers.publish_policy(1)
    process = start(language, peers)
    ended, until_s = 0, math.inf
    while time.monotonic() < until_s or ended <= 20:
        ended += len(rollout_from(peers.pull(EXPERIENCE)).final_index)
        peers.pull("experience.actor_learner")
        until_s = min(until_s, time.monotonic() + 1.5)  # reports are due from its first rollout on
        time.sleep(0.01)
    peers.open("report")
    last, told = peers.pull("report"), 0
    assert last.kind == "hello"
    process.send_signal(signal.SIGTERM)
    while last.kind != "bye":
        last = peers.pull("report")
        told += len(last.arrays["returns"]) if last.kind == "episodes" else 0
    assert told >= ended
    assert last.fields["counters"]["reports_dropped"] > 0


CLOCK = "import os, time\nnow = time.time\ntime.time = lambda: now() - 3600 * os.path.exists({!r})\n"


def test_the_example_in_python_goes_on_where_the_clock_is_set_back(played, start, tmp_path, monkeypatch):
    """As by NTP: reports come as before, and no time that it states is below 0."""
    back = tmp_path / "set_back"
    (tmp_path / "sitecustomize.py").write_text(CLOCK.format(str(back)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    peers = played()
    start("python", peers)
    before = peers.pull("report", lambda message: message.kind == "report").fields
    back.touch()
    after = peers.pull("report", lambda message: message.fields.get("time_s", math.inf) < before["time_s"])
    last = peers.pull("report", lambda message: message.kind == "report").fields
    assert before["uptime_s"] < after.fields["uptime_s"] < last["uptime_s"]
    assert min(last["clock_s"].values()) >= 0


SLOW = (EXAMPLES / "sampler_node" / "pendulum.js").read_text()
SLOW = SLOW.replace(
    "  step([torque]) {", "  step([torque]) {\n    for (const end = Date.now() + 50; Date.now() < end; );"
)


def test_the_example_in_javascript_is_heard_and_hears_while_it_collects(played, start):
    """A rollout takes 80 s; reports come twice a second, and a signal is heeded before it is whole."""
    peers = played("components.sampler.envs=4", "components.sampler.rollout_steps=400")
    peers.publish_policy(1)
    process = start("javascript", peers, SLOW)

    def collects(message):
        return message.kind == "report" and message.fields["clock_s"]["busy"] > 1

    reports = [peers.pull("report", collects) for _ in range(6)]
    assert np.median(np.diff([report.fields["time_s"] for report in reports])) < 1  # one may be held up
    process.send_signal(signal.SIGTERM)
    last = peers.pull("report", lambda message: message.kind == "bye")
    assert peers.ended(process) == 0
    for message in (*reports, last):
        assert set(message.fields["pushed"].values()) == {0}


def unmasked(plan):
    """An environment that gives masks, in a run that uses none; its critic-learner asks for ``log_prob``."""
    asking = replace(plan.channels[EXPERIENCE], fields=(*plan.channels[EXPERIENCE].fields, "log_prob"))
    environment = replace(envs.probe("tests.masked:MaskedPole-v0", {}), action_mask=False)
    return replace(plan, environment=environment, channels={**plan.channels, EXPERIENCE: asking})


@pytest.mark.parametrize("version", [0, 3])
def test_masks_that_the_run_does_not_use_change_nothing(played, start, version):
    """The log probabilities are of all choices."""
    peers = played(change=unmasked)
    distribution = {"kind": "categorical", "sizes": [2]}
    observation = {"shape": [4], "normalize": False, "clip": 10.0}
    layers = [{"kind": "linear", "in": 4, "out": 2}]
    message = policy(version, layers=layers, distribution=distribution, observation=observation)
    parameters = np.array([0.0] * 9 + [np.log(3.0)], np.float32)
    peers.ends["policy"].publish(Message("policy", message.fields, {"parameters": parameters}))
    start("python", peers)
    rollout = rollout_from(peers.pull(EXPERIENCE))
    probabilities = np.array([0.25, 0.75] if version else [0.5, 0.5])
    np.testing.assert_allclose(rollout.log_prob, np.log(probabilities)[rollout.action], atol=1e-6)
