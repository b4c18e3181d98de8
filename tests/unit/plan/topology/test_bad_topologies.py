"""Every kind of bad topology: one line for each mistake, at its place, with what was expected."""

import re

import pytest

from spreeze_zmq.base.errors import InvalidEnvironment, TopologyError
from spreeze_zmq.commands.check import FirstLook
from spreeze_zmq.plan.topology import load

RUN = '[run]\nenv = "Pendulum-v1"\n'

#: What is wrong, the text, and what the line of the message must hold, in any order. The command itself is
#: given some of them in ``tests/system/test_bad_input.py``.
TOPOLOGIES = {
    "unknown_key": (RUN + "sede = 1", ["bad.toml:3 run.sede: unknown key", 'did you mean "seed"?']),
    "unknown_table": ("[runn]\nx = 1\n" + RUN, ["bad.toml:1 runn: unknown key"]),
    "name_of_the_algorithm": (
        RUN + '[algorithm]\nname = "ppo"',
        ["algorithm.name", "write algorithm in [run]"],
    ),
    "key_of_another_table": (RUN + "[algorithm]\nreplay_ratio = 4", ['did you mean "balance.replay_ratio"?']),
    "key_outside_its_table": ("seed = 1\n" + RUN, ["bad.toml:1 seed: unknown key", '"run.seed"']),
    "option_of_another_component": (
        RUN + "[components.evaluator]\nenvs = 4",
        ["bad.toml:4 components.evaluator.envs: unknown key", 'did you mean "components.sampler.envs"?'],
    ),
    "option_without_owner": (
        RUN + "[components.broker]\nfrobnicate = 4",
        ["broker.frobnicate", "known: use, count"],
    ),
    "text_for_a_number": (RUN + 'seed = "7"', ["run.seed: expected a whole number", 'got "7"', "write 7"]),
    "decimal_for_a_whole_number": (RUN + "[algorithm]\nbatch_size = 16.0", ["got 16.0", "write 16"]),
    "misspelt_auto": (
        RUN + '[algorithm]\nbatch_size = "atuo"',
        ["algorithm.batch_size: expected a whole number", 'or "auto", got "atuo"', 'did you mean "auto"?'],
    ),
    "misspelt_reference": (
        RUN + '[algorithm]\nbatch_size = "auto"\nreferense_batch_size = 64',
        ['did you mean "reference_batch_size"?'],
    ),
    "largest_batch_below_the_smallest": (
        RUN + "[algorithm]\nmax_batch_size = 32",
        ["algorithm.max_batch_size: expected a whole number of at least 64, got 32"],
    ),
    "measured_batch_in_lockstep": (
        RUN + '[algorithm]\nbatch_size = "auto"\n[balance]\nmode = "lockstep"',
        ['bad.toml:4 algorithm.batch_size: "auto" is measured', 'write a number, or balance.mode = "free"'],
    ),
    "measured_batch_and_publishing_by_count": (
        RUN + '[algorithm]\nbatch_size = "auto"\n[balance]\npublish_every_updates = 8',
        ["algorithm.batch_size", "publishing by count"],
    ),
    "data_that_there_are_not": (
        RUN + '[data.demos]\nsource = "minari:no-such/data-v0"',
        ["bad.toml:4 data.demos.source: Minari has no dataset called no-such/data-v0 in"],
    ),
    "data_in_no_folder": (
        RUN + '[data.demos]\nsource = "./nowhere"\nshare = 0.5',
        ["bad.toml:4 data.demos.source:", "nowhere is no Minari dataset: it has no data/metadata.json"],
    ),
    "data_without_a_source": (
        RUN + "[data.demos]\nshare = 0.5",
        ["bad.toml:3 data.demos.source: missing; expected a text"],
    ),
    "data_without_a_name": (
        RUN + '[data]\nsource = "minari:x-v0"',
        ["bad.toml:4 data.source: expected a table", "[data.NAME]"],
    ),
    "share_of_a_batch_beyond_it": (
        RUN + '[data.demos]\nsource = "./x"\nshare = 1.5',
        ["bad.toml:5 data.demos.share: expected a number above 0 and at most 1", "got 1.5"],
    ),
    "no_sampler_and_no_data": (
        RUN + "[components.sampler]\ncount = 0",
        ["bad.toml:4 components.sampler.count: without samplers there is nothing to train on", "[data.NAME]"],
    ),
    "more_samplers_than_a_run_has_room_for": (
        RUN + "[components.sampler]\ncount = 196",
        ["bad.toml:4 components.sampler.count: expected at most 195, got 196", "sampler.envs"],
    ),
    "more_samplers_beside_members": (
        RUN + '[components.sampler]\ncount = [1, 150]\n[groups]\ncount = 64\n[placement]\nmember = "node"',
        ["bad.toml:4 components.sampler.count: expected at most 131, got 150"],
    ),
    "a_range_of_samplers_from_none": (
        RUN + "[components.sampler]\ncount = [0, 2]",
        ["components.sampler.count: expected a count of at least 1, got [0, 2]"],
    ),
    "no_evaluator": (
        RUN + "[components.evaluator]\ncount = 0",
        ["components.evaluator.count: expected a count of at least 1, got 0"],
    ),
    "true_for_a_number": (RUN + "seed = true", ["run.seed: expected a whole number", "got true"]),
    "text_for_a_truth": (
        RUN + 'save_replay = "yes"',
        ["run.save_replay: expected true or false", "write true"],
    ),
    "number_for_a_text": ("[run]\nenv = 5", ["run.env: expected a text", "got 5"]),
    "date_for_a_number": (RUN + "checkpoint_minutes = 2026-01-01", ["got the date or time 2026-01-01"]),
    "table_for_a_number": (RUN + "seed = {}", ["run.seed: expected", "got a table"]),
    "value_for_a_table": ('run = "Pendulum-v1"', ['bad.toml:1 run: expected a table, got "Pendulum-v1"']),
    "list_of_tables": ('[[run]]\nenv = "Pendulum-v1"', ["bad.toml:1 run: expected a table, got [a table]"]),
    "value_for_a_component": (
        "components.sampler = 4\n" + RUN,
        ["bad.toml:1 components.sampler: expected a table, got 4"],
    ),
    "no_environment": ("[run]\nseed = 1", ["bad.toml:1 run.env: missing", "Gymnasium id"]),
    "empty_file": ("", ["run.env: missing"]),
    "unknown_environment": ('[run]\nenv = "Pendulun-v1"', ["bad.toml:2 run.env", "Pendulum-v1"]),
    "missing_module": ('[run]\nenv = "no_such_module:Reach-v0"', ["bad.toml:2 run.env", "no_such_module"]),
    "discrete_actions": (
        '[run]\nenv = "CartPole-v1"\nalgorithm = "sac"',
        [
            "bad.toml:2 run.env",
            "SAC acts in box",
            "is discrete",
            "algorithm = 'discrete_sac', 'dqn', 'ppo' or 'pqn' could",
        ],
    ),
    "argument_of_no_environment": (
        RUN + "env_kwargs = { gravity = 3.0 }",
        ["run.env", "takes no argument 'gravity'"],
    ),
    "argument_that_json_lacks": (RUN + "env_kwargs = { g = inf }", ["run.env_kwargs: holds inf"]),
    "number_beyond_64_bits": (RUN + f"[algorithm]\nbatch_size = 0x{'f' * 9999}", ["got one beyond 64 bits"]),
    "number_beyond_reading": (RUN + f"seed = {'9' * 9999}", ["bad.toml: not valid TOML"]),
    "text_of_two_lines": (RUN + 'name = "a\\nb"', [r'run.name: "a\nb" cannot name a folder']),
    "negative_seed": (RUN + "seed = -1", ["run.seed: expected a whole number of at least 0", "got -1"]),
    "unknown_stop": (RUN + "stop = { retrun = 1 }", ["bad.toml:3 run.stop.retrun", 'did you mean "return"?']),
    "stop_at_nothing": (
        RUN + "stop = { minutes = 0 }",
        ['run.stop.minutes: expected a number above 0 or "none", got 0'],
    ),
    "stop_at_not_a_number": (RUN + "[run.stop]\nreturn = nan", ["bad.toml:4 run.stop.return", "got nan"]),
    "name_of_no_folder": (RUN + 'name = "../up"', ['run.name: "../up" cannot name a folder']),
    "unknown_algorithm": (
        RUN + 'algorithm = "sca"',
        [
            'run.algorithm: expected one of "discrete_sac", "dqn", "ppo", "pqn", "sac", "td3"',
            '"sca"',
            'did you mean "sac"',
        ],
    ),
    "choice": (
        RUN + '[algorithm]\nactivation = "rleu"',
        ['"relu", "elu"', 'got "rleu"', 'did you mean "relu"?'],
    ),
    "bad_element": (
        RUN + "[algorithm]\nhidden_sizes = [64, 0]",
        ["list of whole numbers of at least 1", "[64, 0]"],
    ),
    "number_for_a_list": (RUN + "[algorithm]\nhidden_sizes = 64", ["hidden_sizes", "write [64]"]),
    "neither_number_nor_auto": (RUN + '[algorithm]\ntarget_entropy = "atuo"', ['or "auto"', 'mean "auto"?']),
    "schedule_without_a_start": (
        RUN + "[algorithm]\nlearning_rate = { to = 1e-4 }",
        ["bad.toml:4 algorithm.learning_rate: its schedule lacks", "as in { from = "],
    ),
    "schedule_of_what_stays": (
        RUN + "[algorithm]\ngamma = { from = 0.9, to = 0.99 }",
        ["algorithm.gamma: expected a number of at least 0", "got a table"],
    ),
    "schedule_without_an_end": (
        RUN + "[algorithm]\nlearning_rate = { from = 1e-3, to = 1e-4 }",
        ['algorithm.learning_rate: goes "over" the run, which has no such limit', "or minutes"],
    ),
    "schedule_below_zero": (
        RUN + "[algorithm]\nlearning_rate = { policy = { from = 1e-3, to = -1e-4 } }",
        ['learning_rate: policy: "to" of its schedule: expected a number of at least 0', "got -0.0001"],
    ),
    "schedule_of_some_steps": (
        RUN + "[algorithm]\ntau = { from = 0.1, to = 0.0, over = 5000 }",
        ['expected "run", or a table such as', "write { env_steps = 5000 } or { trained_"],
    ),
    "schedule_of_no_steps": (
        RUN + "[algorithm]\ntau = { from = 0.1, to = 0.0, over = { env_steps = 0 } }",
        ["env_steps: expected a number above 0, got 0"],
    ),
    "schedule_by_the_clock_in_order": (
        RUN
        + "stop = { minutes = 5 }\n[algorithm]\nlearning_rate = { from = 1e-3, to = 1e-4 }\n"
        + '[balance]\nmode = "lockstep"',
        ['"over" the run, and one in a fixed order follows no clock', "give run.stop env_steps or trained_"],
    ),
    "minutes_in_order": (
        RUN
        + "[algorithm]\ntau = { from = 0.1, to = 0.0, over = { minutes = 5 } }\n"
        + '[balance]\nmode = "lockstep"',
        ['"over" minutes, and a run in a fixed order follows no clock', "env_steps or trained_transitions"],
    ),
    "two_rules_for_a_rate": (
        RUN
        + 'algorithm = "ppo"\nstop = { minutes = 5 }\n[algorithm]\ndesired_kl = 0.01\n'
        + "learning_rate = { from = 1e-3, to = 1e-4 }",
        ["desired_kl moves the policy's learning_rate, which is a schedule too", "leave one of them out"],
    ),
    "options_at_odds": (
        RUN + "[algorithm]\nlog_std_min = 2.0\nlog_std_max = 1.0",
        ["algorithm: log_std_min = 2"],
    ),
    "ratio_of_nothing": (
        RUN + "[balance]\nreplay_ratio = 0",
        ["balance.replay_ratio: expected a number above 0"],
    ),
    "order_with_slack": (
        RUN + '[balance]\nmode = "lockstep"\nslack_rollouts = 1',
        ["balance.in_order: samples in a fixed order leave no slack", "write slack_rollouts = 0"],
    ),
    "order_by_the_clock": (
        RUN + '[balance]\nmode = "lockstep"\npublish_every_updates = 0',
        ["balance.in_order: a fixed order needs weights published by count"],
    ),
    "versions_within_a_round": (
        RUN + '[balance]\nmode = "lockstep"\npublish_every_updates = 1\nreplay_ratio = 16',
        ["balance.publish_every_updates: 1 updates of 256", 'write publish_every_updates = "round"'],
    ),
    "unknown_mode": (RUN + '[balance]\nmode = "fre"', ["balance.mode", 'did you mean "free"?']),
    "lag": (
        RUN + '[balance]\nmax_policy_lag = "non"',
        ['or "none" or "auto"', 'did you mean "none"?'],
    ),
    "count_reversed": (RUN + "[components.sampler]\ncount = [8, 1]", ["[8, 1] is reversed", "write [1, 8]"]),
    "count_of_three_ends": (
        RUN + "[components.sampler]\ncount = [1, 2, 3]",
        ["count: expected a count such as 2"],
    ),
    "count_of_parts": (RUN + "[components.sampler]\ncount = 2.0", ["got 2.0", "write 2"]),
    "count_in_quotes": (RUN + '[components.sampler]\ncount = "4"', ['got "4"', "write 4"]),
    "two_actor_learners": (
        RUN + "[components.actor_learner]\ncount = 2",
        ["actor_learner.count: expected 1 process", "larger algorithm.batch_size"],
    ),
    "two_critic_learners": (
        RUN + "[components.critic_learner]\ncount = 2",
        ["bad.toml:4 components.critic_learner.count: expected 1 process", "larger algorithm.batch_size"],
    ),
    "critic_learners_in_a_range": (
        RUN + "[components.critic_learner]\ncount = [1, 2]",
        ["critic_learner.count: expected 1 process", "got [1, 2]"],
    ),
    "unknown_component": (RUN + "[components.samplre]", ["bad.toml:3 components.samplre", 'mean "sampler"?']),
    "unknown_program": (
        RUN + '[components.sampler]\nuse = "sampler_ccp"',
        [
            'bad.toml:4 components.sampler.use: no component is called "sampler_ccp"',
            "shipped: actor_learner, broker",
        ],
    ),
    "folder_without_component": (
        RUN + '[components.sampler]\nuse = "./mine"',
        ["sampler.use: no component.toml in", "mine", "shipped:"],
    ),
    "program_of_another_role": (
        RUN + '[components.sampler]\nuse = "evaluator"',
        ['sampler.use: "evaluator" has the role evaluator and not sampler', "[components.evaluator]"],
    ),
    "duration": (
        RUN + '[components.sampler]\nstop_grace_s = "5 sec"',
        ["expected seconds", '"5 sec"', '"min"'],
    ),
    "absent_gpu": (
        RUN + '[components.critic_learner]\ndevice = "cuda:99"',
        [
            'bad.toml:4 components.critic_learner.device: "cuda:99" is absent',
            "CUDA device",
            '"cpu" or "auto"',
        ],
    ),
    "malformed_device": (
        RUN + '[components.critic_learner]\ndevice = "cud:1"',
        ['"cuda:1" or "auto", got "cud:1"'],
    ),
    "unknown_channel": (RUN + '[channels.polciy]\nendpoint = "ipc:///tmp/x"', ["polciy", 'mean "policy"?']),
    "malformed_endpoint": (
        RUN + '[channels.policy]\nendpoint = "127.0.0.1:5"',
        ["is no endpoint", "tcp://127.0.0.1"],
    ),
    "port_beyond_all": (RUN + '[channels.policy]\nendpoint = "tcp://127.0.0.1:70000"', ["from 1 to 65535"]),
    "port_of_many_digits": (
        RUN + f'[channels.policy]\nendpoint = "tcp://127.0.0.1:{"5" * 5000}"',
        ["is no endpoint"],
    ),
    "beyond_this_machine": (
        RUN + '[channels.policy]\nendpoint = "tcp://10.0.0.1:5555"',
        ["CURVE keys are needed"],
    ),
    "ipv6": (
        RUN + '[channels.policy]\nendpoint = "tcp://[::1]:5555"',
        ["IPv6", "write tcp://127.0.0.1:5555"],
    ),
    "every_interface": (RUN + '[channels.policy]\nendpoint = "tcp://*:5555"', ["CURVE keys are needed"]),
    "ipc_path_too_long": (
        RUN + f'[channels.policy]\nendpoint = "ipc:///{"x" * 107}"',
        ["has 108 bytes", "107"],
    ),
    "relative_ipc_path": (RUN + '[channels.policy]\nendpoint = "ipc://x"', ["no absolute path"]),
    "two_binders": (
        RUN
        + '[channels]\npolicy.endpoint = "tcp://127.0.0.1:5555"\ncritic.endpoint = "tcp://localhost:5555"',
        ["bad.toml:5 channels.critic.endpoint", "for critic and for policy, at bad.toml:4"],
    ),
    "no_toml": ("[run\nenv = 1", ["bad.toml: not valid TOML", "line 1"]),
    "key_twice": (RUN + "env = 'x'\nseed = 1\n", ["bad.toml: not valid TOML", "line 3"]),
}


