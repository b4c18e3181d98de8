"""Callbacks in the process of a script: what they hear, what they ask for, and that nobody waits for them."""

import contextlib
import functools
import importlib
import io
import logging
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq.base import charset
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.callbacks import Callback, Logger, MLflow, Trackio, WandB, beside, caller, observers
from spreeze_zmq.callbacks.beside import watched
from spreeze_zmq.callbacks.events import Started, Status, Story
from spreeze_zmq.callbacks.named import checked, kind_of
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire import Message, channels
from tests.protocol.golden_messages import MESSAGES

DEADLINE_S = 30.0
EVALUATION = {
    **{name: value for name, value in MESSAGES["evaluation"].fields.items() if name != "rescored"},
    "confirmed": False,
}
#: What the broker says of a run, one of each topic that callbacks hear.
ENTRIES = (
    ("episodes", {"count": 2, "mean": -4.0, "std": 1.0, "min": -5.0, "max": -3.0}),
    ("evaluation", EVALUATION),
    ("checkpoint", {"folder": "000000004096-000012345", "env_steps": 4096}),
    ("failure", MESSAGES["failure"].fields),
)
METHODS = [name for name in vars(Callback) if name.startswith("on_")]


class Broker:
    """The broker's ends of the two channels, of a run without processes."""

    def __init__(self, folder, *overrides):
        plan = topology.load("pendulum", overrides)
        self.folder = RunFolder.create("run", str(folder))
        self.plan, self.sockets = write_plan(plan, self.folder)
        self.written = self.folder.run_file.rename(folder / "not yet")
        self.lives = 0
        self._begin()

    def _begin(self):
        """Open the channels, as another broker than the one before."""
        self.lives += 1
        self.feed, self.reports = (
            channels.open_channel(self.plan.channels[name], end, "broker-0", self.lives)
            for name, end in (("feed", "pub"), ("report", "pull"))
        )

    @contextlib.contextmanager
    def watched(self, *callbacks, level=logging.INFO):
        """The run begins, and callbacks watch it."""
        with watched(self.folder, callbacks, level):
            self.written.rename(self.folder.run_file)
            yield

    def tell(self, topic, about, t_s=2.0):
        """Publish one entry of the feed, once somebody listens."""
        self.until(lambda: self.feed.subscriptions, "subscription")
        self.feed.publish(Message("entry", {"topic": topic, "t_s": t_s, "about": about}))

    def tell_all(self):
        """A status as a broker makes it, and an entry of each other topic."""
        record = RunRecord(self.plan)
        record.episodes.take(np.array([-3.0, -5.0], np.float32), np.array([200, 200], np.int32))
        record.learning.counts["env_steps"] = 4096
        self.tell("status", record.status("training", Balancer(self.plan).status(), 2.0))
        for topic, about in ENTRIES:
            self.tell(topic, about)

    def until(self, condition, what):
        """Wait for a condition, serving the feed."""
        until_s = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            assert time.monotonic() < until_s, f"no {what}"
            channels.poll([self.feed, self.reports], timeout_s=0.02)
        return found

    def restart(self):
        """The next broker takes the place of this one."""
        self._leave()
        self._begin()

    def heard(self, kind):
        """The next message of a kind on the report channel."""
        while True:
            message = self.until(self._next, f"{kind}")
            if message.kind == kind:
                return message

    def _next(self):
        self.reports.gather()
        return self.reports.next()

    def _leave(self):
        for end in (self.feed, self.reports):
            end.close()
        channels.terminate()

    def close(self):
        """Leave nothing behind."""
        self._leave()
        self.sockets.remove()


@pytest.fixture
def broker(tmp_path):
    """A run without processes."""
    made = Broker(tmp_path / "run")
    yield made
    made.close()


class Hears(Callback):
    """Remembers every call."""

    def __init__(self):
        self.calls, self.runs = [], set()

    def _hear(self, method, run, event):
        self.calls.append((method, event))
        self.runs.add(run.who)

    def named(self, method):
        """The events of one method."""
        return [event for name, event in self.calls if name == method]


