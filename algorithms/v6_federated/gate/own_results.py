"""A hospital's own results: how the last model does on its own held-out rows, written for its own people.

They lie in the hospital's folder and do not leave with it. What leaves is another matter, see ``questions.evaluate``.
"""

import contextlib
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError
from v6_federated.base.files import keep_latest, open_regular, write_whole
from v6_federated.data.source import Rows
from v6_federated.models import details, metrics
from v6_federated.node.node import Node
from v6_federated.rules import audit

FOLDER = "results"  # in the hospital's folder
MOST_RESULTS = 1000  # of the latest jobs: tasks must not fill the hospital's disk
BANDS = 255
MEASURES = {
    "evaluated": "held-out rows",
    "loss": "mean loss",
    "accuracy": "accuracy",
    "auc": "AUC",
    "brier": "Brier score",
    "r2": "R squared",
    "rmse": "root of the mean squared error",
    "mae": "mean absolute error",
    "c_index": "C-index",
}


def results(node: Node, w: Any, rows: Rows) -> dict[str, Any]:
    """Compute a node's own results. Nothing is rounded: they are for people who may see the rows.

    Rows whose score is not finite are left out: an end with an error would take less time, which vantage6 shows. (Where
    nodes answer in the open, one such row has ended the request before.)

    Args:
        node: the node.
        w: the model (d,).
        rows: the rows that it was evaluated on.
    """
    job, classes = node.job, node.job.data.classes
    found: dict[str, Any] = {"job": job.key, "method": job.method, "model": job.model, "time": audit.now()}
    if classes is None:
        return found | metrics.combine_regression([metrics.evaluate_regression(node.model, w, rows)], job.loss)
    finite = np.isfinite(node.model.scores(w, rows.X)).all(axis=1)
    rows = Rows(rows.X[finite], rows.y[finite])
    evaluation = metrics.evaluate(node.model, w, rows, len(classes), BANDS, row_by_row=True)
    found |= {"classes": list(classes), **metrics.combine([evaluation])}
    if details.has_probabilities(node.model, classes):
        found |= details.curves([details.calibration(node.model, w, rows.X, rows.y)], [evaluation])
    return found


def write(node: Node, w: Any, rows: Rows) -> None:
    """Write a node's own results into the hospital's folder, as JSON and as a page.

    Those of the latest ``MOST_RESULTS`` jobs are kept. A full disk must not end the job of all hospitals: it is a line
    in the node's log.

    Args:
        node: the node; without a folder, as on a developer's own rows, nothing is written.
        w: the model (d,).
        rows: the rows that it was evaluated on.
    """
    if node.request.folder is None or not len(rows):
        return
    found = results(node, w, rows)
    file = node.request.folder.path / FOLDER / f"{node.job.key}.json"
    try:
        for path, text in ((file, json.dumps(found, indent=2)), (file.with_suffix(".html"), page(found))):
            write_whole(path, text)
            path.chmod(0o640)
            keep_latest(path.parent, f"*{path.suffix}", MOST_RESULTS)
    except OSError as error:
        print(f"this hospital's own results could not be written: {error.strerror}", flush=True)


def read(folder: Path) -> list[dict[str, Any]]:
    """Read all results in a hospital's folder."""
    found = [_read(file) for file in sorted((folder / FOLDER).glob("*.json"))]
    return sorted(found, key=lambda result: str(result["time"]))


def _read(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError), open_regular(file) as stream:
        found = json_text.parse(stream.read())
        texts = isinstance(found, dict) and all(isinstance(found.get(name), str) for name in ("job", "method", "time"))
        if texts and all(isinstance(found.get(name), int | float | None) for name in MEASURES):
            return dict(found)
    raise SafeError(f"{file} holds no results of a job; move it out of the folder")


def page(found: Mapping[str, Any]) -> str:
    """Write a page that needs no other file."""
    model = (found.get("model") or {}).get("name", "")
    rows = [(label, number(found[name])) for name, label in MEASURES.items() if found.get(name) is not None]
    parts = [_table(("measure", "of this hospital's held-out rows"), rows)]
    if len(found.get("confusion") or ()) > 1:  # otherwise accuracy says the same
        named = [str(c) for c in found["classes"]]
        counts = [(c, *map(str, row)) for c, row in zip(named, found["confusion"], strict=True)]
        parts.append(_table(("true class", *(f"predicted {c}" for c in named)), counts))
    if found.get("calibration"):
        bins = [b for b in found["calibration"] if b["n"]]
        cells = [
            (f"{b['lower']:.1f} to {b['upper']:.1f}", str(b["n"]), f"{b['predicted']:.3f}", f"{b['observed']:.3f}")
            for b in bins
        ]
        parts.append(_table((f"probability of {found['classes'][1]}", "rows", "mean predicted", "observed"), cells))
    title = html.escape(f"{found['method']} {model}: results of this hospital")
    at = str(found["time"])[:16].replace("T", " ")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>'
        "body{font:1rem sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;"
        "margin:1rem 0}td,th{border:1px solid #999;padding:.3rem .6rem;text-align:left}</style></head>"
        f"<body><h1>{title}</h1><p>Job {html.escape(str(found['job']))}, {html.escape(at)} UTC. These "
        "numbers are exact and lie only in this hospital's folder.</p>"
        f"{''.join(parts)}</body></html>\n"
    )


def number(value: Any) -> str:
    """Write a number of rows, or a measure to four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
