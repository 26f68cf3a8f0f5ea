"""``v6-federated predict``: predictions for new rows."""

from pathlib import Path

import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.data.source import Source
from v6_workbench.cli import console, results, values
from v6_workbench.cli.options import PredictOptions
from v6_workbench.errors import no_such
from v6_workbench.simulation import datasets

TRAINED_ON = (
    "accuracy, AUC and their intervals hold for rows that the model was not trained on; of rows that it was trained on "
    "they are too good, and nothing in a model tells which these were"
)
MODELS = (".npz", ".safetensors", ".pt")


def run(options: PredictOptions) -> int:
    """Predict for new rows, as the nodes would, preprocessing included."""
    from v6_workbench.reporting import export, prediction, spreadsheets

    _check_files(options)
    exported = options.model.suffix in MODELS
    if not exported and options.model.suffix not in ("", ".json"):
        raise SafeError(
            f"{options.model} is not a model; expected a result.json, its folder, .npz, .safetensors or .pt"
        )
    model = export.load(options.model) if exported else results.read(options.model)
    rows = datasets.load_new(options.data)
    if rows.table is not None and rows.table.empty:
        raise SafeError(f"{options.data} has no rows; expected at least one row to predict for")
    table, measured = prediction.predict(model, rows)
    if options.keep is not None:
        table = pd.concat([_kept(options.keep, options.data, rows, table), table], axis=1)
    try:
        spreadsheets.write(table, options.out)
    except OSError as error:
        return console.complain(console.FAILED, results.unwritten("--out", options.out, error))
    if "accuracy_interval" in measured:
        console.say(TRAINED_ON)
    for warning in prediction.warnings_about(model, rows):
        console.say(warning)
    console.last_line({"predictions": str(options.out), "rows": len(table), **measured})
    return console.OK


def _check_files(options: PredictOptions) -> None:
    if options.out.suffix != ".csv":
        raise SafeError(f"--out {options.out} is not a .csv; expected for example predictions.csv")
    results.check_file(options.out, "--out")
    if options.out.exists() and Path(options.data).exists() and options.out.samefile(options.data):
        raise SafeError(f"--out {options.out} is the file of --data, which would be overwritten; choose another --out")


def _kept(keep: str, data: str, rows: Source, table: pd.DataFrame) -> pd.DataFrame:
    """The columns of ``--keep``, with the text of the file."""
    names = [*dict.fromkeys(values.names(keep, "--keep"))]
    if rows.table is None:
        raise SafeError(f"--keep names columns, and {data} has none; remove --keep")
    if wrong := [name for name in names if name not in rows.table.columns or name in table.columns]:
        raise no_such("--keep", wrong, [*rows.table.columns], f"column in {data}")
    return datasets.as_written(data, rows.table[names].reset_index(drop=True))
