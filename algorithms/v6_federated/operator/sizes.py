"""What the size of a study's blocks costs: how often a block is whole, and whether jobs reach their last round."""

import math
from collections.abc import Sequence
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.central.tolerance import OF_BLOCKS
from v6_federated.masks.notation import MOST_HOSPITALS
from v6_federated.operator.command_line import Found, prints
from v6_federated.operator.options import SizesOptions

SIZES = (3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)


@prints
def sizes(options: SizesOptions) -> Found:
    """Compare sizes of blocks."""
    if not 3 <= options.hospitals <= MOST_HOSPITALS * MOST_HOSPITALS:
        raise SafeError(f"--hospitals {options.hospitals} is out of range; expected 3 to {MOST_HOSPITALS**2}")
    if not 0 <= options.misses < 1:
        raise SafeError(f"--misses {options.misses:g} is no share; expected 0 to below 1, for example 0.03")
    if options.rounds < 1:
        raise SafeError(f"--rounds {options.rounds} is too few; expected at least 1")
    found = [row(options, size) for size in SIZES if size <= options.hospitals]
    lines = [
        f"{options.hospitals} hospitals, each of which misses {options.misses:.3g} of the rounds; a job has "
        f"{options.rounds} rounds, each of which needs {OF_BLOCKS:g} of the blocks",
        "block  blocks  a block is whole  needed  jobs that reach their last round, back when asked again, all needed",
    ]
    lines += [
        f"{r['size']:5}  {r['blocks']:6}  {r['whole']:16.1%}  {r['needed']:6}  {r['jobs']:35.1%}, {r['again']:21.1%}, "
        f"{r['all']:10.1%}"
        for r in found
    ]
    lines.append("hospitals of a block that is not whole do not count in that round; larger blocks tell less of each")
    return Found(lines, {"hospitals": options.hospitals, "sizes": found})


def row(options: SizesOptions, size: int) -> dict[str, Any]:
    """What blocks of one size cost. Hospitals miss independently, each in a share of the rounds."""
    blocks = options.hospitals // size
    sizes = [options.hospitals * (i + 1) // blocks - options.hospitals * i // blocks for i in range(blocks)]
    needed = math.ceil(OF_BLOCKS * blocks - 1e-9)

    def finish(misses: float, least: int) -> float:
        return enough([(1 - misses) ** own for own in sizes], least) ** options.rounds

    return {
        "size": size,
        "blocks": blocks,
        "whole": (1 - options.misses) ** sizes[0],
        "needed": needed,
        "jobs": finish(options.misses, needed),
        "again": finish(options.misses**2, needed),
        "all": finish(options.misses, blocks),
    }


def enough(whole: Sequence[float], least: int) -> float:
    """How likely it is that some number of blocks is whole."""
    of_number = [1.0]
    for p in whole:
        of_number = [(1 - p) * a + p * b for a, b in zip([*of_number, 0.0], [0.0, *of_number], strict=True)]
    return min(sum(of_number[least:]), 1.0)
