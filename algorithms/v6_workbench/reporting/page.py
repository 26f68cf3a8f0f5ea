"""A page about results that stands alone: tables, pictures and what central could see, to be handed on or printed.

The page loads nothing from elsewhere. Its tables are those of the terminal, its pictures those of ``report --out``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup, escape
from matplotlib.figure import Figure as Drawn
from rich.table import Table as RichTable
from rich.text import Text

from v6_federated.base.version import __version__
from v6_federated.operator.show_limits import written
from v6_federated.rules.limits import LIMITS
from v6_workbench import registry
from v6_workbench.reporting import coefficients, diagnostics, nested, pictures, tables, tripod
from v6_workbench.reporting.command import command_of
from v6_workbench.reporting.hospitals import called, nodes_of
from v6_workbench.reporting.intervals import MEANING, accuracy_interval, auc_interval, noisy
from v6_workbench.reporting.levels import references
from v6_workbench.reporting.summary import MEASURES, Result, measure, summary
from v6_workbench.reporting.totals import of_totals

TEMPLATE = "page.html"
SHEET = 25  # lines of a table that stay together on paper: about half a sheet
REFRESH = 5  # seconds after which a browser loads the page of a running job again
ELSEWHERE = ("nodes", "rows", "organizations", "limits")  # parts of an experiment that other sections show


@dataclass(frozen=True)
class Figure:
    """A picture of a page.

    Attributes:
        svg: the picture.
        title: what it shows, for those who cannot see it too.
    """

    svg: Markup
    title: str


@dataclass(frozen=True)
class Command:
    """A command to copy.

    Attributes:
        text: the command.
    """

    text: str


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        caption: what it shows.
        head: headings of the columns.
        rows: cells of each line, as text.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def wide(self) -> bool:
        """Whether it has so many columns that narrow screens must scroll it."""
        return len(self.head) > 4

    @property
    def long(self) -> bool:
        """Whether it has so many lines that it may be divided between two sheets of paper."""
        return len(self.rows) > SHEET


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        title: its heading.
        parts: paragraphs, commands, tables and figures, in order.
    """

    title: str
    parts: Sequence[str | Command | Table | Figure]

    @property
    def id(self) -> str:
        """The heading as the name of a link."""
        return re.sub("[^a-z0-9]+", "-", self.title.lower()).strip("-")


def page(results: Mapping[str, Result], target: float | None = None) -> str:
    """Write a page.

    Args:
        results: results by their names.
        target: accuracy to draw a line at.

    Returns:
        HTML with its styles and pictures in it.
    """
    draw = _Drawing()
    sections = {name: [s for s in _sections(result, draw, target) if s.parts] for name, result in results.items()}
    chapters = [
        {
            "name": name,
            "title": title_of(result),
            "about": diagnostics.described(result),
            "numbers": [*_headline(result)],
            "remarks": [*diagnostics.stopped(result), *diagnostics.warnings_about(result)],
            "sections": sections[name],
        }
        for name, result in results.items()
    ]
    everywhere = set.intersection(*({section.title for section in own} for own in sections.values()))
    comparison = [*_comparison(results, draw, target)] if len(results) > 1 else []
    items = Table("Items of TRIPOD+AI", ["item", "asks for", "answered under"], tripod.answered(everywhere))
    return _rendered(chapters, comparison, items)