for _method in METHODS:
    setattr(
        Hears,
        _method,
        lambda self, run, event, method=_method: self._hear(method, run, event),
    )


def test_each_method_hears_of_it_in_its_dataclass(broker):
    """In the order in which it happened, the first and the last call among them."""
    hears = Hears()
    with broker.watched(hears):
        broker.tell_all()
        broker.until(lambda: hears.named("on_failure"), "failure")
        broker.tell("end", {"reason": "minutes 1.00 >= 1"}, 3.0)
        broker.tell("failure", MESSAGES["failure"].fields, 3.5)
        broker.until(lambda: len(hears.named("on_failure")) == 2, "failure after the end")
    assert {name for name, _ in hears.calls} == set(METHODS)
    assert (hears.calls[0][0], hears.calls[-1][0]) == ("on_started", "on_ended")
    started, status = hears.named("on_started")[0], hears.named("on_status")[0]
    assert (started.env, started.algorithm, started.stop["return"]) == ("Pendulum-v1", "sac", -200)
    assert started.options["batch_size"] == broker.plan.algorithm["batch_size"]
    assert (status.state, status.env_steps, status.mean_return) == ("training", 4096, -4.0)
    assert status.figures["stop"]["return"] == -200
    assert hears.named("on_episodes")[0].max == -3.0
    (evaluation,), (best,) = hears.named("on_evaluation"), hears.named("on_best")
    assert (evaluation.mean_return, evaluation.num_episodes) == (best.mean_return, 10) == (-180.5, 10)
    assert best.path == broker.folder.path / "policy.safetensors"
    (checkpoint,) = hears.named("on_checkpoint")
    assert checkpoint.path == broker.folder.checkpoints / "000000004096-000012345"
    ended = hears.named("on_ended")[0]
    assert (ended.reason, ended.env_steps, ended.best_return) == ("minutes 1.00 >= 1", 4096, -180.5)
    assert hears.runs == {"Hears"}


def raises_in(method):
    """A callback that raises in one method."""

    def raising(self, run, event):
        raise LookupError(f"in {method}")

    return type(f"Raises_{method}", (Callback,), {method: raising})()


def test_one_that_raises_is_named_with_its_line_and_called_no_more(broker):
    """At each method; the others hear on."""
    hears, raising = Hears(), [raises_in(method) for method in METHODS]
    with broker.watched(*raising, hears):
        broker.tell_all()
        said = {}
        while len(said) < len(METHODS) - 1:  # that of the end comes when nobody listens
            about = broker.heard("failure").fields
            said[about["summary"].split()[1]] = about
        broker.tell_all()
        broker.until(lambda: len(hears.named("on_failure")) >= 2, "second round")
    assert set(said) == {f"Raises_{method}" for method in METHODS if method != "on_ended"}
    about = said["Raises_on_best"]
    line = Path(__file__).read_text().splitlines().index('        raise LookupError(f"in {method}")') + 1
    what = f"on_best raised LookupError: in on_best [{__file__}:{line}]"
    assert about["summary"] == f"callback Raises_on_best is called no more: {what}"
    assert about["name"] == "script"
    assert "Traceback" in about["traceback"]
    assert broker._next() is None, "each is named once"
    assert hears.named("on_ended")


def test_what_fails_at_the_end_is_told_to_the_script(broker, caplog):
    """No broker listens any more: in a warning, with the line and the traceback."""
    with broker.watched(raises_in("on_ended")):
        broker.until(lambda: broker.feed.subscriptions, "subscription")
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith(
        "callback Raises_on_ended is called no more: on_ended raised LookupError: in on_ended"
    )
    assert "Traceback" in said


