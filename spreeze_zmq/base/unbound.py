"""The environment of processes that may use all of their cores, whatever a cluster sets for other programs.

With ``OMP_PROC_BIND=true`` the OpenMP library keeps the thread that loads it, as by ``import torch``, on one
CPU, and with it all that this thread starts: the samplers of a run would share that CPU.
"""

from __future__ import annotations

import os

#: The variables by which OpenMP libraries bind threads to CPUs. A run's processes have theirs from it.
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def unbind() -> None:
    """Have no library that this process loads from now on, nor its children, bind threads."""
    for name in BINDING:
        os.environ.pop(name, None)


def unbound() -> dict[str, str]:
    """This process's environment, for a child whose libraries bind no thread."""
    return {name: value for name, value in os.environ.items() if name not in BINDING}
