"""What a method says to be checked: its name, and what the checks cannot find out by themselves."""

import contextlib
import functools
import importlib.util
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.messages.common import Common
from v6_federated.messages.job import SHARED_FUNCTIONS
from v6_federated.messages.settings import LARGE, Role, validate
from v6_federated.models import Model
from v6_workbench import registry
from v6_workbench.conformance import tables
from v6_workbench.conformance.outcome import NotApplicable
from v6_workbench.conformance.tables import Nodes

Arrays = np.ndarray | Mapping[str, np.ndarray]
Result = dict[str, Any]

RATE = 0.3
BATCH = 7
MODELS = ("logreg", "svm", "fnn:hidden=5")


@contextlib.contextmanager
def import_errors_of(what: object) -> Iterator[None]:
    """Turn whatever ends the import of somebody's code into a SafeError of one line.

    Args:
        what: the package or file that is imported.
    """
    try:
        yield
    except (SafeError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        raise SafeError(f"{what} imports {error.name}, which is not installed; run: pip install {error.name}") from None
    except BaseException as error:  # sys.exit() too, and pytest.skip()
        found = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({Path(found.filename).name}, line {found.lineno})"
        raise SafeError(
            f"{what} cannot be imported: {type(error).__name__}: {error}{where}; expected code that Python can import"
        ) from None


@dataclass(frozen=True)
class Pooled:
    """All rows in one place, for a reference that trains on them.

    Attributes:
        X: features (n, d), float32.
        y: labels (n,): the index of the class, or a number for a regression.
        rounds: of the job.
        settings: of the job, with the defaults.
        model: the model; None if the method trains none.
        weights: the model at the start, (size,) or as the model has it.
    """

    X: np.ndarray
    y: np.ndarray
    rounds: int
    settings: Mapping[str, Any]
    model: Model | None
    weights: np.ndarray | None


@dataclass(frozen=True, eq=False)
class MethodCase:
    """A method with the settings under which it is checked.

    The checks choose rounds, seed, rows, rates (by the settings' roles) and minibatches (first none, so that a round of
    one node is one step on all its rows, then small ones). Everything else is the method's default unless it is given.

    Attributes:
        method: a registered method's name, or the import package of any method, for example ``v6_fednova``.
        settings: settings that the checks are to use.
        name: tells apart several cases of one method.
        most_classes: number of classes that the method can tell apart at most.
        models: the models that are trained; None: all kinds of models that the method accepts.
        keeps_state: whether nodes keep something from round to round.
        asynchronous: whether answers are used in the order in which they arrive.
        vectors_up: arrays as long as the model that a node sends in its first round; parts of one if it compresses.
        vectors_down: arrays as long as the model that a node is sent in its first round.
        centralized: what the method must equal if one node holds all rows; None: gradient descent with its rate.
        follow: the model (d,) that follows from a result's history, given the nodes' rows, computed independently (for
            binary logistic regression, no minibatches, and the case's settings); None: this is not checked.
        optional: partial functions whose answers may all be missing, and why.
        exceptions: checks that the method does not pass, and why. One that it does pass is an error.
        noisy: settings that a job with noise needs besides.
        page: the method's page; None: ``docs/methods/METHOD.md`` or ``docs/METHOD.md`` in a folder above the package,
            if it exists.
    """

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    most_classes: int = LARGE
    models: Sequence[str] | None = None
    keeps_state: bool = False
    asynchronous: bool = False
    vectors_up: float = 1
    vectors_down: int = 1
    centralized: Callable[[Pooled], Arrays] | None = None
    follow: Callable[[Result, Nodes], np.ndarray] | None = None
    optional: Mapping[str, str] = field(default_factory=dict)
    exceptions: Mapping[str, str] = field(default_factory=dict)
    noisy: Mapping[str, Any] = field(default_factory=dict)
    page: Path | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, [self.short_name, self.name]))

    # ---- the method

    @functools.cached_property
    def module(self) -> ModuleType:
        """The method's import package. Raises SafeError if there is none, or if it cannot be imported."""
        with import_errors_of(self.method):
            if self.method in registry.names():
                return registry.package_of(self.method)
            first = self.method.partition(".")[0]
            if not all(map(str.isidentifier, self.method.split("."))) or importlib.util.find_spec(first) is None:
                raise SafeError(
                    f"unknown method {self.method!r}; expected one of {', '.join(registry.names())}, or a package that "
                    "Python can import"
                )
            module = importlib.import_module(self.method)
            made = getattr(getattr(module, "central", None), "settings", None)  # by the decorator
            if not (isinstance(made, type) and issubclass(made, Common)):
                raise SafeError(
                    f"{self.method}/__init__.py exports no method; expected a function named central under the "
                    "decorator `@central` of v6_federated"
                )
            return module

    @property
    def package(self) -> str:
        """The name of the import package."""
        return self.module.__name__

    @property
    def short_name(self) -> str:
        """The method's name as results have it."""
        return self.package.partition(".")[0].removeprefix("v6_")

    @property
    def central(self) -> Any:
        """The central function."""
        return self.module.central

    @property
    def supervised(self) -> bool:
        """Whether the method has labels and trains a model."""
        return self.central.supervised

    @property
    def functions(self) -> list[str]:
        """The method's own partial functions."""
        public = [name for name in dir(self.module) if callable(getattr(self.module, name)) and name[0] != "_"]
        return sorted({*public} - {"central", *SHARED_FUNCTIONS})

    # ---- its settings

    @property
    def schema(self) -> type[Common]:
        """All settings of the method."""
        return self.central.settings

    @property
    def single_answers(self) -> str:
        """Why the method needs single answers with the case's settings; empty if sums suffice."""
        return str(self.central.why_single(validate(self.schema, self.values(rounds=1))))

    def having(self, *roles: Role) -> list[str]:
        """List the settings with one of some roles.

        Args:
            roles: the roles.

        Returns:
            The settings' names.
        """
        return [name for name, field in self.schema.model_fields.items() if {*roles} & _roles(field.metadata)]

    @property
    def rates(self) -> list[str]:
        """The settings that are rates of local steps."""
        return self.having(Role.RATE, Role.ROW_RATE)

    def trained_models(self) -> Sequence[str | None]:
        """List the models to check the method with.

        Returns:
            The models, as the setting ``model`` takes them; one None if the method trains none.
        """
        if not self.supervised:
            return [None]
        accepted = self.schema.model_fields["model"].annotation
        own = get_args(accepted) if get_origin(accepted) is Literal else MODELS
        return self.models or own

    def values(self, **values: Any) -> dict[str, Any]:
        """Choose settings under which a round of one node is one step on all its rows, unless the case names others.

        Args:
            values: settings that are to have these values; None leaves one as it is.

        Returns:
            The settings by name.
        """
        if self.without_features:
            values.pop("preprocess", None)
        chosen = {**dict.fromkeys(self.rates, RATE), **dict.fromkeys(self.having(Role.BATCH), None)}
        return {**chosen, **self.settings, **{name: value for name, value in values.items() if value is not None}}

    def with_minibatches(self, **values: Any) -> dict[str, Any]:
        """Choose settings as ``values`` does, with small minibatches if the method has any.

        Args:
            values: see ``values``.

        Returns:
            The settings by name.
        """
        return self.values(**dict.fromkeys(self.having(Role.BATCH), BATCH), **values)

    # ---- its rows

    @property
    def without_features(self) -> bool:
        """Whether the method looks at times and groups only, so that there are no columns to preprocess."""
        return self.schema.times_only

    @property
    def regression(self) -> bool:
        """Whether the label is a number to predict."""
        return self.schema.predicts_numbers(self.settings)

    def nodes(self, nodes: Nodes) -> Nodes:
        """Give nodes labels as the case needs them.

        Args:
            nodes: a table for each organization.

        Returns:
            The tables with such labels.
        """
        return {k: self.rows(rows) for k, rows in nodes.items()}

    def rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Give one node labels as the case needs them.

        Args:
            rows: its table.

        Returns:
            The table with such labels.
        """
        return tables.with_numbers(rows) if self.regression else rows

    @property
    def classes(self) -> dict[str, Any]:
        """The setting that names two classes, so that nodes are not asked; nothing where labels are no classes."""
        return {"classes": [0, 1]} if self.supervised and not self.regression else {}

    @property
    def all_rows(self) -> dict[str, Any]:
        """The setting under which nodes train on all rows; nothing where none are held out."""
        return {"holdout": 0} if self.supervised else {}

    def needs_a_vector(self) -> None:
        """Check that the method trains models whose parameters are one vector of fixed length.

        Raises:
            NotApplicable: it does not.
        """
        if not self.supervised or not any(model in MODELS for model in self.trained_models()):
            raise NotApplicable("its model is no vector of fixed length")

    # ---- the files that belong to it

    def page_of(self) -> Path | None:
        """The method's page, if there is one."""
        return self.page or self._file_in(("docs/methods", "docs"), f"{self.short_name}.md")

    def test_file(self) -> Path | None:
        """The method's tests, ``tests/methods/test_METHOD.py`` or ``tests/test_METHOD.py``, if there are any."""
        return self._file_in(("tests/methods", "tests"), f"test_{self.short_name}.py")

    def _file_in(self, folders: Sequence[str], name: str) -> Path | None:
        """The file of this name in one of the folders next to the package or above it."""
        package = Path(str(self.module.__file__)).resolve().parent
        files = (above / folder / name for above in list(package.parents)[:3] for folder in folders)
        return next((file for file in files if file.exists()), None)


def _roles(metadata: Sequence[Any]) -> set[Role]:
    return {part for part in metadata if isinstance(part, Role)}
