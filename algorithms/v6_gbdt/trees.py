"""An ensemble of boosted trees as one array, and as LightGBM's text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated import SafeError, models

FEATURE, VALUE, GAIN = 0, 1, 2
LEAF = -1
MOST_PAIRS = 1 << 15  # of a tree and a row, that are worked on at a time: few enough for a processor's cache
LEAST_PAIRS = 64  # that are worked on, even if they have arrived
MOST_RATE = 2.0  # of the trees of a round together; more are said to be many
EVERY = np.finfo(np.float32).max  # threshold of a split of missing values from all others


class Trees:
    """An ensemble of trees, whose scores f(x) are the sums of the trees' outputs.

    There is one column of scores for two classes, otherwise one for each class; for one "class", a regression, the
    score is the prediction itself.

    The ensemble w is an array (m, 3) float32 with a row for each split and leaf, tree after tree, a split before its
    left subtree, and that before its right one:
      a split: the feature's index, the threshold (left if x <= threshold), the gain to two digits, which is negative,
      or minus zero, if missing values go right;
      a leaf: -1, its output, and 0; or above 0 the weight of the vote of its round's trees. They then vote for the
      class of their largest output, and outputs are not added up (Garst 2021, Appendix B).
    So an array can be read in one way only, as whole trees; tree t belongs to column t mod ``columns``. What else
    LightGBM knows of a node's rows, counts and sums of weights for each leaf and split, is not in it.

    The loss is logistic for two classes, the cross-entropy of the softmax for more, the squared error for a regression.

    Args:
        features: number of features, d.
        classes: number of classes; 1 for a regression.
    """

    size = None  # it grows
    class_weights: np.ndarray | None = None  # (classes,), by which training multiplies the losses of rows

    def __init__(self, features: int, classes: int) -> None:
        self.features, self.classes = features, classes
        self.regression = classes == 1
        # squared errors of chosen trees tell single rows, whatever sum they are in
        self.traits = models.Traits(
            regression=self.regression, plain_only=self.regression, takes_missing=True, row_by_row=True
        )
        self.columns = 1 if classes == 2 else classes

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Return an ensemble without trees, (0, 3): all scores are 0."""
        return np.empty((0, 3), np.float32)

    def asarray(self, array: np.ndarray) -> np.ndarray:
        """Return the array as it is: trees are numpy's."""
        return array

    def seed(self, rng: np.random.Generator) -> None:
        """Nothing inside is random."""

    def gradient(self, scores: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Differentiate each row's loss by its scores.

        Args:
            scores: f of each row (n, columns).
            y: indices of classes, or numbers (n,).

        Returns:
            First and second derivatives, (n, columns) each. The second have LightGBM's factor c / (c - 1) for c > 2
            classes. For a regression the loss is (f - y)^2 / 2.
        """
        if self.regression:
            return scores - y[:, None], np.ones_like(scores)
        if self.columns == 1:
            p, target = 1 / (1 + np.exp(-scores)), y[:, None]
            g, h = p - target, p * (1 - p)
        else:
            e = np.exp(scores - scores.max(axis=1, keepdims=True))
            p = e / e.sum(axis=1, keepdims=True)
            g = p - (y[:, None] == np.arange(self.classes))
            h = self.classes / (self.classes - 1) * p * (1 - p)
        if self.class_weights is None:
            return g, h
        weights = self.class_weights[y][:, None]
        return g * weights, h * weights

    def loss(self, scores: np.ndarray, y: np.ndarray) -> float:
        """Compute the mean loss.

        Args:
            scores: f of each row (n, columns).
            y: indices of classes, or numbers (n,).

        Returns:
            The loss.
        """
        if self.regression:
            return float(np.mean((scores[:, 0] - y) ** 2))
        return models.LinearModel("logistic", self.features, self.classes).loss(scores, y)

    def losses(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Compute the loss of each row (n,)."""
        if self.regression:
            return (scores[:, 0] - y) ** 2
        return models.LinearModel("logistic", self.features, self.classes).losses(scores, y)

    def scores(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Compute what predicts each row's class: f, or the logarithms of the votes' shares where trees vote.

        Args:
            w: the ensemble (m, 3).
            X: rows (n, d).

        Returns:
            The scores, (n, columns) float64.
        """
        votes = self._votes(w)
        if votes is None:
            return self.sums(w, X)
        found = np.full((len(X), self.classes), votes.mean() / 2)  # half a vote for each class
        rows = np.arange(len(X))
        for outputs, weight in zip(self._outputs(w, X), votes, strict=True):
            chosen = outputs[0] > 0 if self.columns == 1 else outputs.argmax(axis=0)
            found[rows, chosen.astype(np.intp)] += weight
        logs = np.log(found)
        return logs[:, 1:] - logs[:, :1] if self.columns == 1 else logs

    def sums(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Compute f of each row, the sum of all trees' outputs, which new trees improve on.

        Args:
            w: the ensemble (m, 3).
            X: rows (n, d).

        Returns:
            f, (n, columns) float64.
        """
        f = np.zeros((self.columns, len(X)))
        for outputs in self._outputs(w, X):
            f += outputs
        return f.T

    def _outputs(self, w: np.ndarray, X: np.ndarray) -> Iterator[np.ndarray]:
        """The outputs of each round's trees for each row, (columns, n)."""
        trees = self.split(w)
        several = max(1, MOST_PAIRS // max(1, len(X)) // self.columns) * self.columns  # worked on at a time
        for begin in range(0, len(trees), several):
            found = outputs_of(trees[begin : begin + several], X.astype(np.float32))
            yield from found.reshape(-1, self.columns, len(X))

    def scores_alone(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Compute the same: a tree sorts each row by itself."""
        return self.scores(w, X)

    def _votes(self, w: np.ndarray) -> np.ndarray | None:
        """The weight of the vote of each round's trees; None if outputs are added up."""
        if w.ndim != 2 or w.shape[1] != 3:  # ``split`` says what is wrong
            return None
        if not w.size or not w[w[:, FEATURE] == LEAF, GAIN].any():
            return None
        first = [tree[tree[:, FEATURE] == LEAF, GAIN][0] for tree in self.split(w)[:: self.columns]]
        votes = np.array(first, np.float64)
        if not ((votes > 0) & (votes < np.inf)).all():  # or a class could have no votes, whose logarithm is infinite
            raise SafeError("trees that vote with a weight of 0 or less; expected an accuracy of each round")
        return votes

    def predict(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Predict the label of each row.

        Args:
            w: the ensemble (m, 3).
            X: rows (n, d).

        Returns:
            Indices of classes (n,); for a regression the predicted numbers (n,).
        """
        scores = self.scores(w, X)
        return scores[:, 0] if self.regression else models.predicted(scores)

    def split(self, w: np.ndarray) -> list[np.ndarray]:
        """Cut an ensemble into its trees.

        Args:
            w: the ensemble (m, 3).

        Returns:
            The trees, each (m_t, 3).

        Raises:
            SafeError: the array is no ensemble of whole trees.
        """
        if w.ndim != 2 or w.shape[1] != 3:
            raise SafeError(f"an ensemble of shape {w.shape}; expected (rows, 3)")
        feature = w[:, FEATURE]
        if not np.isin(feature, np.arange(LEAF, self.features)).all():
            raise SafeError(f"an ensemble that splits by other features than the {self.features} of the data")
        # each tree has one leaf more than it has splits, and ends where that first comes true
        balance = np.where(feature == LEAF, -1, 1).cumsum()
        before = np.minimum.accumulate(np.append(0, balance[:-1]))
        ends = np.flatnonzero(balance < before) + 1
        if len(w) and (not len(ends) or ends[-1] < len(w)):
            raise SafeError("an ensemble that ends within a tree; expected whole trees")
        if len(ends) % self.columns:
            raise SafeError(f"an ensemble of {len(ends)} trees; expected a multiple of {self.columns}, one a class")
        return np.split(w, ends[:-1]) if len(w) else []

    def importance(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sum up the splits of each feature.

        Args:
            w: the ensemble (m, 3).

        Returns:
            How often each feature splits, and the total gain of its splits, (d,) each.
        """
        splits = w[w[:, FEATURE] != LEAF]
        index = splits[:, FEATURE].astype(np.int64)
        return (
            np.bincount(index, minlength=self.features),
            np.bincount(index, np.abs(splits[:, GAIN]), minlength=self.features),
        )

    def diagnostics(self, w: np.ndarray, settings: Mapping[str, Any]) -> list[str]:
        """Say what a user should know: that no tree has a split, or that steps of many trees are too large.

        Args:
            w: the ensemble (m, 3).
            settings: of the job.

        Returns:
            Lines of text; none if there is nothing to say.
        """
        if settings.get("mode") == "random":
            return _of_rate(settings)
        if not w.size or (w[:, FEATURE] != LEAF).any():
            return []
        least = settings["min_rows_leaf"]
        return [
            f"no tree has a split: with min_rows_leaf={least} a node needs {2 * least} training rows or more, and a "
            "feature that varies among them; try a smaller min_rows_leaf"
        ]

    def text(self, w: np.ndarray, names: Sequence[str] | None = None) -> str:
        """Write an ensemble as LightGBM's model file (version v4).

        Args:
            w: the ensemble (m, 3).
            names: of the features, if they are known.

        Returns:
            The file's text.
        """
        if self._votes(w) is not None:
            raise SafeError("LightGBM's .txt cannot hold trees that vote; expected .npz or .safetensors")
        objective = {1: "regression", 2: "binary sigmoid:1"}.get(self.classes, f"multiclass num_class:{self.classes}")
        trees = [f"Tree={t}\n{_block(tree)}\n\n\n" for t, tree in enumerate(self.split(w))]
        head = {
            "version": "v4",
            "num_class": self.columns,
            "num_tree_per_iteration": self.columns,
            "label_index": 0,
            "max_feature_idx": self.features - 1,
            "objective": objective,
            "feature_names": " ".join(_names(names or [f"Column_{i}" for i in range(self.features)])),
            "feature_infos": " ".join(["none"] * self.features),  # LightGBM's own would hold least and largest values
            "tree_sizes": " ".join(str(len(tree)) for tree in trees),
        }
        lines = "\n".join(f"{key}={value}" for key, value in head.items())
        return f"tree\n{lines}\n\n{''.join(trees)}end of trees\n"


def ends(w: np.ndarray) -> np.ndarray:
    """Find where the subtree that begins in each row ends. So the right one of a split i begins at ``ends(w)[i + 1]``.

    Args:
        w: the ensemble (m, 3).

    Returns:
        The number of the first row behind each subtree (m,).
    """
    m, step = len(w), np.where(w[:, FEATURE] == LEAF, -1, 1)
    # it ends where the splits less the leaves so far are first one fewer than before it
    balance = step.cumsum() + m
    key = balance * (m + 1) + np.arange(m)
    order = np.argsort(key)
    return order[np.searchsorted(key[order], (balance - step - 1) * (m + 1) + np.arange(m))] + 1


def paths(w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Find where rows go that go down trees.

    So many steps are taken as there are splits above the deepest leaf, even if all rows have arrived: otherwise time
    would tell how deep a single row goes. A row that has arrived stays.

    Args:
        w: the ensemble (m, 3).

    Returns:
        For each row of the ensemble whether it is a leaf, the column that it compares (0 for a leaf), and where rows go
        that go left and right, (m,) each; and the number of steps.
    """
    m, is_leaf, behind = len(w), w[:, FEATURE] == LEAF, ends(w)
    here = np.arange(m)
    right = np.where(is_leaf, here, np.append(behind[1:], 0))
    begun = np.bincount(here[~is_leaf] + 1, minlength=m + 1)
    depth = (begun - np.bincount(behind[~is_leaf], minlength=m + 1)).cumsum().max()
    column = np.where(is_leaf, 0, w[:, FEATURE]).astype(np.intp)
    return is_leaf, column, np.where(is_leaf, here, here + 1), right, int(depth)


def on_the_way(arrived: np.ndarray) -> np.ndarray:
    """Choose the pairs of a row and a tree that go on: time must not tell whether it is one or none.

    Args:
        arrived: whether each pair has arrived at a leaf (p,).

    Returns:
        The indices of those that have not, filled up to ``LEAST_PAIRS`` with some that have.
    """
    going, others = np.flatnonzero(~arrived), np.flatnonzero(arrived)
    return np.append(going, others[: max(0, LEAST_PAIRS - len(going))])


def outputs_of(trees: Sequence[np.ndarray], X: np.ndarray) -> np.ndarray:
    """Compute the output of each tree for each row.

    Args:
        trees: the trees.
        X: rows (n, d), float32.

    Returns:
        The outputs (trees, n), float32.
    """
    w, roots = np.concatenate(trees), np.cumsum([0, *map(len, trees[:-1])])
    is_leaf, column, left, right, depth = paths(w)
    value, missing_left = w[:, VALUE], ~np.signbit(w[:, GAIN])
    values, at = X.ravel(), np.repeat(roots, len(X))
    todo = np.arange(len(at))  # pairs of a tree and a row
    row, here = todo % len(X) * X.shape[1], at
    for _ in range(depth):
        x = values[row + column[here]]
        goes_left = x <= value[here]
        gone = np.flatnonzero(np.isnan(x))
        goes_left[gone] = missing_left[here[gone]]
        here = at[todo] = np.where(goes_left, left[here], right[here])
        going = on_the_way(is_leaf[here])
        todo, row, here = todo[going], row[going], here[going]
    return value[at].reshape(len(trees), len(X))


def _of_rate(settings: Mapping[str, Any]) -> list[str]:
    """Trees of one round have the same gradient, so that their steps add up."""
    trees = settings.get("trees") or 10
    if trees * settings["lr"] <= MOST_RATE:
        return []
    return [
        f"trees={trees} of a round step in the same direction, lr={settings['lr']:g} each; more than {MOST_RATE:g} in "
        f"all is often too far: try lr={float(f'{1 / trees:.2g}'):g}"
    ]


def _block(tree: np.ndarray) -> str:
    """One tree in LightGBM's text: splits numbered from 0, leaves from -1 down."""
    split = tree[:, FEATURE] != LEAF
    left, right = ([0] * int(split.sum()) for _ in range(2))
    open_: list[tuple[list[int], int]] = []  # children that are still to come, the next one last
    splits = leaves = 0
    for is_split in split:
        number = splits if is_split else ~leaves
        if open_:
            children, parent = open_.pop()
            children[parent] = number
        if is_split:
            open_ += [(right, splits), (left, splits)]
            splits += 1
        else:
            leaves += 1
    fields: dict[str, Iterator[Any] | list[Any]] = {}
    if splits:
        fields = {
            "split_feature": map(int, tree[split, FEATURE]),
            "split_gain": map(float, np.abs(tree[split, GAIN])),
            "threshold": map(float, _widest(tree[split, VALUE])),
            # numerical, NaN is missing (8) and goes left (2)
            "decision_type": [8 if right else 10 for right in np.signbit(tree[split, GAIN])],
            "left_child": left,
            "right_child": right,
        }
    fields["leaf_value"] = map(float, tree[~split, VALUE])
    lines = [f"{key}={' '.join(map(repr, values))}" for key, values in fields.items()]
    return "\n".join([f"num_leaves={leaves}", "num_cat=0", *lines, "is_linear=0", "shrinkage=1"])


def _widest(t: np.ndarray) -> np.ndarray:
    """The largest float64 that does not exceed a float32 threshold once it is rounded.

    Nodes compare float32 values, LightGBM the values that it is given.
    """
    with np.errstate(over="ignore"):  # after the largest float32, ``EVERY``, comes infinity
        low, high = t.astype(np.float64), np.nextafter(t, np.float32(np.inf)).astype(np.float64)
        middle = (low + high) / 2
        return np.where(middle.astype(np.float32) > t, np.nextafter(middle, -np.inf), middle)


def _names(names: Sequence[str]) -> Iterator[str]:
    """Names that LightGBM can read: without spaces and characters of JSON, each once."""
    seen: set[str] = set()
    for i, name in enumerate(names):
        plain = re.sub(r"[^\w.-]", "_", name)
        while plain in seen:
            plain += f"_{i}"
        seen.add(plain)
        yield plain


models.register("trees", Trees)
