"""``results``: how the last models of jobs do on this hospital's own held-out rows, from the hospital's folder."""

from v6_federated.gate import own_results
from v6_federated.operator.command_line import Found, prints
from v6_federated.operator.make_keys import existing
from v6_federated.operator.options import ResultsOptions
from v6_federated.operator.show_audit import minute, unused

SHOWN = ("evaluated", "accuracy", "auc", "brier", "r2", "rmse", "mae", "c_index", "loss")


@prints
def run(options: ResultsOptions) -> Found:
    """Show a line for each job, and where its page is."""
    folder = existing(options.folder)
    found = own_results.read(folder)
    lines = []
    for result in found:
        numbers = ((own_results.MEASURES[name], result.get(name)) for name in SHOWN)
        measured = ", ".join(f"{what} {own_results.number(value)}" for what, value in numbers if value is not None)
        lines.append(f"job {result['job']}: {result['method']}, {minute(result['time'])} UTC: {measured}")
        lines.append(f"  {folder / own_results.FOLDER / result['job']}.html")
    rows = [{name: result.get(name) for name in ("job", "method", "time", *SHOWN)} for result in found]
    none = ["no job has evaluated a last model on rows that this hospital holds out", *unused(folder)]
    return Found(lines or none, {"results": rows})
