"""PROTOCOL.md says what the code does: every kind, field, channel and word is in it."""

import hashlib
import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from golden_messages import MESSAGES, REFUSED

from spreeze_zmq import algorithms, wire
from spreeze_zmq.base.rollout import ARRAY_FIELDS
from spreeze_zmq.base.schema.option import TYPES
from spreeze_zmq.broker.status import SHOWN, Shared, StatusMessage
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan import plan as plan_file
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import CHANNELS, ROLES
from spreeze_zmq.policy import Policy
from spreeze_zmq.policy.description import KINDS as LAYERS
from spreeze_zmq.policy.heads import HEADS
from spreeze_zmq.wire import KINDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "components" / "PROTOCOL.md").read_text()
EXAMPLE = ROOT / "components" / "examples" / "sampler_python"


def rows(text):
    """The cells of every table row in a text, without the marks around them."""
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def between(start, end):
    """The part of the document from one text to another."""
    return TEXT[TEXT.index(start) : TEXT.index(end)]


def section_of(heading):
    """From a heading to the next one."""
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"PROTOCOL.md has no {heading}"
    return found[1]


def section(kind):
    """What the document says of one kind."""
    return section_of(f"### `{kind}`")


def kinds_in_rows():
    """Kind -> what its message holds, of those that are a row of a table of kinds."""
    found, at = {}, None
    for cells in rows(TEXT):
        if "holds" in cells and cells[0] == "kind":
            at = cells.index("holds")
        elif at is not None and cells[0].strip("`") in KINDS:
            found[cells[0].strip("`")] = cells[at]
        else:
            at = None
    return found


def documented(kind):
    """name -> (its type, whether it may be left out), fields and arrays alike: from the rows of its section,
    and from what stands as `name`: type in it or in its row.
    """
    text = kinds_in_rows()[kind] if kind in kinds_in_rows() else section(kind)
    found = {
        cells[0].split("`")[1]: (cells[1], cells[0].endswith("*"))
        for cells in rows(text)
        if cells[0].startswith("`")
    }
    types = "|".join([*wire.fields.FIELD_TYPES, *wire.header.DTYPES])
    inline = re.findall(rf"`(\w+)`( \*)?:\s+({types})\b", text)
    return found | {name: (type_, bool(star)) for name, star, type_ in inline}


def test_every_kind_has_its_section_and_no_other_has():
    """Or its row in a table of kinds; in both directions."""
    sections = re.findall(r"^### `(\w+)`$", TEXT, re.MULTILINE)
    assert sorted([*sections, *kinds_in_rows()]) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_fields_and_arrays_are_documented_as_they_are_checked(kind):
    """Names, types and whether they may be left out; nothing more and nothing less."""
    spec = KINDS[kind]
    expected = {name: (field.type, not field.required) for name, field in spec.fields.items()}
    expected |= {name: (", ".join(array.dtypes), not array.required) for name, array in spec.arrays.items()}
    if kind == "bye":
        expected = {name: about for name, about in expected.items() if name not in KINDS["report"].fields}
        assert "every field of `report`" in kinds_in_rows()[kind]
    if kind == "policy":
        assert {name: e for name, e in documented(kind).items() if name not in LAYERS} == expected
    else:
        assert documented(kind) == expected


def test_every_figure_of_a_status_is_documented():
    """What the broker counts is a field of the message, and stands in the table with it."""
    here = [item for item in fields(StatusMessage) if "spread" not in item.metadata]
    shared = [item for item in fields(Shared) if "spread" not in item.metadata]
    names = {item.name for item in (*here, *shared)} | set(SHOWN) | {f"{name}_per_s" for name in SHOWN}
    few = {"others", "machines", "groups", "reports_late_s", "requests", "values"}  # runs have them
    assert names | few == set(KINDS["status"].fields)


def test_every_role_is_documented():
    """In the list of roles, and in the table of what each must send and heed."""
    listed = between("Each has a **role** (", ") and a **name**")
    assert set(re.findall(r"`(\w+)`", listed)) == set(ROLES)
    table = {cells[0] for cells in rows(between("| role | must send", "## Being started"))}
    assert set(ROLES) <= table


