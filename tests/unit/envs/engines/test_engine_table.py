"""The table of engines is what the library, its options and its extras go by."""

from configparser import ConfigParser
from pathlib import Path

from spreeze_zmq.envs.engines import ENGINES, LIBRARIES
from spreeze_zmq.plan.topology.component_file import read_component_file

ROOT = Path(__file__).parents[4]


def test_the_samplers_option_offers_every_engine():
    """The sampler's backend is "auto" or a name of the table."""
    options = {option.name: option for option in read_component_file(ROOT / "components" / "sampler").options}
    assert options["backend"].choices == ("auto", *ENGINES)


def test_each_library_has_an_extra_and_its_three_functions():
    """What an engine with environments of its own needs is there: an extra of its name, and its functions."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for kind in LIBRARIES:
        assert kind.name in setup["options.extras_require"]
        library = kind.library()
        assert all(map(callable, (library.why_not, library.may_have_meant, library.make)))


def test_each_engine_steps_environments_in_one_way():
    """An engine steps native tasks, objects one by one, or its own environments."""
    assert all(kind.native + kind.one_by_one + bool(kind.module) == 1 for kind in ENGINES.values())