def test_where_a_run_shows_nothing_a_script_is_warned_once_of_each_that_fails(broker, caplog):
    """While the run goes on, and at its end."""
    with broker.watched(raises_in("on_status"), raises_in("on_ended"), level=logging.WARNING):
        broker.tell_all()
        broker.heard("failure")
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert [each.split(":")[0] for each in said] == ["callback Raises_on_status is called no more"]
    said = [record.getMessage().split(":")[0] for record in caplog.records if record.levelname == "WARNING"]
    assert said[1:] == ["callback Raises_on_ended is called no more"]


def test_a_method_that_is_set_on_the_object_is_called(broker):
    """As one of its class is."""
    calls = queue.Queue()
    callback = Callback()
    callback.on_best = lambda run, best: calls.put(best.mean_return)
    with broker.watched(callback):
        broker.tell("evaluation", EVALUATION)
        assert calls.get(timeout=DEADLINE_S) == EVALUATION["mean_return"]


class Sleeps(Callback):
    """Never returns from one method."""

    def __init__(self):
        self.wakes = threading.Event()

    def on_status(self, run, status):
        self.wakes.wait()

    def on_episodes(self, run, episodes):
        """Heard, but never reached."""


@pytest.fixture
def sleeps():
    """One that is woken when the test is over."""
    made = Sleeps()
    made.end_s = 0.5
    yield made
    made.wakes.set()


def test_one_that_sleeps_is_named_and_holds_up_neither_the_others_nor_the_end(
    broker, sleeps, monkeypatch, caplog
):
    """What waits for it has a bound, and what is left out is counted."""
    monkeypatch.setattr(caller, "SLOW_S", 0.2)
    monkeypatch.setattr(caller, "MOST_WAITING", 8)  # room for all that is told at once
    hears = Hears()
    with caplog.at_level(logging.WARNING, "spreeze"):
        with broker.watched(sleeps, hears):
            broker.tell_all()
            broker.until(lambda: hears.named("on_failure"), "failure")
            for number in range(2, 14):  # one by one: the others' places are as few
                broker.tell("episodes", ENTRIES[0][1])
                broker.until(lambda number=number: len(hears.named("on_episodes")) == number, "episodes")
            note = broker.heard("request").fields
        broker.until(lambda: hears.named("on_ended"), "end")  # which nobody waits for any more
    assert (note["who"], note["what"]) == ("Sleeps", "note")
    assert note["text"].startswith("on_status has taken")
    said = [record.message for record in caplog.records]
    assert "Sleeps: on_status has not returned 0 s after the end: it is left" in said
    assert "Sleeps: was too slow, and has missed 5 events" in said


class Asks(Callback):
    """Asks for everything, in on_evaluation."""

    def on_started(self, run, started):
        run.note("begun")
        run.set("learning_rate", np.float32(0.5))
        run.set("replay_ratio", 4)

    def on_evaluation(self, run, evaluation):
        run.stop(f"reached {evaluation.mean_return}")


def test_what_a_callback_asks_for_goes_to_the_broker(broker):
    """In its order, under the name of its class."""
    with broker.watched(Asks()):
        asked = [broker.heard("request").fields for _ in range(3)]
        broker.tell_all()
        asked.append(broker.heard("request").fields)
    who = {"who": "Asks"}
    assert asked == [
        {**who, "what": "note", "text": "begun"},
        {**who, "what": "set", "option": "learning_rate", "value": 0.5},
        {**who, "what": "set", "option": "replay_ratio", "value": 4.0},
        {**who, "what": "stop", "text": "reached -180.5"},
    ]


def test_who_asks_to_stop_again_is_heard_once(broker):
    """Evaluations go on until the run has ended, and each would be a line of the journal."""
    with broker.watched(Asks()):
        asked = [broker.heard("request").fields for _ in range(3)]
        for _ in range(3):
            broker.tell_all()
        asked.append(broker.heard("request").fields)
        assert [each["what"] for each in asked] == ["note", "set", "set", "stop"]
    assert broker._next() is None