def live(method: str, rows: Sequence[Mapping[str, Any]], rounds: int | None, target: float | None = None) -> str:
    """Write a page of a job that is running; a browser that shows it loads it again every few seconds.

    Args:
        method: the method's name.
        rows: rows of the history so far; there may be none.
        rounds: number of rounds that the job is to train; None if unknown.
        target: accuracy to draw a line at.

    Returns:
        HTML with its styles and pictures in it.
    """
    so_far: Result = {"method": method, "history": [*rows], "per_node": [], "final": None, "settings": {}}
    parts: list[str | Table | Figure] = ["No round is finished yet."]
    numbers = [("rounds", f"{len(rows)} of {rounds}" if rounds else str(len(rows)))]
    if rows:
        draw = _Drawing()
        curves = draw(pictures.curves({method: so_far}, target), "Accuracy and loss by round")
        parts = [*curves, of_rich(tables.rounds_table(so_far), "Rounds")]
        evaluated = next((row for row in reversed(rows) if row.get("loss") is not None), {})
        shown = [name for name in (*MEASURES, "loss") if evaluated.get(name) is not None]
        numbers += [(MEASURES.get(name, name), f"{evaluated[name]:.3f}") for name in shown]
        numbers.append(("sent by hospitals", f"{sum(row['bytes_up'] for row in rows) / 1e6:.3f} MB"))
    chapter = {
        "name": method,
        "title": f"{method} is running",
        "about": f"This page is written anew after each round, and a browser loads it again every {REFRESH} seconds.",
        "numbers": numbers,
        "remarks": [],
        "sections": [Section("Training", parts)],
    }
    return _rendered([chapter], refresh=REFRESH)


def _rendered(
    chapters: Sequence[Mapping[str, Any]],
    comparison: Sequence[Table | Figure | str] = (),
    items: Table | None = None,
    refresh: int = 0,
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "."), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    return environment.get_template(TEMPLATE).render(
        chapters=chapters,
        comparison=comparison,
        tripod=items,
        refresh=refresh,
        version=__version__,
        kind=lambda part: type(part).__name__,
    )


def title_of(result: Result) -> str:
    """Name a result: the method, and the data if they are known.

    Args:
        result: the result.

    Returns:
        The title.
    """
    data = (result.get("experiment") or {}).get("data", "")
    return f"{result['method']} on {data}" if data else str(result["method"])


def of_rich(table: RichTable, caption: str) -> Table:
    """Take over a table of the terminal.

    Args:
        table: the table.
        caption: what it shows.

    Returns:
        The same cells.
    """
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    return Table(caption, [_plain(column.header) for column in table.columns], [*zip(*columns, strict=True)])


def _plain(cell: Any) -> str:
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