def test_the_arrays_of_a_rollout_are_documented_with_their_shapes():
    """The third column of the table says what the form of each array says."""
    tails = {"obs": ["..."], "action": ["..."], "index": ["2"], "memory": ["M"], "mask": ["A"], "number": []}
    expected = {
        name: f"[{', '.join([*form.leading, *tails[form.entry]])}]" for name, form in ARRAY_FIELDS.items()
    }
    table = [cells for cells in rows(section("rollout")) if len(cells) == 4 and cells[0].startswith("`")]
    assert {cells[0].split("`")[1]: cells[2] for cells in table} == expected


def test_every_layer_and_distribution_is_documented():
    """In the two tables of the policy's description, and no other is."""
    tables = rows(between("**The description:**", "**A class instead.**"))
    named = [re.findall(r"`(\w+)`", cells[0]) for cells in tables]
    assert sorted(name for names in named for name in names) == sorted([*LAYERS, *HEADS])


@pytest.mark.parametrize("name", CHANNELS)
def test_every_channel_stands_in_the_table_as_it_is(name):
    """Who binds, who connects, which kinds travel, and the high-water mark."""
    spec = CHANNELS[name]
    cells = next(cells for cells in rows(TEXT) if cells[0] == f"`{name}`")
    binder_end = {"push_pull": "PULL", "pub_sub": "XPUB"}[spec.pattern]
    assert cells[1] == f"{spec.binds} ({binder_end})"
    connects, _, end = cells[2].rpartition(" ")
    if connects == "everybody else, and the launcher":
        assert {spec.binds, *spec.connects} == set(ROLES)
    else:
        assert set(connects.split(", ")) == set(spec.connects)
    assert end == {"push_pull": "(PUSH)", "pub_sub": "(SUB)"}[spec.pattern]
    assert cells[3] == ", ".join(spec.kinds)
    assert int(cells[4]) == spec.high_water_mark


def words_in(*rooms):
    """The words of refusal in the code of these folders."""
    files = [path for room in rooms for path in (ROOT / room).glob("*.py")]
    text = "".join(path.read_text() for path in files)
    refusals = [r'WireError\(\s*"(\w+)"', r'reason = "(\w+)" if', r'reason = .* else "(\w+)"']
    words = {word for refusal in refusals for word in re.findall(refusal, text)}
    # a mistake that only a Python sender can make, and what ends a process that cannot use a policy
    return words - {"not_an_array", "bad_policy"}


def test_every_word_of_refusal_is_documented():
    """A stranger's decoder can refuse for the same reasons, and has a message that is refused for each."""
    wire_words = words_in("spreeze_zmq/wire")
    rooms = [f"spreeze_zmq/{room}" for room in ("wire/channels", "run", "learner", "broker", "algorithms")]
    components = [path.parent.relative_to(ROOT) for path in ROOT.glob("components/*/component.toml")]
    words = wire_words | words_in(*rooms, *components)
    intake = (ROOT / "spreeze_zmq" / "learner" / "intake.py").read_text()
    words |= set(re.findall(r'\("(\w+)", self\.\w+(?:\.\w+)?\),', intake))
    assert {"misfit", "not_finite", "unordered", "stale", "wrong_sender"} <= words
    table = rows(between("### What is refused", "## Experience"))
    assert set(re.findall(r"`(\w+)`", "".join(cells[0] for cells in table))) == words
    assert {"bad_header", "unknown_dtype", "wrong_bytes", "ext_type"} <= wire_words
    by_the_channel = {"wrong_kind"}  # what a kind is refused for depends on where it came
    assert {path.stem for path in REFUSED.glob("*.json")} == wire_words - by_the_channel


def test_every_type_and_dtype_is_documented():
    """The words that the tables are written in."""
    types = {cells[0].strip("`") for cells in rows(between("| type of a field |", "### What is"))}
    assert types - {"type of a field"} == set(wire.fields.FIELD_TYPES)
    assert all(f"`{dtype}`" in TEXT for dtype in wire.header.DTYPES)
    assert f"version {wire.PROTOCOL_VERSION}" in TEXT.splitlines()[0]


def test_the_message_in_bytes_is_the_golden_one():
    """Each line of the header begins with bytes; what they mean stands after two spaces."""
    told = TEXT[TEXT.index("One message in bytes") : TEXT.index("| type of a field |")]
    header, arrays = (
        [row[4:] for row in part.splitlines() if row[:4] == "    "] for part in told.split("and the frames")
    )
    lines = [re.split(r" {2,}", row)[0].replace(" ", "") for row in header]
    golden = json.loads((ROOT / "components" / "golden" / "episodes.json").read_text())
    assert ["".join(lines), *(row.replace(" ", "") for row in arrays)] == golden["frames"]


