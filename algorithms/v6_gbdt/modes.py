"""A round of boosted trees: whom central asks for what, and which trees follow from the answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated import Answer, Answers, Federation, SafeError
from v6_gbdt import bins, leaves, structures
from v6_gbdt.growth import Growth
from v6_gbdt.trees import EVERY, FEATURE, GAIN, LEAF, VALUE, Trees


@dataclass(frozen=True)
class Booster:
    """What the rounds of a job have in common.

    Attributes:
        federation: the nodes.
        ensemble: the kind of ensemble.
        edges: the agreed edges, a payload.
        growth: how trees are grown, with all numbers that the mode needs.
    """

    federation: Federation
    ensemble: Trees
    edges: dict[str, Any]
    growth: Growth

    @property
    def least(self) -> int:
        """Rows that a leaf or a bin must have over all hospitals, unless it has none; 0 if nodes see to it."""
        return self.federation.least_rows

    @property
    def agreed(self) -> list[np.ndarray]:
        """The agreed edges of each column."""
        return bins.decoded(self.edges, self.ensemble.features)

    def cyclic(self, r: int, W_g: np.ndarray) -> tuple[Answers, np.ndarray]:
        """Ask the node whose turn it is for its trees: Zhao et al. 2018; Garst 2021, Algorithm 2.

        Args:
            r: the round.
            W_g: the ensemble (m, 3).

        Returns:
            The answer, and the new trees (m', 3).
        """
        organizations = self.federation.organizations
        answers = self._grown([organizations[(r - 1) % len(organizations)]], W_g)
        (answer,) = answers.each()
        return answers, answer["trees"]

    def _grown(self, organizations: Sequence[int], W_g: np.ndarray) -> Answers:
        """Trees of the nodes' own."""
        growth = self.growth
        assert growth.trees is not None
        most = growth.trees * self.ensemble.columns * (2 * growth.max_leaves - 1)  # rows of a node's trees
        return self.federation.ask(
            "grow",
            organizations,
            weights=W_g,
            edges=self.edges,
            growth=growth,
            returns={"trees": (range(1, most + 1), 3)},
            validate=lambda answer: wrong_trees(self.ensemble, self.agreed, growth, answer),
            measures={"trees": outputs},
        )

    def random(self, r: int, W_g: np.ndarray) -> tuple[Answers, np.ndarray]:
        """Draw trees without looking at rows, and ask all nodes for sums by leaf: Maddock et al. 2022.

        Args:
            r: the round.
            W_g: the ensemble (m, 3).

        Returns:
            The answers, and the new trees (m', 3).
        """
        trees, depth = self.growth.trees, self.growth.max_depth
        assert trees is not None and depth is not None
        rng = self.federation.generator("structure")
        structure = structures.drawn(rng, self.agreed, depth, trees * self.ensemble.columns)
        return self._filled(structure, W_g) if self.federation.plan is None else self._filled_with_noise(structure, W_g)

    def bagging(self, r: int, W_g: np.ndarray) -> tuple[Answers, np.ndarray]:
        """Ask all nodes for trees of their own, whose outputs count by their share of the rows.

        Args:
            r: the round.
            W_g: the ensemble (m, 3).

        Returns:
            The answers, and the new trees (m', 3).
        """
        answers = self._grown(self.federation.organizations, W_g)
        trees = []
        for answer in answers.each():
            own = answer["trees"].copy()
            own[own[:, FEATURE] == LEAF, VALUE] *= np.float32(answer.n / answers.n)
            trees.append(own)
        return answers, np.concatenate(trees)

    def histogram(self, r: int, W_g: np.ndarray) -> tuple[Answers, np.ndarray]:
        """Grow the tree of the pooled rows, a request a level, from sums by bin over all nodes.

        Args:
            r: the round.
            W_g: the ensemble (m, 3).

        Returns:
            The answers, and the new trees (m', 3).
        """
        growth, edges = self.growth, self.agreed
        assert growth.max_depth is not None
        trees = [structures.Branch() for _ in range(self.ensemble.columns)]
        shape = len(edges), leaves.bins_of(edges) + 1
        asked = []
        for _ in range(growth.max_depth):
            opened = [leaf for tree in trees for leaf in tree.leaves() if leaf.is_open]
            if not opened:
                break
            structure = structures.of_branches(trees, edges)
            answers = self._summed("bin_sums", structure, W_g, 3, len(opened) * shape[0] * shape[1])
            asked.append(answers)
            sums = self._total(answers).reshape(3, len(opened), *shape)
            if self.least:
                sums = leaves.folded(sums, self.least)
            splits = structures.best_splits(sums, edges, growth)
            for leaf, split in zip(opened, splits, strict=True):
                leaf.grow(split)
        for tree in trees:
            tree.prune(growth.max_leaves)
        answers, filled = self._filled(structures.of_branches(trees, edges), W_g)
        return sum(asked, answers), filled

    def _filled(self, structure: np.ndarray, W_g: np.ndarray) -> tuple[Answers, np.ndarray]:
        """Trees of a structure with outputs that follow from sums over all nodes, and the answers."""
        answers = self._summed("leaf_sums", structure, W_g, 2, int(np.count_nonzero(structure[:, FEATURE] == LEAF)))
        G, H = np.split(self._total(answers), 2)
        if self.least:
            G, H, _ = leaves.joined(structure, G, H, answers.whole_sum("rows"), self.least)
        return answers, structures.filled(structure, G, H, self.growth.lr, self.growth.lambda_l2)

    def _filled_with_noise(self, structure: np.ndarray, W_g: np.ndarray) -> tuple[Answers, np.ndarray]:
        """The same from sums with noise."""
        federation, plan, growth = self.federation, self.federation.plan, self.growth
        assert plan is not None and growth.trees is not None
        answers = federation.ask(
            "noisy_leaf_sums",
            federation.organizations,
            weights=W_g,
            structure=structure,
        )
        G, H = leaves.of_clipped(federation.noisy_sum(answers, "sums"), plan.clip)
        deviation = plan.statistics_noise * federation.noises(answers) ** 0.5 * plan.clip * growth.trees**0.5
        return answers, structures.filled(structure, G, H, growth.lr, growth.lambda_l2 + deviation)

    def _summed(self, function: str, structure: np.ndarray, W_g: np.ndarray, kinds: int, size: int) -> Answers:
        """Sums of derivatives at all nodes, of some kinds."""
        return self.federation.ask(
            function,
            self.federation.organizations,
            weights=W_g,
            structure=structure,
            edges=self.edges,
            validate=lambda answer: wrong_sums(answer, size),
            measures={"sums": lambda answer: answer["sums"] / answer.n},
        )

    def _total(self, answers: Answers) -> np.ndarray:
        """The sums over all nodes, float64."""
        return answers.exact_sum("sums") if self._sized else answers.whole_sum("sums") * leaves.UNIT

    @property
    def _sized(self) -> bool:
        """Whether sums can be of any size, as a regression's can."""
        return self.ensemble.regression

    def round_of(self, mode: str) -> Callable[[int, np.ndarray], tuple[Answers, np.ndarray]]:
        """The function of a mode.

        Args:
            mode: its name.
        """
        return {
            "cyclic": self.cyclic,
            "random": self.random,
            "histogram": self.histogram,
            "bagging": self.bagging,
        }[mode]


def wrong_sums(answer: Answer, size: int) -> str | None:
    """Check the sums in a node's answer to ``leaf_sums`` or ``bin_sums``.

    Args:
        answer: the node's answer.
        size: how many of the sums are of first derivatives, which alone may be negative.

    Returns:
        What is wrong with them; None if nothing is.
    """
    if (answer["sums"][size:] < 0).any():
        return "sent negative sums of second derivatives or rows; expected numbers from 0"
    return None


def outputs(answer: Answer) -> np.ndarray:
    """Select what is compared of the nodes' trees: the root of the mean square of their leaves' outputs.

    Args:
        answer: a node's answer to ``grow``.

    Returns:
        The outputs, divided by the root of their number.
    """
    trees = answer["trees"]
    leaves = trees[trees[:, FEATURE] == LEAF, VALUE].astype(np.float64)
    return leaves / np.sqrt(len(leaves))


def wrong_trees(ensemble: Trees, edges: Sequence[np.ndarray], growth: Growth, answer: Answer) -> str | None:
    """Check the trees in a node's answer to ``grow``.

    Args:
        ensemble: the kind of ensemble that they are to be part of.
        edges: the agreed edges of each column.
        growth: how the node was asked to grow them.
        answer: the node's answer.

    Returns:
        What is wrong with them; None if nothing is.
    """
    try:
        grown = ensemble.split(answer["trees"])
    except SafeError as error:
        return f"sends no trees: {error}"
    assert growth.trees is not None
    expected = growth.trees * ensemble.columns
    if len(grown) != expected or max(map(len, grown)) > 2 * growth.max_leaves - 1:
        return f"sends other trees than asked for; expected {expected} of at most {growth.max_leaves} leaves"
    if answer["trees"][answer["trees"][:, FEATURE] == LEAF, GAIN].any():
        return "sends leaves with a weight of votes, which central alone gives; expected 0"
    for row in answer["trees"]:
        if row[FEATURE] != LEAF and row[VALUE] != EVERY and row[VALUE] not in edges[int(row[FEATURE])]:
            return "sends a threshold that is not an agreed bin edge; expected one of them"
    return None
