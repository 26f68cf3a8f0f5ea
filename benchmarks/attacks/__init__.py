"""``python -m benchmarks attacks``: what a dishonest researcher gets from a node, by attack and by profile.

Each attack really runs, through the functions that methods export, against mock nodes. What it claims to have recovered
is compared with the true table. ``docs/privacy.md`` shows the table.
"""

from benchmarks.attacks.registry import ATTACKS, COLUMNS, Attack, cell, main, outcome
from benchmarks.attacks.researcher import Outcome, Refused, Researcher, hospitals

__all__ = ["ATTACKS", "COLUMNS", "Attack", "Outcome", "Refused", "Researcher", "cell", "hospitals", "main", "outcome"]