def mistakes_of(path, *arguments, **options):
    """The mistakes that loading this file raises, each as its line."""
    with pytest.raises(TopologyError) as caught:
        load(path, *arguments, **options)
    return [str(mistake) for mistake in caught.value.mistakes]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes ``bad.toml`` into an empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        path = tmp_path / "bad.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return "bad.toml"

    return write


def test_a_mistake_is_one_line_at_its_place(write):
    """Whatever the mistake; with what was expected."""
    look = FirstLook()  # once at each environment
    said = {name: mistakes_of(write(text), look=look) for name, (text, _) in TOPOLOGIES.items()}
    assert {name: lines for name, lines in said.items() if len(lines) != 1} == {}
    lacks = {
        name: (fragment, said[name])
        for name, (_, fragments) in TOPOLOGIES.items()
        for fragment in fragments
        if fragment not in said[name][0]
    }
    assert lacks == {}


def test_all_mistakes_are_reported_at_once(write):
    """Mistakes of every table, of the command line and of the environment stand in one message."""
    text = (
        '[run]\nenv = "Pendulun-v1"\nsede = 1\nstop = { minutes = -1, retrun = 2 }\n'
        "[algorithm]\nbatch_size = 16.0\n[balance]\nmode = 'boundd'\n"
        '[components.sampler]\ncount = [8, 1]\nuse = "nothing"\n'
        '[components.critic_learner]\ndevice = "cuda:99"\n'
        '[channels.policy]\nendpoint = "inproc://x"\n'
    )
    lines = mistakes_of(write(text), ["run.seed=x", "nonsense"], without=["samplr"])
    places = {line.partition(": ")[0] for line in lines}
    assert places == {
        "bad.toml:2 run.env",
        "bad.toml:3 run.sede",
        "bad.toml:4 run.stop.minutes",
        "bad.toml:4 run.stop.retrun",
        "bad.toml:6 algorithm.batch_size",
        "bad.toml:8 balance.mode",
        "bad.toml:10 components.sampler.count",
        "bad.toml:11 components.sampler.use",
        "bad.toml:13 components.critic_learner.device",
        "bad.toml:15 channels.policy.endpoint",
        "--set run.seed",
        "--set nonsense",
        "--without samplr",
    }
    assert len(lines) == len(places)


