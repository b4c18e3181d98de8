"""What an algorithm's file declares, held against what the library needs: one line for each mistake."""

import dataclasses
import importlib

import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms import distributions
from spreeze_zmq.algorithms.declared import Fields, blaming
from spreeze_zmq.base.errors import AlgorithmError, InputError, InvalidEnvironment, WireError
from spreeze_zmq.nn import native_choice

MINE = """
from dataclasses import dataclass
import torch
from spreeze_zmq import nn
from spreeze_zmq.algorithms import Algorithm, Loss, Networks, ReplayOptions, RolloutOptions, option
from spreeze_zmq.algorithms.distributions import TanhNormal

class Mine(Algorithm):
    @dataclass(frozen=True)
    class Options(ReplayOptions):
        width: int = option(8, "of the hidden layers", minimum=1)

    def networks(self):
        self.pi = TanhNormal(self.env, -5.0, 2.0)
        value = nn.mlp([3, self.options.width, 1])
        policy = nn.mlp([3, self.options.width, 2])
        return Networks(critic={"value": value}, policy={"policy": policy})

    def distribution(self):
        return self.pi

    def critic_loss(self, batch):
        error = self.value(batch.obs).squeeze(1) - batch.reward
        return Loss(error.square().mean(), {"error": error.mean()}, priorities=error.abs())

    def policy_loss(self, batch):
        return self.policy(batch.obs).square().mean()
"""


@pytest.fixture
def load(tmp_path, monkeypatch, request):
    """Write ``MINE`` with one thing changed as a module of its own; returns its ``module:Class``."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(old="", new=""):
        assert old in MINE
        name = f"mine_{abs(hash(request.node.name))}"
        (tmp_path / f"{name}.py").write_text(MINE.replace(old, new) if old else MINE + new)
        return f"{name}:Mine"

    return write


def pendulum():
    """Three observations, one action in [-2, 2]."""
    return envs.probe("Pendulum-v1", {})


def half_of(name, part="critic", **options):
    """The half of a part."""
    kind = algorithms.get(name)
    return algorithms.make(part, kind, kind.Options(**options), pendulum(), "cpu", 1)


def batch(size=4):
    """What a critic's loss gets."""
    return {"obs": torch.randn(size, 3), "reward": torch.randn(size), "weight": None}


def test_a_good_file_passes_and_trains(load):
    """Nothing is said."""
    name = load()
    kind = algorithms.get(name)
    algorithms.check(kind, kind.Options(), pendulum())
    assert set(half_of(name).update(batch())) == {"critic_loss", "error"}


#: Follows the class: another one of its name.
REPLACED = """
import copy

Base = Mine

class Mine(Base):
    count = 0

    def networks(self):
        made = super().networks()
        return Networks(made.critic, made.policy, {"target": copy.deepcopy(made.critic["value"])})

    def critic_loss(self, batch):
        error = self.value(batch.obs).squeeze(1) - batch.reward - self.target(batch.obs).squeeze(1).detach()
        return error.square().mean()

    def after_critic_step(self):
        self.count += 1
        if self.count % 3 == 0:
            self.target = copy.deepcopy(self.value)
"""


def test_a_network_in_the_place_of_another_is_saved(load):
    """A deep copy as the targets: who goes on from the state makes the same updates."""
    name = load(new=REPLACED)
    ours = half_of(name)
    for _ in range(7):
        ours.update(batch())
    state = ours.state_dict()
    copied, weights = ours.algorithm.target, []
    assert torch.equal(state["targets"], torch.nn.utils.parameters_to_vector(copied.parameters()))
    assert state["targets"].any()
    rows = batch()
    for half in (ours, half_of(name)):
        half.load_state_dict(state)
        half.algorithm.count = 7
        for _ in range(6):
            half.update(rows)
        weights.append(half.weights.clone())
    assert torch.equal(*weights)


def test_targets_that_nothing_moves_are_a_remark(load):
    """They may be meant to stay, as a random network that is predicted: no error."""
    half = half_of(load(new=REPLACED.replace("after_critic_step", "_moved")))
    assert half.remarks.lines == [
        "Mine has no after_critic_step: the targets target keep their first weights"
    ]


