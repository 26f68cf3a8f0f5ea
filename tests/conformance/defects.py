"""Methods with one defect each: what is changed in the method of ``conftest.py``, and the check that finds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Defect:
    """A defect.

    Attributes:
        check: the check that finds it.
        says: a part of what the check then says.
        changes: what is replaced in the method's code, and by what.
        case: what the ``MethodCase`` declares.
        files: more files of the package, by name.
        page: the method's page.
    """

    check: str
    says: str
    changes: Sequence[tuple[str, str]] = ()
    case: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    page: str | None = None


MINIBATCHES = [  # a method's own, and its partial does not say that this is a BatchSize
    ("Federation, LearningRate,", "BatchSize, Federation, LearningRate,"),
    ("lr: LearningRate = 0.1", "lr: LearningRate = 0.1, batch_size: BatchSize = None"),
    ("v=s.v, lr=lr", "v=s.v, lr=lr, batch_size=batch_size"),
    ("v: V, lr: LearningRate", "v: V, lr: LearningRate, batch_size: int | None"),
    ("node.rows.X, node.rows.y", "node.rows.X[:batch_size], node.rows.y[:batch_size]"),
]
OF_ALL_ROWS = "X, y = node.source.table.iloc[:, :-1].to_numpy('float32'), node.source.table['label'].to_numpy()\n"
ALL_ROWS = [("    loss, g", f"    {OF_ALL_ROWS}    loss, g"), ("node.rows.X, node.rows.y", "X, y")]
DECLARES = [
    (
        "from v6_federated import Federation, ",
        "from typing import Annotated\nfrom v6_federated import Excludes, Federation, ",
    ),
    ("LearningRate, Result, Rounds, central", "LearningRate, Needs, Result, Rounds, central"),
]
LENIENT = """
def lenient(function):
    import functools
    known = ("job", "round", "evaluate", "arrays", "mock_client", "mock_data", "v", "lr")

    @functools.wraps(function)
    def call(*arguments, **values):
        return function(*arguments, **{name: values[name] for name in known if name in values})

    return call


