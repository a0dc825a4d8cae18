"""Which rank of a `torchrun` job this process is, from the variables that torchrun sets; importable without torch."""

from __future__ import annotations

import os
from dataclasses import dataclass

_WORLD, _LOCAL_WORLD = "WORLD_SIZE", "LOCAL_WORLD_SIZE"  # the second is torchrun's own: no cluster's shell sets it


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One process of a job; a process that torchrun did not start is the first of one."""

    number: int = 0  # 0 to world - 1
    world: int = 1  # processes in the job
    local: int = 0  # 0 to local_world - 1: this machine's processes
    local_world: int = 1

    @property
    def is_first(self) -> bool:
        """True on the rank that writes and says what is written and said once."""
        return self.number == 0

    def share_of(self, slots: int) -> int:
        """This rank's part of a machine's `slots`: as even as can be, at least one."""
        return max(1, slots // self.local_world + (self.local < slots % self.local_world))

    def machine_slots(self, slots: int) -> int:
        """The scripts that run at once on a machine when each of its ranks takes its `share_of(slots)`."""
        return max(slots, self.local_world)

    def job_slots(self, slots: int) -> int:
        """The same over all of the job's machines, which have equally many ranks."""
        return self.machine_slots(slots) * (self.world // self.local_world)


def this_rank() -> Rank:
    """This process's place in its job."""
    if _LOCAL_WORLD not in os.environ:
        return Rank()
    return Rank(
        number=int(os.environ["RANK"]),
        world=int(os.environ[_WORLD]),
        local=int(os.environ["LOCAL_RANK"]),
        local_world=int(os.environ[_LOCAL_WORLD]),
    )
