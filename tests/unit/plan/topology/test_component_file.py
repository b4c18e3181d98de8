"""A component of one's own: its component.toml is checked before any of its processes starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import spreeze_zmq
from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.plan.topology import load
from spreeze_zmq.plan.topology.component_file import read_component_file, shipped_components

GOOD = 'role = "sampler"\ncommand = ["python", "{folder}/run.py", "--fast"]\n'


@pytest.fixture
def component(tmp_path):
    """Writes ``mine/component.toml`` and a topology beside it that uses it as its sampler; loads that."""

    def load_with(text, sampler=""):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "run.py").touch()
        (tmp_path / "mine" / "component.toml").write_text(text)
        own = tmp_path / "own.toml"
        own.write_text(f'run.env = "Pendulum-v1"\n[components.sampler]\nuse = "./mine"\n{sampler}')
        return load(own)

    return load_with


def test_another_checkout_on_the_path_brings_its_own_components(tmp_path):
    """Though this one is installed: half of each would run together."""
    package = Path(spreeze_zmq.__file__).parent
    (tmp_path / "spreeze_zmq").symlink_to(package)
    (tmp_path / "setup.cfg").touch()
    say = "from spreeze_zmq.base.machine import shipped_folder; print(shipped_folder('components'))"
    found = subprocess.check_output(
        [sys.executable, "-c", say], env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path, text=True
    )
    assert Path(found.strip()) == tmp_path / "components"


def test_every_role_has_a_shipped_component_of_its_name():
    """A topology that names none of them is complete."""
    for role in ROLES:
        file = read_component_file(shipped_folder("components") / role)
        assert file.role == role
        assert file.description
    assert set(shipped_components()) >= set(ROLES)


def test_a_folder_beside_the_topology_takes_a_role(component, tmp_path):
    """Its command, channels and options are what the plan holds."""
    options = '[options.size]\ntype = "int"\ndefault = 3\nminimum = 1\nhelp = "x"\n'
    plan = component(GOOD + options, "size = 5")
    sampler = plan.components["sampler"]
    assert sampler.use == "./mine"
    assert sampler.folder == str(tmp_path / "mine")
    assert sampler.command == (sys.executable, f"{tmp_path}/mine/run.py", "--fast")
    assert sampler.options == {"size": 5}
    assert sampler.channels["policy"] == "sub"
    assert plan.channels["experience.critic_learner"].connects == ("sampler",)
    assert plan.channels["experience.actor_learner"].connects == ("sampler",)


def test_a_byte_order_mark_is_no_mistake(component, tmp_path):
    """Some editors begin every file with one: the component's and the topology's."""
    component("\ufeff" + GOOD)
    own = tmp_path / "own.toml"
    own.write_bytes(b"\xef\xbb\xbf" + own.read_bytes())
    assert load(own).components["sampler"].use == "./mine"


def test_a_default_takes_the_form_that_a_written_value_has(component):
    """Seconds for a duration, a decimal number for a float: a component reads one form only."""
    declared = {"pause": ("duration", '"500 ms"'), "rate": ("float", "1")}
    options = "".join(
        f'[options.{name}]\ntype = "{kind}"\ndefault = {default}\nhelp = "x"\n'
        for name, (kind, default) in declared.items()
    )
    values = component(GOOD + options).components["sampler"].options
    assert values == {"pause": 0.5, "rate": 1.0}
    assert type(values["rate"]) is float


def test_the_command_may_be_any_program(component):
    """A compiled component is named by its path or found on PATH."""
    plan = component(GOOD.replace('"python", "{folder}/run.py", "--fast"', '"/bin/sh", "{folder}/run.py"'))
    assert plan.components["sampler"].command[0] == "/bin/sh"


def test_what_is_built_need_not_be_there_yet(component, tmp_path):
    """With ``build`` the program may be missing; what builds it may not."""
    text = GOOD.replace('"python", "{folder}/run.py", "--fast"', '"{folder}/made", "{folder}/made.cfg"')
    with pytest.raises(TopologyError, match="made is no program"):
        component(text)
    (tmp_path / "mine" / "component.toml").write_text(
        text + 'build = ["sh", "{folder}/run.py", "{folder}"]\n'
    )
    assert load(tmp_path / "own.toml").components["sampler"].command[0] == f"{tmp_path}/mine/made"
    (tmp_path / "mine" / "component.toml").write_text(text + 'build = ["sh", "{folder}/gone.sh"]\n')
    with pytest.raises(TopologyError, match=r"build: there is no .*gone\.sh"):
        load(tmp_path / "own.toml")


@pytest.mark.parametrize(
    ("text", "sampler", "fragments"),
    [
        (GOOD, "envs = 4", ["own.toml:4 components.sampler.envs: unknown key"]),
        (
            GOOD + '[options.size]\ntype = "int"\nhelp = "x"\n',
            "",
            ["components.sampler.size: missing; expected a whole number"],
        ),
        (
            GOOD.replace('"sampler"', '"evaluator"'),
            "",
            ['"./mine" has the role evaluator and not sampler', "use it in [components.evaluator]"],
        ),
        (
            GOOD.replace('"sampler"', '"smapler"'),
            "",
            ["mine/component.toml:1 role: expected one of", '"sampler"?'],
        ),
        (
            GOOD + '[channels]\npolicy = "sub"',
            "",
            ["channels: unknown key", "channels follow from the role"],
        ),
        (
            'role = "sampler"',
            "",
            ["command: missing; expected a list of texts"],
        ),
        (
            GOOD.replace('"python"', '"no-such-program"'),
            "",
            ["command: no-such-program is no program", "build it"],
        ),
        (
            GOOD + '[options.count]\ntype = "int"\ndefault = 1\nhelp = "x"',
            "",
            ["options.count: every component has"],
        ),
        (
            GOOD + '[options.a]\ntype = "integer"\ndefault = 1\nhelp = "x"',
            "",
            ["options.a.type: expected one of"],
        ),
        (
            GOOD + '[options.a]\ntype = "int"\ndefault = "b"\nhelp = "x"',
            "",
            ["options.a.default: expected a whole"],
        ),
        (GOOD + '[options.a]\ntype = "int"\ndefault = 1', "", ["options.a.help: missing"]),
        (GOOD + "options.a = 3", "", ["options.a: expected a table, got 3"]),
        (GOOD.replace("run.py", "nun.py"), "", ["command: there is no", "mine/nun.py"]),
        (GOOD.replace("/run.py", ""), "", ["command: there is no", "mine/__main__.py"]),
        ("role = ", "", ["mine/component.toml: not valid TOML"]),
    ],
)
def test_a_mistake_of_a_component_is_placed_in_its_file(text, sampler, fragments, component):
    """Its own mistakes name its path; those of the topology that uses it name the topology."""
    with pytest.raises(TopologyError) as caught:
        component(text, sampler)
    found = [str(mistake) for mistake in caught.value.mistakes]
    assert any(all(fragment in line for fragment in fragments) for line in found), found


def test_what_only_looks_waits_for_its_first_visitor():
    """The launcher opens its port; nothing else is started on demand, unless its own file says so."""
    plan = load("pendulum")
    on_demand = [role for role, component in plan.components.items() if component.on_demand]
    assert on_demand == ["visualizer"]
    assert plan.components["visualizer"].options["port"] == 0