def test_the_message_has_a_line_for_each_mistake(write):
    """The error's own text is what a command prints: a head line, then one line for each mistake."""
    with pytest.raises(TopologyError, match=r"^bad\.toml: 2 mistakes\n  .*\n  .*$"):
        load(write(RUN + "sede = 1\nsed = 2"))


@pytest.mark.parametrize(
    ("override", "fragments"),
    [
        ("run.seed", ["--set run.seed: expected KEY=VALUE"]),
        ("run.seed=", ["expected KEY=VALUE"]),
        ("=5", ["the key is malformed"]),
        ("run..seed=5", ["the key is malformed"]),
        ("run.seed#x=5", ["the key is malformed"]),
        ("components.sampler.count=[1, 8", ["the value is malformed"]),
        ("run.seed.x=5", ["--set run.seed.x=5: run.seed holds a value and no keys"]),
        ("run.sede=5", ["--set run.sede: unknown key", 'did you mean "seed"?']),
        (
            "run.seed=x",
            ["--set run.seed: expected a whole number", "at most 4294967295"],
        ),
        ("run.stop={ retrun = 1 }", ["--set run.stop.retrun: unknown key"]),
        ("run.save_replay=True", ["--set run.save_replay: expected true or false", "write true"]),
    ],
)
def test_an_override_is_blamed_by_its_option(override, fragments, write):
    """A mistake of the command line is placed there and not in the file."""
    (line,) = mistakes_of(write(RUN + "seed = 1"), [override])
    assert [fragment for fragment in fragments if fragment not in line] == [], line


