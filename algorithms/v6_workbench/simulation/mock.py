"""A network of mock nodes on this machine.

Central runs in the caller's process, partials run in worker processes: on this machine through loky, or on a cluster
of Dask or Ray. Every message is encoded as JSON and decoded again, as on a real network.
Each node has its own rows, environment and temporary folder. Rows are written once, to a file that the workers map into
memory; a call carries nothing except its message. What all nodes have in common exists once, and a node's folder is
made when something is first kept there, so that a network of 100,000 nodes is set up in seconds.
"""

import functools
import importlib
import tempfile
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cloudpickle
import orjson

from v6_federated import models
from v6_federated.base.errors import Interrupted, SafeError
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.rules.hospital import SECRET
from v6_federated.rules.limits import PREFIX
from v6_federated.rules.policy import Policy
from v6_workbench.errors import whole_number
from v6_workbench.simulation import cluster as clusters
from v6_workbench.simulation import mock_node, studies
from v6_workbench.simulation.call_outcomes import CallOutcome, CallOutcomes
from v6_workbench.simulation.mock_client import MockClient
from v6_workbench.simulation.mock_node import Database, Ended, Image, MockNode
from v6_workbench.simulation.row_store import RowStore
from v6_workbench.simulation.studies import StudyPlan
from v6_workbench.simulation.workers import Call, LocalWorkers, Workers

__all__ = ["TRUSTING", "CallOutcome", "CallOutcomes", "MockNetwork", "StudyPlan"]

PROFILE = f"{PREFIX}PROFILE"
TRUSTING = {PROFILE: "trusting"}  # mock nodes hold the developer's own rows


