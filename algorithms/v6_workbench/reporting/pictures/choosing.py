"""What to choose: methods by their scores, settings by what a search has tried, rounds by their noise."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from v6_workbench.reporting.pictures.style import (
    COLOURS,
    DASHED,
    legend,
    line,
    open_frame,
    panel_for_each,
    panels,
    plain,
    wrapped,
)
from v6_workbench.reporting.summary import MEASURES, Try, Verdict

if TYPE_CHECKING:
    from v6_workbench.reporting.noise import Alternative  # slow to import


def posteriors(found: Mapping[tuple[str, str], Verdict], rope: float, what: str = "accuracy") -> Figure:
    """Draw the posterior density of the mean difference in score of each two methods (like Nilsson's Figure 3).

    Args:
        found: a verdict for each pair of methods.
        rope: region of practical equivalence, a difference in score.
        what: name of the score.

    Returns:
        The figure.
    """
    from scipy import stats  # slow to import, and needed only here

    figure, axes = panel_for_each(len(found), 4.2, 3.1)
    for axis, ((first, second), verdict) in zip(axes.flat, found.items(), strict=False):
        middle, deviation = verdict.difference, float(np.sqrt(verdict.posterior.var))
        # four standard deviations, and the region
        reach = max(4 * deviation, 1.5 * rope, 1e-6)
        d = np.linspace(min(middle - reach, -1.5 * rope), max(middle + reach, 1.5 * rope), 400)
        if deviation:
            # baycomp's posterior is a Student distribution of second minus first
            density = stats.t.pdf(d, verdict.posterior.df, middle, deviation)
            axis.plot(100 * d, density, color=COLOURS[0], linewidth=1.5)
            axis.fill_between(100 * d, density, color=COLOURS[5], alpha=0.5)
        else:
            axis.axvline(100 * middle, color=COLOURS[0], linewidth=1.5)
        if rope:
            label = f"practically equivalent (up to ±{100 * rope:g})" if axis is axes.flat[0] else None
            axis.axvspan(-100 * rope, 100 * rope, color=COLOURS[4], alpha=0.25, label=label)
        axis.set_yticks([])
        axis.set_ylim(bottom=0)
        chances = f"better {verdict.better:.0%}, equal {verdict.equal:.0%}, worse {verdict.worse:.0%}"
        axis.set_title(f"{wrapped(first)}\n{wrapped(f'minus {second}')}\n{chances}", fontsize=9)
        axis.set_xlabel(f"difference in {what}, percentage points", fontsize=9)
        axis.spines[["top", "right", "left"]].set_visible(False)
    if rope:
        figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    return figure


def noise(found: "Mapping[str, Sequence[Alternative]]", rounds: int) -> Figure:
    """Draw the noise of jobs of the same cost by their rounds: in a step, and in the whole job.

    Args:
        found: by what is done, the jobs by their rounds.
        rounds: the rounds to mark.

    Returns:
        The figure.
    """
    figure, (both,) = panels(1, 2, (10, 4))
    titles = {"of_step": "in a step", "of_job": "in the job"}
    for axis, (attribute, title) in zip(both, titles.items(), strict=True):
        for i, (name, jobs) in enumerate(found.items()):
            line(axis, [job.rounds for job in jobs], [getattr(job, attribute) for job in jobs], name, i)
        axis.set(xscale="log", xlabel="rounds", ylabel=f"noise / largest signal, {title}")
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.axvline(rounds, color="0.4", **DASHED)
        open_frame(axis)
    both[0].set_yscale("log")  # from a step on all rows to one on few
    both[0].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    both[1].set_ylim(bottom=0)
    legend(figure, both[0])
    return figure


def search(tries: Sequence[Try], of: str = "accuracy") -> Figure | None:
    """Draw the score of each try by each setting that has several values; the best is filled.

    Args:
        tries: the tries; those that failed are left out.
        of: what they were scored by.

    Returns:
        The figure; None if no try was trained.
    """
    scored = [one for one in tries if not one.failed]
    if not scored:
        return None
    best = max(scored, key=lambda one: one.score)
    names = [name for name in best.settings if len({str(one.settings[name]) for one in tries}) > 1] or [*best.settings]
    figure, axes = panel_for_each(len(names), 3.6, 3.2, sharey=True)
    sign = -1 if of == "loss" else 1
    for axis, name in zip(axes.flat, names, strict=False):
        values = [one.settings[name] for one in scored]
        numbers = all(type(v) in (int, float) for v in values)
        if not numbers:
            words = [*dict.fromkeys(map(str, values))]
            axis.set_xticks(range(len(words)), [wrapped(word) for word in words], fontsize=8)
        elif min(values) > 0 and max(values) >= 10 * min(values):
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        if numbers and len({*values}) <= 6:
            axis.set_xticks(sorted({*values}), minor=False)
            axis.set_xticks([], minor=True)
        for one, v in zip(scored, values, strict=True):
            x = v if numbers else words.index(str(v))
            fill_with = COLOURS[0] if one is best else "none"
            axis.plot(x, sign * one.score, "o", color=COLOURS[0], markerfacecolor=fill_with, markersize=6)
        axis.set_xlabel(plain(name))
        open_frame(axis)
    for row in axes:
        row[0].set_ylabel(f"{MEASURES.get(of, of)} on rows\nkept for choosing")
    return figure