def test_names_of_an_algorithms_own_are_no_mistake(load):
    """Though they have a word in common with a method that the library calls."""
    names = (
        "policy_values",
        "critic_losses",
        "targets_for",
        "update_targets",
        "after_all",
        "step",
    )
    own = "".join(f"    def {name}(self):\n        pass\n" for name in names)
    assert algorithms.get(load(new=own))


def test_a_network_of_another_shape_is_refused(load):
    """In the place of the target."""
    other = REPLACED.replace("copy.deepcopy(self.value)", "nn.mlp([3, 5, 1])").replace("% 3", "% 1")
    half = half_of(load(new=other))
    with pytest.raises(AlgorithmError, match=r"target.0.weight has become .*8, 3"):
        half.update(batch())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("import torch\n", "import torch\ntorch.no\n", r"mine_\d+.py:4: AttributeError: .* 'no'"),
        ("class Mine(", "class Other(", "has no class Mine"),
        ("(Algorithm):", ":", "inherits spreeze_zmq.algorithms.Algorithm"),
        ("def distribution", "def dist", "distribution must be defined"),
        ("(frozen=True)", "", r"mine_\d+.py:9: TypeError: cannot inherit non-frozen"),
        (
            'option(8, "of the hidden layers", minimum=1)',
            "8",
            "option width needs a default and a line of help",
        ),
        ("width: int", 'name: str = option("a", "it")\n        width: int', "option name would stand where"),
        ("", "    def after_critic_steps(self):\n        pass\n", 'did you mean "after_critic_step"'),
        ("def policy_loss", "def polcy_loss", 'never calls polcy_loss; did you mean "policy_loss"'),
        ("", '    acts_in = "discrete"\n', r"acts_in = 'discrete', expected a tuple of .*\(\"discrete\",\)"),
        (
            "",
            '    policy_fields = ("obs", "rewards")\n',
            "policy_fields has 'rewards'; did you mean \"reward\"",
        ),
        (
            "",
            '    critic_fields = ("obs", "memory")\n',
            "a replay does not keep; Options that inherit Roll",
        ),
        (
            "(ReplayOptions):",
            "(RolloutOptions):\n        pass\n    act = print\n    class Rest:",
            r"act\(\) of its own gives no log prob",
        ),
    ],
)
def test_a_class_that_cannot_be_an_algorithm_is_refused(load, old, new, message):
    """As soon as it is read."""
    with pytest.raises(InputError, match=message):
        algorithms.get(load(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "self.options.width, 2",
            "self.options.with_, 2",
            r"networks, for box actions: /.*py:\d+: Attr.*'with_'",
        ),
        ("return Networks(", "return dict(", "returned an instance of dict, expected Networks"),
        ('"policy": policy', '"policy": -1.0', "gives policy 'policy' as -1.0, expected a torch.nn.Module"),
        (
            '"policy": policy',
            '"policy": torch.nn.Sequential(nn.mlp([3, 3]).requires_grad_(False), policy)',
            "gives policy 'policy' with parameters that need no gradient; leave it, and run what stays",
        ),
        ('"policy": policy', '"actor": policy', "no network 'policy' to act with, it has 'actor', 'value'"),
        ('"value": value', '"act": value', "gives critic 'act', a name that is taken"),
        ('"value": value', '"policy": value', "gives policy 'policy', a name that is taken"),
        ('"value": value', '"value": torch.nn.ReLU()', "gives the critic part nothing to train"),
        ("def policy_loss", "def other_loss", "without a policy_loss nobody trains that part"),
        ("self.options.width, 2]", "1]", r"'policy', which acts, gives .*\(2, 1\).* expected shape \(2, 2\)"),
        ("policy = nn.mlp([3", "policy = nn.mlp([7", "the network 'policy': RuntimeError: mat1 and mat2"),
        ("return self.pi\n", "return None\n", r"distribution\(\) returned None, expected one of"),
        (
            "",
            "    def act(self, obs, greedy):\n        return obs\n",
            r"act gives .*\(2, 3\).*shape \(2, 1\)",
        ),
    ],
)
def test_networks_that_do_not_fit_are_refused(load, old, new, message):
    """Before any process starts, by acting on zeros."""
    kind = algorithms.get(load(old, new))
    with pytest.raises(AlgorithmError, match=message):
        algorithms.check(kind, kind.Options(), pendulum())