def test_the_next_broker_is_asked_to_stop_again_unless_the_run_ends(broker):
    """The one before may have died before it read that."""
    hears = Hears()
    with broker.watched(Asks(), hears):
        broker.tell_all()
        asked = [broker.heard("request").fields for _ in range(4)]
        broker.restart()
        broker.tell_all()
        assert broker.heard("request").fields == asked[-1]
        broker.tell("end", {"reason": "Asks: reached -180.5"})
        broker.restart()
        for times in (3, 4):  # what follows the first of a broker has been sent when the second is heard
            broker.tell_all()
            broker.until(lambda times=times: len(hears.named("on_failure")) == times, "failure")
        assert broker._next() is None


REFUSED = [
    (
        ("learning_rat", 0.1),
        'set "learning_rat": no option is called so; did you mean "learning_rate"?; these',
    ),
    (("gamma", 0.9), 'set "gamma": it may not move while a run trains; these may: "learning_rate"'),
    (("learning_rate", -1), "set learning_rate: expected a number of at least 0, got -1"),
    (("tau", float("nan")), "set tau: expected a number"),
    (("replay_ratio", 0), "set replay_ratio: expected a number above 0"),
]


@pytest.mark.parametrize(("asked", "line"), REFUSED, ids=[str(asked[0]) for asked, _ in REFUSED])
def test_what_may_not_be_set_is_refused_where_it_is_asked_for(broker, asked, line):
    """With the line of the callback, and nothing reaches the broker."""
    kind = type("Wrong", (Callback,), {"on_started": lambda self, run, started: run.set(*asked)})
    with broker.watched(kind()):
        summary = broker.heard("failure").fields["summary"]
        assert f"on_started raised InputError: {line}" in summary
        assert f"[{__file__}:" in summary
        assert broker._next() is None


def test_two_of_one_class_have_names_of_their_own():
    """With numbers; a single one has none."""
    assert observers.names_of([Hears(), Asks(), Hears()]) == ["Hears-1", "Asks", "Hears-2"]


NAMES = [
    ("no_colon", 'callback no_colon: expected "my_module:MyClass"'),
    ("no_such_module:A", "callback no_such_module:A: no module is called 'no_such_module'; is it beside"),
    ("spreeze_zmq.callbacks:Callbak", 'has no class Callbak; did you mean "Callback"?'),
    ("pathlib:Path", "is no class that inherits spreeze_zmq.Callback"),
]


@pytest.mark.parametrize(("name", "line"), NAMES, ids=[name for name, _ in NAMES])
def test_a_name_of_no_callback_is_one_clear_line(name, line):
    """Whatever is wrong with it."""
    with pytest.raises(InputError) as caught:
        kind_of(name)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


LEAVES = """
import sys
from spreeze_zmq import Callback
{at_import}
class Mine(Callback):
    def __init__(self):
        sys.exit()
"""


