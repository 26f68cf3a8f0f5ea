"""What a method does on nodes whose operators have set nothing: under the profile careful."""

import itertools

from v6_federated.messages.settings import Role
from v6_federated.rules.policy import Policy
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.jobs import Tape, attempt
from v6_workbench.conformance.node_limits import SMALL_BATCH
from v6_workbench.conformance.outcome import require

MINIMUM_ORGANIZATIONS = 3
CAREFUL = {
    "V6_FEDERATED_PROFILE": "careful",
    "V6_FEDERATED_AGGREGATION": "plain",  # another check is about masked sums
    "V6_FEDERATED_MINIMUM_ORGANIZATIONS": str(MINIMUM_ORGANIZATIONS),  # the kit's other jobs may have one node
}
ROWS = 60


def under_the_profile_careful_it_trains_or_says_why_not(case: MethodCase) -> str:
    """Under the profile careful, a job ends in a model or in one line that names the limit, and no limit is passed by.

    The outcome says what the method refuses.
    """
    does: list[str] = []
    policy, tape = Policy.of("careful"), Tape()
    trains = _ends(case, "with its defaults", does, outcomes=tape)
    if trains:
        waves = [wave for wave in tape.waves() if case.asynchronous or len(wave.organizations) < policy.minimum_sample]
        own = sorted({wave.function for wave in waves} & {call.function for call in tape.own()})
        does += [f"asks single organizations ({', '.join(own)})"] if own else []
    if sizes := case.having(Role.BATCH):
        small, enough = (dict.fromkeys(sizes, size) for size in (SMALL_BATCH, policy.minimum_batch))
        _must_refuse(case, "MINIMUM_BATCH", **small)
        does.append(f"refuses minibatches below {policy.minimum_batch}")
        if not trains:
            how = f"with minibatches of {policy.minimum_batch}"
            require(_ends(case, how, does, **enough), f"it trains with no minibatches: {', '.join(does)}")
    if "fraction" in case.schema.model_fields:
        _must_refuse(case, "MINIMUM_SAMPLE", fraction=0)
        does.append(f"refuses a fraction of fewer than {policy.minimum_sample} organizations")
    return f"under careful: {', '.join(does)}"


def _ends(case: MethodCase, how: str, does: list[str], **options: object) -> bool:
    """Whether a job ends in a result; if not, the error must be one line that names a limit. Notes which it is."""
    ended = attempt(case, case.nodes(tables.three(ROWS)), CAREFUL, **{"rounds": 3, **case.settings, **options})
    if not ended.problem:
        does.append(f"trains {how}" if case.supervised else f"works {how}")
        return True
    require(not ended.unforeseen, f"{how}, an error that nobody foresaw: {ended.problem}")
    limit = "".join(itertools.takewhile(lambda c: c.isupper() or c == "_", ended.problem.partition("V6_FEDERATED_")[2]))
    require("\n" not in ended.problem and bool(limit), f"{how}, an error that names no limit: {ended.problem}")
    does.append(
        f"refuses its defaults ({limit})" if how == "with its defaults" else f"refuses to train {how} ({limit})"
    )
    return False


def _must_refuse(case: MethodCase, limit: str, **settings: object) -> None:
    nodes = case.nodes(tables.three(ROWS))
    problem = attempt(case, nodes, CAREFUL, **{"rounds": 2, **case.settings, **settings}).problem
    asked = ", ".join(f"{name}={value}" for name, value in settings.items())
    require(
        f"V6_FEDERATED_{limit}" in problem and "\n" not in problem,
        f"{asked} ends in {problem or 'a model'!r}; expected one line that names V6_FEDERATED_{limit}",
    )