class _Drawing:
    """Draws pictures as SVG, whose ids differ from those of the other pictures of the page."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, drawn: Drawn | None, title: str) -> Iterator[Figure]:
        if drawn is None:
            return
        svg = pictures.svg(drawn)
        self._number += 1
        own = f"f{self._number}-"
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{own}", svg)
        svg = re.sub(r"#000000\b", "currentColor", svg)  # so that it can be read on a dark page
        svg = re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"', r"<svg \1", svg, count=1)
        named = escape(title)
        svg = svg.replace("<svg ", f'<svg role="img" aria-labelledby="{own}title" ', 1)
        end = svg.index(">") + 1
        yield Figure(Markup(f'{svg[:end]}<title id="{own}title">{named}</title>{svg[end:]}'), title)


def _headline(result: Result) -> Iterator[tuple[str, str]]:
    """The few numbers that stand at the top: what, and how large."""
    final = result.get("final") or {}
    for name, interval in ((measure({"": result}), accuracy_interval(result)), ("auc", auc_interval(result))):
        if final.get(name) is not None:
            yield MEASURES[name], f"{final[name]:.3f}" + _within(interval)
    if final.get("evaluated"):
        yield "held-out rows", f"{final['evaluated']:,}"
    yield "hospitals", str(len(result.get("organizations") or result["history"][-1]["participants"]))
    yield "training rows", f"{result['history'][-1]['n']:,}"
    yield "rounds", str(result["history"][-1]["round"])
    if noisy(result):
        yield "epsilon", f"{result['privacy']['epsilon']:.3g} at delta {result['privacy']['delta']:g}"


def _within(interval: Sequence[float] | None) -> str:
    return "" if interval is None else " ({:.3f} to {:.3f})".format(*interval)


def _sections(result: Result, draw: _Drawing, target: float | None) -> Iterator[Section]:
    yield Section("Performance", [*_performance(result, draw)])
    yield Section("By hospital", [*_by_hospital(result, draw)])
    yield Section("Subgroups", [*_subgroups(result)])
    yield Section("Training", [*_training(result, draw, target)])
    yield Section("Coefficients", [*_coefficients(result, draw)])
    yield Section("Survival", [*_survival(result, draw)])
    yield Section("Importances", [*_importances(result, draw)])
    yield Section("Components", [*_components(result, draw)])
    yield Section("Hospitals", [*_hospitals(result)])
    yield Section("Privacy", [*_privacy(result)])
    yield Section("Settings", [_of_mapping(_used(result), "Settings of the job"), *_columns(result)])
    yield Section("To repeat this", [*_to_repeat(result), _of_mapping(_origin(result), "Where the result is from")])


def _performance(result: Result, draw: _Drawing) -> Iterator[str | Table | Figure]:
    if (table := tables.intervals_table({result["method"]: result})) is not None:
        yield of_rich(table, "95% confidence intervals on held-out rows")
        yield f"{MEANING}."
    if (table := tables.classes_table(result)) is not None:
        yield of_rich(table, "Held-out rows by class")
    curves = result.get("curves") or {}
    if curves.get("brier") is not None:
        yield f"Brier score {curves['brier']:.4f} (0 is perfect; always saying one half has 0.25)."
    yield from draw(pictures.scores(result), "Calibration, ROC and precision-recall curve of held-out rows")
    if (table := tables.calibration_table(result)) is not None:
        yield of_rich(table, "Predicted probabilities and how often they were right, on held-out rows")


def _by_hospital(result: Result, draw: _Drawing) -> Iterator[str | Table | Figure]:
    if (table := tables.hospitals_table(result)) is not None:
        yield of_rich(table, "Each hospital's own held-out rows, with 95% intervals")
        yield from draw(pictures.hospitals(result), "Measures by hospital, with 95% intervals")
    if (table := tables.personal_table(result)) is not None:
        yield of_rich(table, "The global model and the hospitals' own ones, on the same held-out rows")
    if said := (result.get("privacy") or {}).get("own_results"):
        yield f"{said[0].upper()}{said[1:]}."


def _subgroups(result: Result) -> Iterator[str | Table | Figure]:
    if (table := tables.subgroups_table(result)) is None:
        return
    found = result["subgroups"]
    yield of_rich(table, f"Held-out rows by {found['column']}")
    if found.get("suppressed"):
        yield f"Not shown, since hospitals have too few rows: {', '.join(map(str, found['suppressed']))}."


def _training(result: Result, draw: _Drawing, target: float | None) -> Iterator[str | Table | Figure]:
    yield from draw(pictures.curves({result["method"]: result}, target), "Accuracy and loss by round")
    yield from draw(pictures.distances(result), "Distance of each hospital's model, by round")
    yield of_rich(tables.rounds_table(result), "Rounds")


def _coefficients(result: Result, draw: _Drawing) -> Iterator[str | Table | Figure]:
    if (table := tables.coefficients_table(result)) is not None:
        yield of_rich(table, "Coefficients of columns as they are in the table, by one unit")
        yield f"{tables.fit_of(result)}."
        yield from draw(pictures.coefficients(result), "Coefficients with their intervals")
        return
    if not (found := coefficients.of(result)):
        return
    several, ratio = len({c.of for c in found}) > 1, _ratio(result["model"])
    label = result["data"].get("label") if result["data"].get("classes") else None
    of = f"{label}={found[0].of}" if label else found[0].of
    deviation = any(c.per_deviation is not None for c in found)
    compared = references(result)
    columns: dict[str, Callable[[coefficients.Coefficient], str]] = {"column": lambda c: c.column}
    if any(c.column in compared for c in found):
        columns["compared with"] = lambda c: str(compared[c.column].reference) if c.column in compared else ""
    if several:
        columns["class"] = lambda c: c.of
    columns["of one unit"] = lambda c: f"{c.value:+.4g}"
    if deviation:
        columns["of one deviation"] = lambda c: _signed(c.per_deviation)
    if ratio and not several:
        by = "one deviation" if deviation else "one unit"
        heading = f"{ratio} of {of}, {by}" if label else f"{ratio}, {by}"
        columns[heading] = lambda c: _odds(c.per_deviation if deviation else c.value, c.column)
    caption = "Coefficients by class" if several else f"Coefficients for {of}"
    yield Table(caption, [*columns], [[cell(c) for cell in columns.values()] for c in found])
    yield "Of columns as they are in the table, after the steps that cannot be folded in. They have no intervals."


def _ratio(model: Mapping[str, Any]) -> str:
    """What the exponential of a coefficient is; empty if it means nothing."""
    by_loss = {"poisson": "rate ratio", "cox": "hazard ratio"}
    return "odds ratio" if model["name"] == "logreg" else by_loss.get((model.get("loss") or {}).get("name", ""), "")


def _survival(result: Result, draw: _Drawing) -> Iterator[str | Table | Figure]:
    if (table := tables.survival_table(result)) is not None:
        yield f"{tables.survival_of(result)}."
        yield from draw(pictures.survival(result), "Survival curves, with numbers at risk below")
        yield of_rich(table, "Rows at risk when an interval begins, what happens in it, and survival at its end")
    if result.get("baseline"):
        caption = "Survival and cumulative hazard of a patient whose columns are at their means"
        yield from draw(pictures.baseline(result), caption)


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.4g}"


def _odds(value: float | None, column: str) -> str:
    return "" if value is None or column == "intercept" else f"{np.exp(value):.4g}"


def _importances(result: Result, draw: _Drawing) -> Iterator[str | Table | Figure]:
    if (table := tables.importances_table(result, most=50)) is not None:
        yield from draw(pictures.importances(result), "Gain of the columns that split most")
        yield of_rich(table, "Columns by the total gain of their splits")
        yield (
            "The gain of a split is how much it lowers the loss on the rows of the one hospital that grew the tree. It "
            "says what the model uses, not what causes the outcome; columns that say the same share their gain."
        )


def _components(result: Result, draw: _Drawing) -> Iterator[str | Table | Figure]:
    if (table := tables.components_table(result)) is not None:
        yield from draw(pictures.components(result), "Share of the variance by component")
        yield of_rich(table, "Principal components")


def _hospitals(result: Result) -> Iterator[str | Table | Figure]:
    if nodes := nodes_of(result):
        rows = [[name, f"{n:,}"] for name, n, took_part in nodes if took_part]
        yield Table("Rows of each hospital, held-out ones too", ["hospital", "rows"], rows)
        if unasked := [name for name, _, took_part in nodes if not took_part]:
            yield f"Not asked to take part: {', '.join(unasked)}."
    else:
        yield f"Trained: {', '.join(called(result, result.get('organizations') or []))}."
    if absent := result.get("undescribed"):
        cells = [[called(result, [a["organization_id"]])[0], a["reason"]] for a in absent]
        yield Table("Hospitals that took no part", ["hospital", "why"], cells)
    yield "Hospitals do not report how many values are missing. They send only what the preprocessing steps need."


def _privacy(result: Result) -> Iterator[str | Table | Figure]:
    said = result.get("privacy") or {}
    rows = {"aggregation": said.get("aggregation", "plain"), "central saw": said.get("central_saw", "")}
    if said.get("blocks"):
        rows["totals of hospitals"] = of_totals(said)
    if "auc" in said:
        rows["AUC"] = said["auc"]
    if noisy(result):
        rows |= {name: said[name] for name in ("epsilon", "delta", "adjacency", "accountant", "noised")}
        rows["hospitals at which a person may be"] = str(said.get("hospitals_a_person", 1))
        rows["noise shared in a block"] = "yes" if said["noise_shared_in_a_block"] else "no"
    s = summary(result)
    rows |= {
        "sent to hospitals": f"{s['bytes_down'] / 1e6:.3f} MB",
        "sent by hospitals": f"{s['bytes_up'] / 1e6:.3f} MB",
    }
    yield _of_mapping(rows, "What left the hospitals")
    yield from _limits(result)
    yield "A hospital's operator sees in the audit log what left, with `v6-federated audit`."


def _limits(result: Result) -> Iterator[str | Table]:
    """The limits of nodes on this machine; hospitals do not tell theirs."""
    groups = (result.get("experiment") or {}).get("limits")
    if not groups:
        yield "The limits in force are each hospital's own, and no hospital tells them."
        return
    for group in groups:
        whom = "all nodes" if len(groups) == 1 else ", ".join(called(result, group["organizations"]))
        values = group["limits"]
        there = [limit.name for limit in LIMITS if limit.name.lower() in values]
        rows = [["profile", str(values.get("profile"))], *([name, written(values[name.lower()])] for name in there)]
        yield Table(f"Limits in force at {whom}", ["limit", "value"], rows)


def _used(result: Result) -> dict[str, Any]:
    """The settings of a job, without those that have no effect on its method."""
    method = result["method"]
    unused = registry.unused(method) if method in registry.names() else set()
    return {name: value for name, value in result["settings"].items() if name not in unused}


def _columns(result: Result) -> Iterator[str]:
    data = result.get("data") or {}
    if features := data.get("features"):
        yield f"Label {data.get('label') or '(none)'}; {len(features)} columns: {', '.join(map(str, features))}."


def _to_repeat(result: Result) -> Iterator[str | Command]:
    if not (command := command_of(result)):
        yield "The command line has no command for this training."
        return
    yield Command(command)
    if "task" in (result.get("experiment") or {}):
        yield (
            "It sends a new task. Its numbers are the same only if the hospitals' rows are, and under masks or the "
            "profile careful only nearly: nodes then shuffle in an order of their own."
        )
    else:
        yield (
            "If the data are files, write their paths after --data. The digest below is that of the rows and of how "
            "they were dealt."
        )
        if " --study " in command:
            yield "If the study had a schema, write its path after --schema."


def _origin(result: Result) -> dict[str, Any]:
    experiment = {k: v for k, v in (result.get("experiment") or {}).items() if k not in ELSEWHERE}
    known = {name: result[name] for name in ("started", "ended") if name in result}
    image = {f"image {name}": value for name, value in (result.get("image") or {}).items()}
    return {**experiment, "seed": result["settings"]["seed"], **known, **image, **(result.get("versions") or {})}


def _of_mapping(values: Mapping[str, Any], caption: str) -> Table:
    shown = {name: value for name, value in values.items() if value not in (None, "", [], {})}
    return Table(caption, ["", ""], [[name.replace("_", " "), _shown(value)] for name, value in shown.items()])


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={_shown(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) and np.isfinite(value) else str(value)


def _comparison(results: Mapping[str, Result], draw: _Drawing, target: float | None) -> Iterator[Table | Figure | str]:
    yield of_rich(tables.table(results, target), "Results side by side")
    for fits in tables.regressions_tables(results):
        yield of_rich(fits, "How well the regressions fit; of the same rows, a smaller AIC is better")
    yield from (f"{line[0].upper()}{line[1:]}." for line in nested.other_rows(results))
    if (table := tables.nested_table(results)) is not None:
        yield of_rich(table, "Do the further columns say more than chance? Tests that their coefficients are 0")
    if (table := tables.medians_table(results)) is not None:
        yield of_rich(table, "Survival: medians with their intervals")
    if (table := tables.intervals_table(results)) is not None:
        yield of_rich(table, "95% confidence intervals on held-out rows")
        yield f"{MEANING}."
    yield from draw(pictures.comparison(results, target), "Results by rounds and by what was sent")