@pytest.mark.parametrize(("at_import", "line"), [("sys.exit()", 4), ("", 7)], ids=["module", "class"])
def test_one_that_ends_its_program_is_named(at_import, line, tmp_path, monkeypatch):
    """With file and line: a launcher that left with it would say nothing, and exit with code 0."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "leaving", raising=False)
    (tmp_path / "leaving.py").write_text(LEAVES.format(at_import=at_import))
    with pytest.raises(InputError) as caught:
        checked(["leaving:Mine"])
    assert str(caught.value).startswith("callback leaving:Mine: ")
    assert "SystemExit: sys.exit()" in str(caught.value)
    assert f"{tmp_path}/leaving.py:{line}" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (Asks(), r"callbacks: expected a list, got .*; write callbacks=\[...\]"),
        ([Asks], r"callbacks\[0\]: .* is no callback; make an object of it"),
        ([Asks(), 3], r"callbacks\[1\]: 3 is no callback; expected"),
        (["no_such_module:A"], "no module is called"),
    ],
)
def test_what_is_no_callback_is_named_before_anything_starts(given, line):
    """By its place in the list."""
    with pytest.raises(InputError, match=line):
        checked(given)
    assert checked(["spreeze_zmq.callbacks:Callback"])[0].needs == ()


class Helped(Callback):
    """One method calls another of its own."""

    def on_status(self, run, status):
        """Each time."""
        self.on_plateau()

    def on_plateau(self):
        """By the one above."""


def test_what_a_nested_or_decorated_function_calls_is_called():
    """A comprehension is a function, too, up to Python 3.11."""

    def decorated(method):
        return functools.wraps(method)(lambda *given: method(*given))

    class Calls(Callback):
        def on_episodes(self, run, episodes):
            return sorted([1, 2], key=lambda row: self.on_row(row))

        @decorated
        def on_evaluation(self, run, evaluation):
            self.on_new(evaluation)

        def on_row(self, row):
            return row

        def on_new(self, evaluation):
            """By the one above."""

    callback = Calls()
    assert checked([callback]) == (callback,)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("on_evaluations", 'did you mean "on_evaluation"?'), ("on_step", "a run calls on_started, on_status, ")],
)
def test_a_method_that_nothing_calls_is_named(name, hint):
    """A habit from another library, or a misspelling; one that the class calls itself is its own affair."""
    kind = type("Misnamed", (Callback,), {name: lambda self, run, what: None})
    with pytest.raises(InputError) as caught:
        checked([kind()])
    assert str(caught.value).startswith(f"callback Misnamed: nothing calls its {name}; {hint}")
    assert len(checked([Helped()])) == 1


@pytest.mark.parametrize("given", ["30", None, True, -1.0, float("inf"), property(lambda self: "30")])
def test_a_time_that_cannot_be_waited_for_at_the_end_is_named(given):
    """Before the run, not when it is over."""
    with pytest.raises(InputError, match=r"callback Late: end_s is .*: expected seconds, as in"):
        checked([type("Late", (Callback,), {"end_s": given})()])


@pytest.mark.parametrize("given", [property(lambda self: 10.0), np.float32(10), 10])
def test_a_time_for_the_end_is_that_of_the_object_whatever_number_it_is(given, monkeypatch):
    """Also one that the class computes, or of another library; likewise where the class is named."""
    kind = type("Own", (Callback,), {"end_s": given})
    monkeypatch.setattr(sys.modules[__name__], "Own", kind, raising=False)
    for found in checked([kind(), f"{__name__}:Own"]):
        assert found.end_s == 10


@pytest.mark.parametrize(("kind", "package"), [(WandB, "wandb"), (MLflow, "mlflow"), (Trackio, "trackio")])
def test_a_missing_logger_says_what_to_install(kind, package, monkeypatch):
    """In a line, and no library is imported for that."""
    monkeypatch.setattr(kind, "needs", (f"no_{package}",))
    with pytest.raises(InputError, match=rf"the package no_{package} is missing: pip install 'spreeze_zmq\["):
        checked([kind()])
    assert package not in sys.modules


def test_a_logger_draws_what_tensorboards_file_has(broker):
    """By the same names, at env steps that never fall."""

    class Draws(Logger):
        def __init__(self):
            self.points, self.steps = {}, []

        def log(self, points, env_steps):
            self.points |= points
            self.steps.append(env_steps)

    draws = Draws()
    with broker.watched(draws):
        broker.tell_all()
        broker.until(lambda: len(draws.steps) == 2, "evaluation")
    assert draws.points["rollout/ep_rew_mean"] == -4.0
    assert draws.points["eval/mean_reward"] == -180.5
    assert draws.points["eval/success_rate"] == 0.5
    assert draws.steps == [4096, 4096]


class Posts(Logger):
    """Sends its points to a server of this machine."""

    end_s = 0.3

    def __init__(self, port):
        self.port = port

    def log(self, points, env_steps):
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}", data=b"points")


@pytest.mark.parametrize("answers", [False, True], ids=["closed port", "silent server"])
def test_a_logger_whose_server_is_dead_holds_up_nothing(broker, answers, caplog):
    """Refused it is named with its line, and never answered it is left at the end; others hear all."""
    hears = Hears()
    with socket.socket() as server, caplog.at_level(logging.WARNING, "spreeze"):
        server.bind(("127.0.0.1", 0))  # nobody else gets the port meanwhile
        port = server.getsockname()[1]
        if answers:
            server.listen()
        with broker.watched(Posts(port), hears):
            broker.tell_all()
            broker.until(lambda: hears.named("on_failure"), "failure")
            if not answers:
                summary = broker.heard("failure").fields["summary"]
                assert "callback Posts is called no more: on_status raised URLError" in summary
                assert f"[{__file__}:" in summary
    broker.until(lambda: hears.named("on_ended"), "end")  # which nobody waits for any more
    left = "Posts: on_status has not returned 0 s after the end: it is left"
    assert (left in [record.message for record in caplog.records]) == answers


def test_a_folder_of_another_run_is_none_to_watch(broker):
    """``train`` refuses it in a moment, and until then nobody hears of that run."""
    broker.written.rename(broker.folder.run_file)
    hears = Hears()
    with watched(broker.folder, [hears]):
        time.sleep(3 * beside.LOOK_S)
    assert hears.calls == []


@pytest.mark.parametrize(
    ("recipe", "number", "reason"),
    [
        ("StopAtReturn", -200.0, "reached -180.5"),
        ("StopWithoutImprovement", 2, "2 evaluations without a better policy"),
    ],
)
def test_a_recipe_stops_the_run_when_it_should(broker, recipe, number, reason, monkeypatch):
    """Not by a look, whose score chose the policy, by few or cut episodes, nor while better ones come."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "components" / "examples")
    asks = getattr(importlib.import_module("callbacks"), recipe)(number)
    look = {**EVALUATION, "best": False}
    with broker.watched(asks):
        for about in (look, look, EVALUATION, look, look):
            broker.tell("evaluation", about)
        last = look
        if recipe == "StopAtReturn":
            last = {**EVALUATION, "confirmed": True, "num_episodes": 30}
            for less in ({"num_episodes": 5}, {"timed_out": True}):
                broker.tell("evaluation", {**last, "mean_return": -1.0, **less})
        broker.tell("evaluation", last)
        found = broker.heard("request").fields
        assert (found["who"], found["what"], found["text"]) == (recipe, "stop", reason)