def test_the_distribution_decides_where_an_algorithm_acts(load):
    """Nothing need be declared for discrete actions."""
    name = load("TanhNormal(self.env, -5.0, 2.0)", "distributions.Categorical(self.env)")
    module = importlib.import_module(name.partition(":")[0])
    module.distributions = distributions
    kind = algorithms.get(name)
    cart = dataclasses.replace(envs.probe("CartPole-v1", {}), obs_shape=(3,))
    algorithms.check(kind, kind.Options(), cart)
    wanted = "Mine: Categorical acts in discrete or multi_discrete .*is box; TanhNormal, .* or Normal could"
    with pytest.raises(InvalidEnvironment, match=wanted):
        algorithms.check(kind, kind.Options(), pendulum())


def test_a_network_of_one_output_for_each_action_is_refused_in_a_box(load):
    """By its class and the attribute that a box does not have, not by an error of torch."""
    kind = algorithms.get(load("self.pi = TanhNormal(", "self.env.num_actions, TanhNormal("))
    with pytest.raises(InvalidEnvironment, match=r"^Mine: env.num_actions is for discrete .*'s is box$"):
        algorithms.check(kind, kind.Options(), pendulum())


def test_a_space_that_an_own_algorithm_does_not_declare_names_the_attribute(load):
    """Its class, and not another algorithm that its writer does not want."""
    kind = algorithms.get(load(new='    acts_in = ("box",)\n'))
    cart = envs.probe("CartPole-v1", {})
    with pytest.raises(InvalidEnvironment) as caught:
        algorithms.check(kind, kind.Options(), cart)
    assert str(caught.value) == (
        "Mine acts in box action spaces, this environment's is discrete; "
        'if its networks can, write acts_in = ("discrete",) in class Mine'
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (".square().mean(), {", ".square(), {", r"returned a tensor of shape \(4,\), expected a scalar"),
        ("return Loss(", "Loss(", "critic_loss returned None, expected a scalar"),
        ("Loss(error.square()", "Loss(batch.reward", "does not depend on any network of the critic part"),
        (
            "batch.reward\n",
            "batch.rewards\n",
            r"py:\d+: AttributeError: a batch has no 'rewards'; did you mean",
        ),
        ('{"error": error.mean()}', '{"error": 1.0}', "gives the metric error as 1.0, expected a 0-d tensor"),
        ('{"error": error.mean()}', '{"error": error}', r"metric error as a tensor of shape \(4,\)"),
        (
            "Loss(error.square()",
            "Loss((batch.weight * error.square())",
            "'NoneType' and 'Tensor'; batch.weight is None without algorithm.prioritized = true",
        ),
        ("priorities=error.abs()", "priorities=error.mean()", r"expected a tensor of shape \(4,\)"),
        ("Loss(error.square()", "Loss((error / 0 * 0).square()", "critic_loss is nan at update 1"),
        ("", "    def after_critic_step(self):\n        self.no\n", r"after_critic_step: /.*py:\d+: Attr"),
    ],
)
def test_a_loss_that_cannot_be_trained_is_refused(load, old, new, message):
    """At its first update, with the place in the file."""
    half = half_of(load(old, new))
    with pytest.raises(AlgorithmError, match=message):
        half.update(batch())


def test_errors_of_the_machine_are_nobodys_fault():
    """They pass as they are: the next life may do better."""
    for error in (MemoryError("no"), RuntimeError("CUDA error: gone"), WireError("shape", "of a message")):
        with pytest.raises(type(error), match=str(error)), blaming(object(), "a loss"):
            raise error


HELD_BY_NONE = """
    def __init__(self, *given):
        super().__init__(*given)
        self.{name} = {made}

    def critic_loss(self, batch):
        return (self.value(batch.obs) + {used}).square().mean()
"""