def test_every_format_has_its_row_among_the_changes():
    """The newest ones are those that the code writes and reads."""
    table = [cells[0] for cells in rows(TEXT[TEXT.index("## Versions") :])]
    assert f"`protocol` {wire.PROTOCOL_VERSION}" in table
    assert [cell for cell in table if cell.startswith("`format`")][-1] == f"`format` {plan_file.FORMAT}"


def test_the_document_stays_a_reference():
    """Two thirds of what it was with its programs in it, and a little for what comes."""
    assert len(TEXT.splitlines()) <= 850


def test_the_retained_kinds_are_named():
    """What a late joiner is sent again."""
    sentence = re.search(r"The kinds (.*?) are \*\*retained\*\*", TEXT)[1]
    assert set(re.findall(r"`(\w+)`", sentence)) == {kind for kind, spec in KINDS.items() if spec.retained}


def test_the_layouts_of_a_pair_are_those_of_the_lines():
    """By the document alone: its digest of its lines is what the halves of that run expect of each other."""
    told = section_of("### Half a pair")
    lines = re.findall(r"^    (critics\S+)$", told, re.MULTILINE)
    digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()[:16]
    plan = topology.load("pendulum", ["algorithm.hidden_sizes=[64,64]"])
    algorithm, options = algorithm_of(plan)
    made = [
        algorithms.make(part, algorithm, options, plan.environment, "cpu", 1) for part in ("critic", "policy")
    ]
    assert re.findall(r"\b[0-9a-f]{16}\b", told) == [half.layout for half in made]
    assert digest == made[0].layout


def test_the_worked_evaluation_agrees_with_the_policy():
    """Every layer and activation, normalisation, stretching of actions: a policy of random numbers."""
    act = {}
    exec((EXAMPLE / "policy.py").read_text(), act)
    rng = np.random.default_rng(3)
    kinds = ["relu", "elu", "tanh", "silu"]
    layers, size, num_parameters = [], 5, 0
    for kind in kinds:
        layers += [{"kind": "linear", "in": size, "out": 7}, {"kind": "layer_norm", "size": 7, "eps": 1e-5}]
        layers.append({"kind": kind})
        num_parameters += size * 7 + 7 + 14
        size = 7
    layers.append({"kind": "linear", "in": 7, "out": 4})
    fields = {
        **MESSAGES["policy"].fields,
        "description": {
            "layers": layers,
            "distribution": {
                "kind": "tanh_normal",
                "log_std": "tanh",
                "log_std_min": -5.0,
                "log_std_max": 2.0,
            },
            "observation": {"shape": [5], "normalize": True, "clip": 1.5},
        },
    }
    arrays = {
        "parameters": rng.normal(0, 0.7, num_parameters + 7 * 4 + 4).astype(np.float32),
        "action_low": np.array([-2.0, 0.0], np.float32),
        "action_high": np.array([1.0, 5.0], np.float32),
        "observation_mean": rng.normal(size=5).astype(np.float32),
        "observation_std": np.full(5, 0.5, np.float32),
    }
    obs = rng.normal(size=(20, 5)).astype(np.float32)
    policy = Policy.from_message(fields, arrays)
    mine = np.stack([act["act"](fields, arrays, one)[0] for one in obs])
    np.testing.assert_allclose(mine, policy.mode(obs), rtol=1e-4, atol=1e-4)
    rng = np.random.default_rng(9)
    mine, mine_log_prob = zip(*(act["act"](fields, arrays, one, rng) for one in obs), strict=True)
    action, log_prob = policy.act(obs, np.random.default_rng(9), log_prob=True)
    np.testing.assert_allclose(np.stack(mine), action, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(mine_log_prob, log_prob, rtol=1e-3, atol=1e-3)


def test_the_types_of_options_are_those_that_component_files_may_name():
    """All but that of the launcher's own counts."""
    (named,) = re.findall(r'^    type = "int" +# (.*)$', TEXT, re.MULTILINE)
    assert set(named.split()) == TYPES.keys() - {"count"}