@pytest.mark.parametrize(
    ("make", "fragment"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_bytes(b"[run]\nenv = '\xff'"), "is not UTF-8 text (byte 13)"),
        (lambda path: path.write_bytes(b" " * ((1 << 20) + 1)), "at most 1 MB"),
        (lambda path: path.symlink_to("/dev/zero"), "is no topology"),
        (lambda path: path.symlink_to("/proc/self/mem"), "cannot be read: Input/output error"),
        (lambda path: path.write_text("x = " + "[" * 5000), "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_line(make, fragment, tmp_path):
    """Missing, a folder, not text, endless, broken: each says which."""
    path = tmp_path / "bad.toml"
    make(path)
    (line,) = mistakes_of(path)
    assert line.startswith(f"{path}: ")
    assert fragment in line


def test_a_name_longer_than_file_systems_take_is_one_clear_line():
    """Even asking whether such a file exists is refused by the system."""
    assert mistakes_of("x" * 300) == [f"{'x' * 300}: cannot be read: File name too long"]


@pytest.mark.parametrize("source", ["pendulm", "pendulm.toml", "launch/pendulm.toml"])
def test_a_missing_topology_has_the_nearest_shipped_name(source, tmp_path, monkeypatch):
    """A slip in a bare name is the commonest mistake of all."""
    monkeypatch.chdir(tmp_path)
    (line,) = mistakes_of(source)
    assert re.fullmatch(rf'{source}: no such file \(.*did you mean "pendulum"\?\)', line)


def test_no_value_of_any_type_breaks_the_check():
    """Whatever stands at every known key at once, the outcome is a list of mistakes, never another error."""
    keys = [
        *(
            "run.env_kwargs",
            "run.algorithm",
            "run.seed",
            "run.stop",
            "run.name",
            "run.stop.return",
            "balance.mode",
        ),
        *(
            "algorithm.batch_size",
            "algorithm.target_entropy",
            "algorithm.hidden_sizes",
            "algorithm.activation",
        ),
        *("components.sampler.use", "components.sampler.count", "components.sampler.stop_grace_s"),
        *("components.actor_learner.device", "components.critic_learner.device", "components.evaluator"),
        *(
            "channels",
            "channels.policy",
            "channels.policy.endpoint",
            "channels.experience",
            "components",
            "run",
        ),
    ]
    values = [
        "0",
        "-1",
        "1e999",
        "nan",
        '""',
        '"x"',
        "[]",
        "[[]]",
        "{}",
        "{ a = {} }",
        "true",
        "2026-01-01",
        "12:00:00",
        f"0x{'f' * 400}",
        '"a\\nb"',
        "0.5",
    ]

    def look(env_id, *_, **__):  # a process for each of the 400 would take most of the time
        raise InvalidEnvironment(f"{env_id}: no such environment is registered")

    for value in values:
        for key in keys:
            assert mistakes_of("pendulum", [f"{key}={value}", "run.env=no_such_environment"], look=look)
