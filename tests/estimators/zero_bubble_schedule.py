"""Brute force for schedules that fill bubbles: the passes of each rank in order, run one by one.

Orders are those of the sources: ZB-H1 and ZB-H2 of arXiv 2401.10241 figure 3, ZBV as PyTorch
torch/distributed/pipelining/schedules.py `ScheduleZBVZeroBubble` has it, DualPipe and its V of
deepseek-ai/DualPipe @3da1bbe dualpipe/dualpipe.py and dualpipev.py (`step`).
"""

from __future__ import annotations

Pass = tuple[str, int, int, int]
"""F, B (gradient of the input) or W (of the weights); direction, stage and microbatch."""

Program = list[list[Pass]]
"""Passes that a rank runs together, in order."""


class Rank:
    """A rank that writes its program.

    Parameters
    ----------
    stages
        Direction and stage of each of its two phases.
    """

    def __init__(self, stages: dict[int, tuple[int, int]], num_microbatches: int) -> None:
        self.stages, self.limit = stages, num_microbatches
        self.done = {(kind, phase): 0 for kind in "FBW" for phase in (0, 1)}
        self.later: list[Pass] = []
        self.program: Program = []

    def next(self, kind: str, phase: int) -> list[Pass]:
        number = self.done[kind, phase]
        self.done[kind, phase] += 1
        return [(kind, *self.stages[phase], number)] if number < self.limit else []

    def run(self, *kinds: tuple[str, int]) -> None:
        together = [one for kind, phase in kinds for one in self.next(kind, phase)]
        if together:
            self.program.append(together)

    def back(self, phase: int, *, leaves_weights: bool = False) -> None:
        """Run a whole pass backward, or leave the gradients of weights for later."""
        if not leaves_weights:
            self.run(("B", phase), ("W", phase))
            return
        self.run(("B", phase))
        self.later += self.next("W", phase)

    def weights(self) -> None:
        if self.later:
            self.program.append([self.later.pop(0)])


def zb_h(ranks: int, num_microbatches: int, *, warm: int, delay: int) -> list[Program]:
    """Return ZB-H1 (`warm` and `delay` 1) or ZB-H2 (2)."""
    programs = []
    for rank in range(ranks):
        own = Rank({0: (0, rank)}, num_microbatches)
        for _ in range(min(warm * (ranks - rank - 1), num_microbatches)):
            own.run(("F", 0))
        for number in range(num_microbatches):
            own.run(("F", 0))
            own.run(("B", 0))
            if number >= delay * rank:
                own.run(("W", 0))
        for _ in range(num_microbatches):
            own.run(("W", 0))
        programs.append(own.program)
    return programs


def zbv(ranks: int, num_microbatches: int) -> list[Program]:
    programs = []
    for rank in range(ranks):
        own = Rank({0: (0, rank), 1: (0, 2 * ranks - 1 - rank)}, num_microbatches)
        for _ in range(2 * (ranks - rank) - 1):
            own.run(("F", 0))
        for _ in range(rank):
            own.run(("F", 1))
            own.run(("F", 0))
        for _ in range(ranks - rank):
            own.run(("F", 1))
            own.run(("B", 1))
            own.run(("W", 1))
        while own.done["F", 1] < min(own.done["F", 0], num_microbatches) or (
            own.done["F", 0] < num_microbatches
        ):
            own.run(("F", 0))
            for phase in (0, 1):
                if phase:
                    own.run(("F", 1))
                own.run(("B", phase))
                own.run(("W", phase))
        for _ in range(rank):
            own.run(("B", 0))
            own.run(("B", 1))
        for _ in range(ranks - rank):
            own.run(("B", 0))
            own.run(("W", 0))
        for phase in (1, 0):
            while own.done["W", phase] < own.done["B", phase]:
                own.run(("W", phase))
        programs.append(own.program)
    return programs


def dualpipe(ranks: int, num_microbatches: int) -> list[Program]:
    """Return DualPipe: half of the microbatches enter at either end."""
    half, programs = ranks // 2, []
    for rank in range(ranks):
        near, far = (0, rank), (1, ranks - 1 - rank)
        stages = {0: near, 1: far} if rank < half else {0: far, 1: near}
        own = Rank(stages, num_microbatches // 2)
        place = min(rank, ranks - 1 - rank)
        _dual(own, half - place - 1, place, num_microbatches // 2 - ranks + place + 1, half)
        programs.append(own.program)
    return programs


def dualpipev(ranks: int, num_microbatches: int) -> list[Program]:
    programs = []
    for rank in range(ranks):
        own = Rank({0: (0, rank), 1: (0, 2 * ranks - 1 - rank)}, num_microbatches)
        _dual(own, ranks - rank - 1, rank, num_microbatches - 2 * ranks + rank + 1, ranks)
        programs.append(own.program)
    return programs


def _dual(own: Rank, ahead: int, place: int, steady: int, half: int) -> None:
    """Write the eight steps of both programs."""
    for _ in range(2 * ahead):
        own.run(("F", 0))
    for _ in range(place + 1):
        own.run(("F", 0))
        own.run(("F", 1))
    for _ in range(ahead):
        own.back(1, leaves_weights=True)
        own.weights()
        own.run(("F", 1))
    for number in range(steady):
        if number == 0 and place == half - 1:
            own.run(("F", 0))
            own.back(1)
        else:
            own.run(("F", 0), ("B", 1), ("W", 1))
        own.run(("F", 1), ("B", 0), ("W", 0))
    for _ in range(ahead):
        own.back(1)
        own.run(("F", 1), ("B", 0), ("W", 0))
    leaves = False
    for number in range(place + 1):
        if number == (place + 1) // 2 and place % 2 == 1:
            leaves = True
        own.back(1, leaves_weights=leaves)
        if number == (place + 1) // 2 and place % 2 == 0:
            leaves = True
        own.back(0, leaves_weights=leaves)
    for _ in range(ahead):
        own.weights()
        own.back(0, leaves_weights=True)
    while own.later:
        own.weights()


def spans(programs: list[Program], stages: int, seconds: dict[str, float]) -> list[float]:
    """Return how long each rank takes from its first pass to its last."""
    end: dict[Pass, float] = {}
    place, clock = [0] * len(programs), [0.0] * len(programs)
    begin: list[float | None] = [None] * len(programs)
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while place[rank] < len(program):
                together = program[place[rank]]
                needed = {each for one in together for each in _needs(one, stages)} - set(together)
                if any(each not in end for each in needed):
                    break
                now = max([clock[rank], *(end[each] for each in needed)])
                if begin[rank] is None:
                    begin[rank] = now
                clock[rank] = now + sum(seconds[one[0]] for one in together)
                end |= dict.fromkeys(together, clock[rank])
                place[rank] += 1
                moved = True
    assert place == [len(program) for program in programs], "every rank waits for another"
    return [last - (first or 0.0) for first, last in zip(begin, clock, strict=True)]


def _needs(one: Pass, stages: int) -> list[Pass]:
    kind, direction, stage, number = one
    if kind == "F":
        return [("F", direction, stage - 1, number)] if stage else []
    if kind == "W":
        return [("B", direction, stage, number)]
    if stage == stages - 1:
        return [("F", direction, stage, number)]
    return [("B", direction, stage + 1, number)]