class MockNetwork:
    """Nodes with their rows, and the method that their image holds.

    Use it as a context manager: its workers and its temporary folder go at the end. Networks in several threads of one
    process take turns, a job at a time; to run jobs at the same time, start a process for each.

    Args:
        package: the method's import package, for example ``v6_fedavg``.
        databases: rows of each organization by id: a DataFrame, or arrays X (n, ...) and y (n,).
        environment: environment variables of every node (its operator's policy), on top of the V6_FEDERATED_ variables
            of this process. The profile is ``trusting`` unless one of them says otherwise: the rows are one's own.
        environments: further variables of single nodes, by organization id.
        processes: worker processes, at most; 1 runs the partials in this process. The bits are the same.
        on_round: called with each finished row of the history.
        outcomes: decides what becomes of each call. With it, time is simulated: it passes as calls end.
        online: says whether an organization's node is online at a (simulated) time.
        keep: whether answers stay on disk after they were read, for a central function that is started again.
        hospital_folder: where each node gets a lasting folder of its own, ``node-K``, for its audit log and counters.
            Without it, nodes whose limits need such folders get them in the network's temporary folder.
        secret_of: the secret of each organization's node, from which its held-out rows and the order of its minibatches
            follow. ``V6_FEDERATED_SECRET`` and the secret in a lasting folder come first. None: nodes draw new ones.
        study: a study that the nodes have accepted when the network starts, see ``studies.make``; None: there is none.
        cluster: a cluster whose workers run the partials, ``dask:ADDRESS``, ``ray`` or ``ray:ADDRESS``; None: processes
            of this machine do. The bits are the same on processors of the same kind.

    Attributes:
        folder: the network's temporary folder.
        nodes: the nodes by organization id.

    Raises:
        ValueError: ``processes`` is below 1, or ``databases`` is empty.
        SafeError: rows cannot be read, the nodes cannot have such a study, or the cluster's library is not installed.
        EngineError: the cluster cannot be reached, or has no workers.
    """

    def __init__(
        self,
        package: str,
        databases: Mapping[int, Database],
        *,
        environment: Mapping[str, str] | None = None,
        environments: Mapping[int, Mapping[str, str]] | None = None,
        processes: int = 1,
        on_round: Callable[[dict[str, Any]], None] | None = None,
        outcomes: CallOutcomes | None = None,
        online: Callable[[int, float], bool] | None = None,
        keep: bool = False,
        hospital_folder: str | Path | None = None,
        secret_of: Callable[[int], str] | None = None,
        study: StudyPlan | None = None,
        cluster: str | None = None,
    ) -> None:
        processes = whole_number("processes", processes, 2)
        if processes < 1:
            raise ValueError(f"processes={processes} is too few; expected at least 1")
        if not databases:
            raise ValueError("databases is empty; expected the rows of at least one organization")
        self.package, self.on_round, self.outcomes, self.online, self.keep = package, on_round, outcomes, online, keep
        self._apart = processes > 1 or cluster is not None  # whether partials run in other processes
        self._model: models.Registered | None = None  # the job's, if workers have to be told of it
        self._closing = ExitStack()
        temporary = tempfile.TemporaryDirectory(prefix="v6-federated-", ignore_cleanup_errors=True)
        self.folder = Path(self._closing.enter_context(temporary))
        self.nodes: dict[int, MockNode] = {}
        every = {**TRUSTING, **mock_node.limits_of_process(), **(environment or {})}
        lasting = hospital_folder or self.folder / "hospitals"
        wanted, counts = hospital_folder is not None or study is not None, _counts(every)
        store = RowStore(self.folder / "rows")
        self._closing.callback(store.close)
        self._closing.callback(mock_node.close_databases)
        try:
            for organization, database in databases.items():
                folder, special = self.folder / f"node-{organization}", (environments or {}).get(organization)
                own = {**(special or {}), "TEMPORARY_FOLDER": str(folder / "tmp")}
                if wanted or (_counts({**every, **special}) if special else counts):
                    own["HOSPITAL_DATABASE_URI"] = str(made_folder(lasting, organization))
                    if secret_of is not None and hospital_folder is None:
                        own |= secret_variable({**every, **own}, secret_of(organization))
                rows = mock_node.stored(organization, database, store)
                self.nodes[organization] = MockNode(organization, folder, rows, ChainMap(own, every))
            store.flush()
            if study is not None:
                self._make_study(study)
            local = LocalWorkers(processes, len(databases))
            workers: Workers = local if cluster is None else clusters.connect(cluster)
            self._workers = self._closing.enter_context(workers)
            self._closing.callback(self.client().abandon)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "MockNetwork":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Drop calls that have not ended, leave the workers, and remove the temporary folder."""
        self._closing.close()

    def _make_study(self, plan: StudyPlan) -> None:
        names = plan.names or {k: f"node-{k}" for k in self.nodes}
        environments = {name: self.nodes[k].environment for k, name in names.items()}
        folders = {name: Path(own["HOSPITAL_DATABASE_URI"]) for name, own in environments.items()}
        studies.make(folders, plan, max(map(_minimum, environments.values())))

    @functools.cached_property
    def _client(self) -> MockClient:
        return MockClient(self)

    def client(self) -> MockClient:
        """Return the client of a central function: always the same one, as the server behind it is the same."""
        return self._client

    def run(self, **settings: Any) -> dict[str, Any]:
        """Run the method's central function at the first node.

        Args:
            settings: the method's settings.

        Returns:
            The method's result, as JSON delivers it.

        Raises:
            Interrupted: Ctrl-C was pressed after the first round; it holds the result of the last finished round.
            SafeError: the model is one of your own, and cannot be sent to worker processes.
        """
        central = importlib.import_module(self.package).central
        self._model = self._own_model(settings.get("model"))
        with mock_node.TURN, mock_node.environment_of(next(iter(self.nodes.values())).environment):
            try:
                result = central(mock_client=self.client(), **orjson.loads(orjson.dumps(settings)))
                self.client().finish()
            except Interrupted as error:
                raise Interrupted(orjson.loads(orjson.dumps(error.result))) from None
            finally:
                self.client().abandon()
        return orjson.loads(orjson.dumps(result))

    def work(self, calls: list[tuple[Path, int, int]]) -> Iterator[Ended]:
        """Begin to run calls at the nodes.

        Args:
            calls: message, organization and number of the run of each call.

        Returns:
            How each run ended; the iterator waits for them.
        """
        file = getattr(importlib.import_module(self.package), "__file__", None)  # a module made in memory has none
        image = Image(self.package, str(Path(file).parents[1]) if file else "", self._model)
        return self._workers.work(
            image, [Call(self.nodes[organization], message, number) for message, organization, number in calls]
        )

    def _own_model(self, spec: Any) -> models.Registered | None:
        """The job's model, if it is registered in this process alone: workers start without it."""
        model = models.registered(spec)
        if model is None or not self._apart:
            return None
        if getattr(model.build, "__module__", "").partition(".")[0] == self.package:
            return None  # workers import the package, which registers it there, as in an image
        try:
            cloudpickle.dumps(model)  # as loky will, when it sends the model to the workers
        except Exception as error:  # each object has its own
            raise SafeError(
                f"the model {model.name} cannot be sent to worker processes ({type(error).__name__}: {error}); use "
                "processes=1, or define it in a module"
            ) from None
        return model


def made_folder(hospital_folder: str | Path, organization: int) -> Path:
    """Make the lasting folder of a node, if it is not there.

    Args:
        hospital_folder: the folder of all nodes.
        organization: the node's organization.

    Returns:
        The folder.
    """
    folder = Path(hospital_folder).absolute() / f"node-{organization}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def secret_variable(environment: Mapping[str, str], otherwise: str) -> dict[str, str]:
    """Return the variable that holds the secret of a node without a lasting folder.

    Args:
        environment: the node's environment variables.
        otherwise: the secret, if the environment has none.

    Returns:
        The variable with its value.
    """
    return {SECRET: environment.get(SECRET, "").strip() or otherwise}


def _minimum(environment: Mapping[str, str]) -> int:
    """How many organizations a node wants in every sum."""
    try:
        return Policy.of_node(environment).minimum_organizations
    except NodePermissionException:  # the node says what is wrong with its limits
        return 1


def _counts(environment: Mapping[str, str]) -> bool:
    """Whether a node's limits need its hospital's own folder."""
    try:
        return Policy.of_node(environment).counts
    except NodePermissionException:  # the node says what is wrong with them
        return False
