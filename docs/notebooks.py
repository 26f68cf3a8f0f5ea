"""The notebooks in ``examples/``: run without Jupyter, and shown as pages.

``python docs/notebooks.py`` runs every cell and writes what it shows into the file, as Jupyter would. ``generate.py``
makes a page of each.
"""

import ast
import base64
import contextlib
import html
import io
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "examples"
Cell = dict[str, Any]
VALUE = "_"  # the name of what a cell's last line is worth, as in Jupyter
MIME = ("image/png", "text/html", "text/plain")  # what a page shows of an output, the first that there is


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the code of a notebook, one cell after the other.

    Args:
        notebook: the notebook, as its file holds it.

    Returns:
        The notebook with the outputs of its cells.

    Raises:
        Exception: that of the first cell that raises one.
    """
    _figures()  # those of others
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[Cell] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count = 1 + sum(one["cell_type"] == "code" for one in cells)
            cell = {**cell, "execution_count": count, "outputs": _run("".join(cell["source"]), names, count)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _run(source: str, names: dict[str, Any], count: int) -> list[Cell]:
    """Run a cell; return what it prints, the value of its last line, and its figures."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    if isinstance(last, ast.Expr):
        body.append(ast.Assign([ast.Name(VALUE, ast.Store())], last.value))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.fix_missing_locations(ast.Module(body, [])), f"cell {count}", "exec"), names)
    value = names.pop(VALUE, None)
    found: list[Cell] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        shown = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            shown["text/html"] = _lines(value._repr_html_())
        found.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": shown})
    return found + [{"output_type": "display_data", "metadata": {}, "data": {"image/png": png}} for png in _figures()]


def _figures() -> list[str]:
    """The figures that are open, which are then closed."""
    from matplotlib import pyplot as plt

    found = []
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=72, bbox_inches="tight")
        found.append(base64.b64encode(picture.getvalue()).decode())
    plt.close("all")
    return found


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def structure(notebook: dict[str, Any]) -> list[list[tuple[str, ...]]]:
    """Say what kinds of output each cell of code has."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[(one["output_type"], *sorted(one.get("data", ()))) for one in cell["outputs"]] for cell in cells]


def page(notebook: dict[str, Any]) -> str:
    """Write a notebook as a page of Markdown.

    Args:
        notebook: the notebook with its outputs.

    Returns:
        Its texts, its code, and under each cell what it showed.
    """
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data") or {"text/plain": output["text"]}
            kind = next(kind for kind in MIME if kind in data)
            shown = "".join(data[kind])
            if kind == "image/png":
                parts.append(f'<img alt="the figure of the code above" src="data:image/png;base64,{shown}">')
            elif kind == "text/html":  # a blank line would end the block
                parts.append("\n".join(line for line in shown.splitlines() if line.strip()))
            elif "image/png" not in [kind for one in cell["outputs"] for kind in one.get("data", ())]:
                parts.append(f"<pre>{html.escape(shown.rstrip())}</pre>".replace("\n\n", "\n"))
    return "\n\n".join(parts) + "\n"


def read(file: Path) -> dict[str, Any]:
    """Read a notebook."""
    notebook: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return notebook


def main() -> None:
    """Run all notebooks, and write what they show into their files."""
    import matplotlib

    matplotlib.use("Agg")
    for file in sorted(FOLDER.glob("*.ipynb")):
        text = json.dumps(executed(read(file)), indent=1, ensure_ascii=False)
        file.write_text(f"{text}\n", encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main()
