"""Line numbers of keys, whatever stands between them."""

import tomllib

import pytest

from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.plan.topology.document import lines_of, split_key

TEXT = '''\
# [comment]
top = "a = 1 # no comment"  # b = 2
[run]
env = "x"
stop = { return = 1, minutes = 2 }
text = """
seed = 3
[not.a.table]
\\""" still
"""
raw = \'\'\'
x = 1\'\'\'
sizes = [
    1, # ]
    2, "]",
]
dotted . key = 1

  [ "quoted.name" . b ]
  "odd \\" key" = [[1], [
  2]]
  'literal' = 1
[[many]]
z = 1
'''


def test_keys_and_tables_have_their_lines():
    """Comments, texts of several lines, lists over lines, quoted and dotted names."""
    assert lines_of(TEXT) == {
        ("top",): 2,
        ("run",): 3,
        ("run", "env"): 4,
        ("run", "stop"): 5,
        ("run", "text"): 6,
        ("run", "raw"): 11,
        ("run", "sizes"): 13,
        ("run", "dotted"): 17,
        ("run", "dotted", "key"): 17,
        ("quoted.name",): 19,
        ("quoted.name", "b"): 19,
        ("quoted.name", "b", 'odd " key'): 20,
        ("quoted.name", "b", "literal"): 22,
        ("many",): 23,
        ("many", "z"): 24,
    }


@pytest.mark.parametrize("path", sorted(shipped_folder("launch").glob("*.toml")), ids=lambda path: path.name)
def test_every_key_of_the_shipped_files_has_a_line(path):
    """What tomllib reads and what the scanner sees are the same keys, inline tables aside."""
    text = path.read_text()
    lines = lines_of(text)
    for table, values in tomllib.loads(text).items():
        for name in values:
            assert name in text.splitlines()[lines[table, name] - 1]


@pytest.mark.parametrize(
    "text", ["", "\n", "# only", "a = 1", "a = '''", 'a = "', "[", "= =", "\r\na = 1\r\n", "[[["]
)
def test_no_text_hangs_the_scanner(text):
    """It is made for valid TOML, and comes to an end on anything."""
    assert all(1 <= line <= text.count("\n") + 1 for line in lines_of(text).values())


@pytest.mark.parametrize(
    ("text", "names"),
    [("a", ("a",)), ("a.b", ("a", "b")), ('a."b.c"', ("a", "b.c")), (" a . b ", ("a", "b"))],
)
def test_a_dotted_key_is_split_into_its_names(text, names):
    """As TOML reads it."""
    assert split_key(text) == names


@pytest.mark.parametrize("text", ["", ".", "a.", "a b", "a = 1\nb", "[a]\nb", "#"])
def test_what_is_no_key_is_refused(text):
    """So that a malformed override cannot become another key."""
    with pytest.raises(tomllib.TOMLDecodeError):
        split_key(text)
