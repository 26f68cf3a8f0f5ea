"""What a task asks nodes for, as nodes and central read it alike: the layout of the sum follows from public values."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from v6_federated import models
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.masks.summands import Additive, Count, Declaration, Item, Layout, each
from v6_federated.messages.job import Job
from v6_federated.models import Model, metrics
from v6_federated.models.alone import alone, summing


@dataclass(frozen=True)
class Asked:
    """What a task says, as far as the layout of its sum follows from it. No row decides any of it.

    Attributes:
        job: what central tells all nodes.
        settings: the function's settings, as they were sent.
        arrays: the arrays that were sent.
        evaluates: whether the model is evaluated.
        bands: in how many bands the evaluation counts scores; 0 means that it counts none.
    """

    job: Job
    settings: Mapping[str, Any]
    arrays: Mapping[str, Array]
    evaluates: bool = False
    bands: int = 0

    @functools.cached_property
    def size(self) -> int:
        """Length of the model.

        Raises:
            SafeError: the job names no model, or one without a length.
        """
        size = models.parameters(self._spec) or self.model.size
        if size is None:
            raise SafeError(f"the model {self._spec['name']} has no length, so that none of its arrays is added up")
        return size

    @functools.cached_property
    def model(self) -> Model:
        """The model."""
        return models.build(self._spec)

    @property
    def alone(self) -> bool:
        """Whether scores and losses of the model follow from each row alone, to the last bit, see ``models.alone``."""
        return self._exactly[0]

    @property
    def summing(self) -> bool:
        """Whether gradients of the model are exact sums over rows, see ``models.alone``."""
        return self._exactly[1]

    @property
    def _exactly(self) -> tuple[bool, bool]:
        scores, gradients, costly = _exact(json.dumps(self._spec, sort_keys=True))
        made = self.job.hides_totals or not costly
        return scores and made, gradients and made

    @property
    def regression(self) -> bool:
        """Whether the label is a number."""
        return self.job.data.regression

    @property
    def noisy(self) -> bool:
        """Whether nodes add noise."""
        return self.job.privacy is not None

    @property
    def only_in_a_study(self) -> Additive:
        """What sums of counts are additive in that nodes round, join or leave out by their own limits elsewhere."""
        return "row" if self.job.aggregation == "pinned" else "hospital"

    @property
    def of_scores(self) -> Additive:
        """What sums of losses of the model are additive in: those of networks are rounded at each node."""
        return "row" if self.noisy or self.alone else "hospital"

    @property
    def of_counts(self) -> Additive:
        """What counts of rows by their scores are additive in: see ``only_in_a_study`` and ``of_scores``."""
        return self.only_in_a_study if self.of_scores == "row" else "hospital"

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.job.data.classes or ())

    def array(self, name: str, dimensions: int = 1) -> Array:
        """An array that was sent.

        Args:
            name: its name.
            dimensions: how many it must have.

        Raises:
            SafeError: it is missing, or has another number of dimensions.
        """
        found = self.arrays.get(name)
        if found is None or found.ndim != dimensions:
            raise SafeError(f"the task lacks the array {name} in {dimensions} dimension(s); send it as central does")
        return found

    @property
    def _spec(self) -> dict[str, Any]:
        if self.job.model is None:
            raise SafeError("the task asks for a sum about a model, and its job names none; send it as central does")
        return models.parse(self.job.model)


@functools.lru_cache(maxsize=16)
def _exact(spec: str) -> tuple[bool, bool, bool]:
    """Every request asks for it, and networks take a while to build."""
    model = models.build(json.loads(spec))
    return alone(model) is not None, summing(model) is not None, model.traits.costly_sums


def layout(declaration: Declaration, asked: Asked) -> Layout:
    """Derive what an answer is a sum of.

    Args:
        declaration: what the function declares.
        asked: what the task says.

    Returns:
        The node's number of rows, what the function declares, and the evaluation if one is asked for.

    Raises:
        SafeError: the task does not fit the function.
    """
    try:
        declared = declaration(asked) if callable(declaration) else declaration
        items: list[Item] = Count().items("n", asked)
        items += [item for name, summand in each(declared) for item in summand.items(name, asked)]
        if asked.evaluates:
            sizes = asked.classes, asked.bands, asked.job.loss, asked.regression, asked.noisy
            of = metrics.summands(*sizes, asked.of_counts, asked.of_scores)
            items += [item for name, summand in each(of) for item in summand.items(f"evaluation.{name}", asked)]
    except SafeError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:  # a malformed argument
        raise SafeError(
            f"the task's arguments do not fit what its function adds up ({type(error).__name__}); send them as central "
            "does"
        ) from None
    return Layout(tuple(items))