def test_without_callbacks_nothing_is_imported_and_nothing_subscribed():
    """Neither by ``train`` nor by ``spreeze-launch``, nor by any process of a run."""
    code = "import sys, spreeze_zmq, spreeze_zmq.launcher.training.entry, spreeze_zmq.commands.launch_line, "
    code += "spreeze_zmq.broker.record, spreeze_zmq.component, spreeze_zmq.launcher.launcher; "
    code += "print(*(name for name in sys.modules if name.startswith('spreeze_zmq.callbacks')))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []
    plan = topology.load("pendulum")
    assert "observer" not in plan.components
    assert plan.channels["feed"].connects == ("visualizer",)


def test_what_an_evaluator_takes_up_is_no_evaluation():
    """It says again what a process before it had said, as in a resumed run; further episodes are one."""
    story = Story(topology.load("pendulum"))
    best = {**EVALUATION, "best": True}
    for rescored, called in ((0, []), (5, ["on_evaluation"]), (None, ["on_evaluation", "on_best"])):
        about = best if rescored is None else {**best, "rescored": rescored}
        assert [method for method, _ in story.calls("evaluation", 2.0, about)] == called
    assert story.ended().best_return == best["mean_return"]


@pytest.mark.parametrize(
    ("reason", "failed"),
    [
        ("", True),
        ("sampler-0 is not started again: it has failed 4 times in 60 s", True),
        ("return 1.0 reached", False),
        ("interrupted", False),
    ],
)
def test_a_callback_hears_whether_the_run_failed(reason, failed):
    """Also where nobody has said why it is over."""
    story = Story(topology.load("pendulum"))
    if reason:
        assert list(story.calls("end", 1.0, {"reason": reason})) == []
    assert story.ended().failed == failed


