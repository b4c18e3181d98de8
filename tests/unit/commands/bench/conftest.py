"""Where a script of tests/benchmarks finds what is beside it, for the tests of comparisons with peers."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