@pytest.mark.parametrize(
    ("name", "made", "used"),
    [
        ("extra", "nn.mlp([3, 1])", "self.extra(batch.obs)"),
        ("bias", "torch.nn.Parameter(torch.zeros(()))", "self.bias"),
    ],
)
def test_what_a_backward_pass_reaches_and_nothing_trains_is_named(load, name, made, used):
    """It would keep its first weights, without a word."""
    own = load("", HELD_BY_NONE.format(name=name, made=made, used=used))
    said = (
        rf"critic_loss depends on self.{name}, which nothing trains: .* Networks\(critic={{\.\.\., '{name}'"
    )
    with pytest.raises(AlgorithmError, match=said):
        half_of(own).update(batch())


def test_a_network_without_a_gradient_is_named_once(load):
    """The run goes on, and says that nothing trains it."""
    half = half_of(load("return Networks(critic={", 'return Networks(critic={"idle": nn.mlp([3, 1]), '))
    half.update(batch())
    half.update(batch())
    assert half.remarks.lines == [
        "Mine: critic_loss gives 'idle' no gradient at first: nothing trains it, if that stays so"
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "return Networks(critic=",
            "self.opt = torch.optim.Adam(value.parameters())\n        return Networks(critic=",
            "self.opt is an optimiser of 'value', which the library trains itself",
        ),
        (
            '"policy": policy',
            '"policy": policy, "again": value',
            "with the parameters of critic 'value': one",
        ),
        (
            "return Networks(",
            "return Networks(targets={'old': value}, ",
            "targets 'old' with the parameters of critic 'value': copy.deepcopy",
        ),
    ],
)
def test_what_would_be_trained_twice_is_refused(load, old, new, said):
    """One parameter has one group and one optimiser."""
    with pytest.raises(AlgorithmError, match=said):
        half_of(load(old, new))


def test_an_option_of_the_library_keeps_its_type(load):
    """Two rates in a tuple would only fail at the first step."""
    changed = 'learning_rate: tuple[float, ...] = option((1e-3, 1e-4), "two")\n        width: int'
    with pytest.raises(InputError, match=r"option learning_rate is of type floats, .* reads it as float"):
        algorithms.get(load("width: int", changed))


def test_bf16_is_chosen_only_where_the_class_itself_says_so(load):
    """An heir's loss may not learn as well with it."""
    assert algorithms.get("sac").auto_bf16
    assert not type("Heir", (algorithms.get("sac"),), {}).auto_bf16


def test_a_batch_has_replace():
    """An inherited loss gets a batch of which one field is changed, and a wrong name is refused."""
    fields = Fields(obs=torch.ones(2, 3), reward=torch.ones(2))
    assert fields._replace(reward=torch.zeros(2)).reward.tolist() == [0.0, 0.0]
    assert fields.reward.tolist() == [1.0, 1.0]
    with pytest.raises(AttributeError, match='did you mean "reward"'):
        fields._replace(rewards=torch.zeros(2))


@pytest.mark.parametrize("native", ["0", "1"])
def test_a_loss_gets_float32_whoever_computes_the_layers(native, monkeypatch):
    """Torch's layers round to bf16 inside, as the native ones do, and give float32."""
    monkeypatch.setenv("SPREEZE_NATIVE", native)
    monkeypatch.setattr(native_choice, "cpu_flags", lambda: {"avx512_bf16"})  # torch emulates it elsewhere
    kind = algorithms.get("sac")
    half = algorithms.make("critic", kind, kind.Options(precision="bf16"), pendulum(), "cpu", 1)
    with half._autocast():
        assert half.algorithm.policy(torch.zeros(2, 3)).dtype == torch.float32


def test_a_network_that_ran_without_gradients_before_is_trained_in_bf16(monkeypatch):
    """In the same loss, as in a burn-in: a format's weights made without gradients are not taken again."""
    monkeypatch.setattr(native_choice, "cpu_flags", lambda: {"avx512_bf16"})  # torch emulates it elsewhere
    kind = algorithms.get("sac")
    half = algorithms.make("critic", kind, kind.Options(precision="bf16"), pendulum(), "cpu", 1)
    with half._autocast():
        assert torch.is_autocast_enabled("cpu")
        assert not torch.is_autocast_cache_enabled()
