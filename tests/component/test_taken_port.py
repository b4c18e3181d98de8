"""A tcp port that another process has: each component that binds ends at once and says so last."""

import socket
from contextlib import closing

import pytest

from tests.component.conftest import Run


@pytest.mark.parametrize(
    ("role", "channel"),
    [
        ("broker", "report"),
        ("critic_learner", "critic"),
        pytest.param("actor_learner", "policy", marks=pytest.mark.thorough),
    ],
)
def test_a_taken_port_is_the_last_word_of_who_needs_it(tmp_path, forked, role, channel):
    """Exit code 2, which nobody starts again; the report of a half-built learner does not hide the cause."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        with closing(Run(tmp_path / "run", [f"channels.{channel}.endpoint={endpoint}"])) as run:
            run.play(role)
            code, said = run.start().wait(60), run.logs().splitlines()
    assert said[-1].startswith(f"{role}: {endpoint} cannot be bound: another process has it; ")
    assert (code, [line for line in said if "Error" in line]) == (2, [])