def test_the_recipe_of_a_schedule_begins_and_ends_where_it_says(monkeypatch):
    """It sets the first rate, since the topology may have another, and 0 from the last step on, once."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "components" / "examples")
    schedule, rates = importlib.import_module("callbacks").LinearSchedule(1e-3, 1000), []
    run = SimpleNamespace(set=lambda name, rate: rates.append(rate))
    for steps in ((0, 10), (0, 10, 500, 980, 1000, 1500)):  # a further run begins again
        schedule.on_started(run, Started())
        for env_steps in steps:
            schedule.on_status(run, Status(env_steps=env_steps))
    assert rates == [1e-3, 1e-3, 5e-4, pytest.approx(2e-5), 0.0]


def test_a_service_that_is_slow_to_take_the_last_points_gets_them(broker, monkeypatch):
    """W&B uploads in ``finish``, and calls a run that was left before crashed."""
    finished = []

    def finish(exit_code):
        time.sleep(4.0)
        finished.append("run")

    run = SimpleNamespace(log=lambda points, step: None, finish=finish)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **options: run, run=None))
    with broker.watched(WandB()):
        broker.tell_all()
    assert finished == ["run"]


def test_the_wait_for_callbacks_is_said_and_ctrl_c_ends_it(broker, sleeps, monkeypatch, capsys):
    """The run is over, and stays one that the script gets."""
    sleeps.end_s = DEADLINE_S
    interrupt = functools.partial(signal.pthread_kill, threading.main_thread().ident, signal.SIGINT)

    def say(line, **options):
        charset.say(line, **options)
        threading.Timer(0.2, interrupt).start()

    monkeypatch.setattr(beside, "say", say, raising=False)
    with broker.watched(sleeps):
        broker.tell_all()
        began_s = time.monotonic()
    assert time.monotonic() - began_s < DEADLINE_S
    assert capsys.readouterr().out == "callbacks take what has come last (Ctrl-C to leave it out)\n"


def test_a_wait_that_cannot_be_said_costs_nobody_the_finished_run(broker, sleeps, monkeypatch):
    """As where the disk is full that a script's output goes to."""
    monkeypatch.setattr(beside, "SILENT_S", 0.0)
    with open("/dev/full", "wb", 0) as full, io.TextIOWrapper(full, write_through=True) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with broker.watched(sleeps):
            broker.tell_all()


def test_what_was_not_sent_is_named_with_the_command_that_sends_it(broker, sleeps, caplog):
    """A callback says what becomes of what it still did."""
    sleeps.if_left = WandB.if_left
    with caplog.at_level(logging.WARNING, "spreeze"), broker.watched(sleeps):
        broker.tell_all()
    said = [record.message for record in caplog.records]
    assert any(line.endswith(f"wandb sync {broker.plan.run_dir}/wandb/run-*") for line in said), said


def test_a_process_that_is_started_again_has_not_ended():
    """What the evaluator says last is waited for, though an earlier life of it has crashed."""
    waiting = []
    feed = SimpleNamespace(receive=lambda: waiting.pop() if waiting else None, missed=0)
    made = observers.Observers(topology.load("pendulum"), [], feed, lambda *_: None, "observer-0")
    for topic, more, has_ended in (
        ("exited", {"restarting": True}, False),
        ("hello", {}, False),
        ("exited", {"restarting": False}, True),
        ("hello", {}, False),  # by hand
        ("exited", {"restarting": False}, True),
    ):
        about = {"name": "evaluator-0", "how": "exited with code 1", **more}
        waiting.append(Message("entry", {"topic": topic, "t_s": 1.0, "about": about}, {}, "broker-0", 1))
        made.serve()
        assert made.has_seen_end_of("evaluator-0") is has_ended