@lenient
@partial
"""
CALLS = """    calls = node.state.part("calls")
    before = (calls.load(0) or {"n": weights[:1] * 0})["n"]
    calls.save({"n": before + 1})
    return {"weights": w + before, """
MOMENTUM = """    kept = node.state.load(node.round - 1)
    g = g if kept is None else g + kept["g"]
    node.state.save({"g": g})
    w = weights - lr * g"""
SENT_AS_PAYLOAD = [
    ("v=s.v, lr=lr", "v=s.v, lr=lr, extra=codec.encode({'extra': s.w})"),
    ("Federation, LearningRate,", "Federation, LearningRate, codec,"),
    ("v: V, lr: LearningRate", "v: V, lr: LearningRate, extra: Annotated[dict, Field(description='more')]"),
    ("Role, Vector,", "Role, Vector, codec,"),
    ("w = weights - lr * g", "w = weights - lr * g + 0 * codec.decode(extra)['extra']"),
]
DEFECTS = [
    Defect("one_node_equals_centralized_training", "weights is off by", [("- lr * g", "- 2 * lr * g")]),
    Defect(
        "order_of_nodes_changes_nothing",
        "gives other bits",
        [
            (
                "        s.w = answers",
                "        import os\n        s.w = int(os.environ['TEMPORARY_FOLDER'][-5]) * answers",
            )
        ],
    ),
    Defect("equal_nodes_equal_one", "is off by", [('weighted_mean("weights")', 'sum("weights")')]),
    Defect("rate_zero_changes_nothing", "changes at a rate of 0", [("- lr * g", "- (lr + 0.01) * g")]),
    Defect(
        "bytes_equal_the_formula",
        "grow by",
        [('return {"weights"', 'return {"again": w, "weights"'), ("lr=lr)", 'lr=lr, returns=["weights", "again"])')],
    ),
    Defect(
        "too_few_answers_are_an_error_in_every_request",
        "and the job goes on",
        [("lr=lr)", "lr=lr, quorum_of=0)"), ("weighted_mean(", "combine("), ('"weights")', '"weights", lambda a: 1)')],
    ),
    Defect(
        "nonsense_in_an_answer_does_not_end_the_job",
        "and the job ends: TypeError",
        [
            ("0.9 * s.v + 1", "sum(1 + a.values['label'] for a in answers.each())"),
            ('_loss": loss', '_loss": loss, "label": 1'),
            ("lr=lr)", 'lr=lr, values=["label"])'),
        ],
    ),
    Defect(
        "a_lost_central_goes_on",
        "differs in",
        [
            ("v=0.0)", "v=0.0)\n    moved = 0"),
            ("        s.w = answers", "        moved += 1\n        s.w = moved * answers"),
        ],
    ),
    Defect(
        "a_central_lost_at_the_end_changes_nothing",
        "central was lost before the last evaluation: the result differs in",
        [
            ("v=0.0)", "v=0.0)\n    rounds_run = 0"),
            ("        s.w = answers", "        rounds_run += 1\n        s.w = answers"),
            ("federation.result(s.w)", "federation.result(s.w * max(rounds_run, 1))"),
        ],
    ),
    Defect("nodes_are_sent_what_central_carries", "v of round 2 are not sent", [("v=s.v", "v=0.0")]),
    Defect(
        "nodes_keep_what_is_declared_and_nothing_in_the_end",
        "declared: keeps no state",
        [('    return {"weights"', '    node.state.save({"w": w})\n    return {"weights"')],
    ),
    Defect(
        "same_bits_everywhere",
        "worker processes give another",
        [("- lr * g", "- lr * g * (1 + __import__('os').getpid() % 1000 / 1000)")],
    ),
    Defect("arrays_of_another_shape_are_refused", "extra of shape", SENT_AS_PAYLOAD),
    Defect("exports_are_the_functions_that_a_task_may_call", "and __all__ is", [('"client_update", ', "")]),
    Defect("exports_are_the_functions_that_a_task_may_call", "is no `@central` or `@partial`", [("@partial\n", "")]),
    Defect(
        "imports_are_from_the_face_of_v6_federated",
        "central.py imports v6_federated.models; expected names",
        [("from v6_federated import Federation,", "import v6_federated.models\nfrom v6_federated import Federation,")],
    ),
    Defect(
        "imports_are_from_the_face_of_v6_federated",
        "partial.py imports v6_workbench; expected names",
        [("from pydantic import Field", "import v6_workbench\nfrom pydantic import Field")],
    ),
    Defect(
        "every_partial_function_is_called",
        "no case calls another",
        [
            ("import client_update", "import another, client_update"),
            ('"central", ', '"another", "central", '),
            ("@partial\n", "@partial\ndef another(node: Node) -> Result:\n    return {}\n\n\n@partial\n"),
        ],
    ),
    Defect("rows_held_out_are_not_trained_on", "depends on rows that are held out", ALL_ROWS),
    Defect("preprocessing_comes_first", "the job failed: round 1, client_update", ALL_ROWS),
    Defect(
        "half_precision_halves_the_bytes",
        "of the bytes of float32",
        [
            ('return {"weights"', 'return {**{f"w{i}": float(number) for i, number in enumerate(w[:90])}, "weights"'),
            ("lr=lr)", 'lr=lr, values=[f"w{i}" for i in range(90)])'),
        ],
    ),
    Defect(
        "history_names_who_took_part",
        "the participants of the history are [3, 5]; expected [3, 5, 8]",
        [("federation.organizations,", "federation.organizations[:2],")],
    ),
    Defect(
        "as_many_rounds_as_a_node_allows",
        "V6_FEDERATED_MAXIMUM_ROUNDS",
        [("federation.rounds(rounds)", "federation.rounds(rounds + 1)")],
    ),
    Defect("operators_limits_hold_in_every_function", "fewer rows than V6_FEDERATED_MINIMUM_BATCH", MINIBATCHES),
    Defect(
        "under_the_profile_careful_it_trains_or_says_why_not",
        "batch_size=4 ends in 'a model'; expected one line that names V6_FEDERATED_MINIMUM_BATCH",
        MINIBATCHES,
    ),
    Defect(
        "the_sum_under_masks_equals_the_sum_without",
        "client_update: this method looks at single answers, and central sees sums only",
        [
            ('answers.weighted_mean("weights")', 'sum(a["weights"] * float(a.n / answers.n) for a in answers.each())'),
        ],
    ),
    Defect(
        "the_sum_under_masks_equals_the_sum_without",
        "expected sums={'weights': Mean(weight='equal')} at its @partial",
        [('weighted_mean("weights")', 'mean("weights")')],
    ),
    Defect(
        "the_sum_under_masks_equals_the_sum_without",
        "logreg: weights under masks is off by",
        [('answers.weighted_mean("weights")', 'len(answers.parts()) / 3 * answers.weighted_mean("weights")')],
    ),
    Defect(
        "the_sum_under_masks_equals_the_sum_without",
        "logreg: with masks of zero the job differs in",
        [("- lr * g", "- lr * g * (1 + int(node.job.key[:4], 16) / 2**16)")],
    ),
    Defect("long_training_is_ended", "ends after V6_FEDERATED_MAXIMUM_SECONDS", MINIBATCHES),
    Defect(
        "hostile_tasks_are_refused",
        "client_update works; expected a refusal that says \"unknown setting 'hostile_setting'\"",
        [("\n@partial\n", LENIENT)],
    ),
    Defect(
        "faults_end_in_a_model_or_one_line",
        "KeyError",
        [("        s.v =", "        {a.organization_id: a for a in answers.each()}[4]\n        s.v =")],
    ),
    Defect(
        "failed_answers_change_nothing",
        "other bits than if the nodes whose answers were bad or late",
        [('    return {"weights": w, ', CALLS)],
    ),
    Defect(
        "model_follows_from_the_history",
        "off by",
        case={"follow": lambda result, nodes: 0 * nodes[1].iloc[0, :1].to_numpy()},
    ),
    Defect(
        "a_result_can_be_resumed",
        "the job stopped: StopIteration",
        [
            (
                "    for t in federation.rounds(rounds):",
                "    ts = federation.rounds(rounds)\n    for _ in range(rounds):",
            ),
            ("        answers = ", "        next(ts)\n        answers = "),
        ],
    ),
    Defect(
        "resuming_changes_nothing",
        "the model has other bits",
        [
            ("v=0.0)", "v=0.0)\n    moved = 0"),
            ("        s.w = answers", "        moved += 1\n        s.w = moved * answers"),
        ],
    ),
    Defect(
        "a_node_that_has_lost_its_state_says_so",
        "no answer says state_lost",
        [("    w = weights - lr * g", MOMENTUM), ("    for t in", "    federation.keep_state()\n    for t in")],
        case={"keeps_state": True},
    ),
    Defect(
        "traffic_equals_bytes_sent",
        "the result tells of",
        [
            (
                "        answers = ",
                "        answers = federation.ask('client_update', [3], weights=s.w, v=0.0, lr=lr)\n        answers = ",
            )
        ],
    ),
    Defect(
        "settings_that_do_not_fit_are_refused",
        "lr needs bacth_size, which is no setting",
        [*DECLARES, ("lr: LearningRate = 0.1", 'lr: Annotated[LearningRate, Needs("bacth_size")] = 0.1')],
    ),
    Defect(
        "settings_that_do_not_fit_are_refused",
        "lr needs precision=float61, which is refused",
        [*DECLARES, ("lr: LearningRate = 0.1", 'lr: Annotated[LearningRate, Needs(precision="float61")] = 0.1')],
    ),
    Defect(
        "settings_that_do_not_fit_are_refused",
        "without holdout there is the same error",  # it has a default
        [*DECLARES, ("lr: LearningRate = 0.1", 'lr: Annotated[LearningRate, Excludes("holdout")] = 0.1')],
    ),
    Defect(
        "settings_that_do_not_fit_are_refused",
        "with {'optimiser': 'sgd'}, there is another error",  # it is excluded as much
        [
            *DECLARES,
            (
                "lr: LearningRate = 0.1",
                'optimiser: Literal["none", "sgd", "adam"] = "none", '
                'lr: Annotated[LearningRate, Excludes("optimiser", instead="set optimiser=sgd")] = 0.1',
            ),
            ("import Annotated", "import Annotated, Literal"),
        ],
    ),
    Defect("store_entry_is_up_to_date", "differs from the code", files={"algorithm_store.json": "{}"}),
    Defect(
        "page_names_what_leaves_a_node",
        "does not name train_loss, which client_update sends",
        page="A node sends `weights`.",
    ),
]
