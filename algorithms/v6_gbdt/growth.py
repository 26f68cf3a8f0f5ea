"""The settings that say how trees are grown."""

from typing import Annotated, Literal

from pydantic import Field

from v6_federated import LARGE, Excludes, LearningRate, Number, Record

Mode = Literal["cyclic", "random", "histogram", "bagging"]
TreesARound = Annotated[
    int | None,
    Field(ge=1, le=1000, description="trees of a round, for each class (unset: 1; random: 10)"),
    Number,
]
NOT_RANDOM = Excludes(
    mode="random", because="its splits are drawn down to max_depth", instead="use max_depth in its place"
)
MaxLeaves = Annotated[int, Field(ge=2, le=4096, description="leaves of a tree at most"), Number, NOT_RANDOM]
MinRowsLeaf = Annotated[
    int,
    Field(ge=1, le=LARGE, description="rows in a leaf at least; not below a node's minimum of rows"),
    Number,
    NOT_RANDOM,
]
MaxDepth = Annotated[
    int | None,
    Field(ge=1, le=1000, description="splits above a leaf (unset: no limit; random: 6, 3 with clip; histogram: 5)"),
    Number,
]
LambdaL2 = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="lambda of the penalty on a leaf's output"), Number
]
Criterion = Annotated[
    Literal["newton", "variance"],
    Field(description="newton: splits by G^2 / (H + lambda); variance: by G^2 / rows"),
    NOT_RANDOM,
]


class Growth(Record):
    """How trees are grown."""

    trees: TreesARound = None
    lr: LearningRate = 0.1
    max_leaves: MaxLeaves = 31
    min_rows_leaf: MinRowsLeaf = 20
    max_depth: MaxDepth = None
    criterion: Criterion = "newton"
    lambda_l2: LambdaL2 = 1.0  # with LightGBM's 0, a node's leaf of small curvature can undo the other nodes' trees

    def of(self, mode: Mode, noisy: bool = False) -> "Growth":
        """Fill in what depends on the mode.

        Args:
            mode: the mode.
            noisy: whether nodes add noise to their sums, which leaves of many rows bear better.

        Returns:
            The settings with all numbers that the mode needs.
        """
        own = {"random": {"trees": 10, "max_depth": 3 if noisy else 6}, "histogram": {"trees": 1, "max_depth": 5}}
        unset = own.get(mode, {"trees": 1})
        return self.model_copy(update={name: value for name, value in unset.items() if getattr(self, name) is None})
