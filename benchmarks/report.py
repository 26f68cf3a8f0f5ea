"""``python -m benchmarks report``: how many numbers are near the documents', and all pages in one. Nothing is run.

``README.md`` among the results has the counts and lists the pages; ``REPORT.md`` and ``REPORT.html`` have all pages.
The counts come from the JSON file that each page has.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markupsafe import Markup

from benchmarks import runs, tables
from benchmarks.comparisons import RULES, Comparison, Count, count
from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole

# the pages in order, and what each is about
PAGES = {
    "mcmahan2017": "FedAvg and FedSGD: rounds of the 2NN and the CNN to a target accuracy, and Figure 1",
    "mcmahan2017_figures": "the 2NN's training loss by round, with many local epochs, and with fewer in later rounds",
    "mcmahan2017_shakespeare": "FedAvg with an LSTM, by speaking role; only begun",
    "mcmahan2017_cifar": "FedAvg with the CNN for CIFAR-10 beside centralized SGD: the first rounds",
    "mcmahan2017_words": "FedAvg with the LSTM on words, here Shakespeare's, beside centralized SGD: the first rounds",
    "nilsson2018": "FedAvg, FSVRG and CO-OP with equal numbers of uploads, and a race with slow nodes",
    "nilsson2018_cv": "the same methods and centralized training by cross-validation, with the paper's test",
    "pfitzner_arnrich": "FedAvg, Co-Learning and LoAdaBoost: rounds of a CNN to 97%",
    "garst2021": "linear models and small networks over ten nodes, FedAvg and SCAFFOLD, beside pooled rows",
    "garst2021-fashion_mnist": "the same on Fashion-MNIST",
    "garst2021_gbdt": "boosted trees on 4 against 9 of MNIST, beside LightGBM on pooled rows",
    "garst2021_gbdt-fashion_mnist": "the same on Fashion-MNIST, also with nodes that hold different classes",
    "garst2021_pca-golub": "what PCA sends and needs as columns grow; classifiers on components of gene expressions",
    "trees-small": "boosted trees in all modes beside LightGBM, on heart disease, digits and diabetes",
    "trees-fashion_mnist": "the same on a part of Fashion-MNIST",
    "log_rank": "how often the log-rank test of `km` rejects where groups do not differ, beside the exact test",
    "cox_bins": "coefficients of proportional hazards on bins of time beside those of Cox's model",
    "glm": "coefficients and standard errors beside statsmodels on pooled rows, with rounds and bytes",
    "reddy2020": "what dynamic averaging saves, and what it costs, on MNIST",
    "reddy2020-fashion_mnist": "the same on Fashion-MNIST",
    "flamby-heart_disease": "FLamby's strategies with its own random numbers; our methods on its heart disease data",
    "flamby-tcga_brca": "the same strategies on FLamby's survival data of six regions",
    "cifar10": "a residual network on images, federated and on the pooled rows: the first rounds",
    "one_label": "FedAvg and SCAFFOLD with one label a node: where SCAFFOLD wins, and where its loss explodes",
    "careful": "accuracy, AUC and loss of all methods under the profile careful beside trusting",
    "folding": "what folding and rounding by careful nodes do to coefficients, p-values, accuracy, AUC and medians",
    "masked": "rounds of the 2NN with secure aggregation in ten blocks, beside plain sums of the same blocks",
    "secagg_cost": "seconds, bytes and requests of masked answers beside plain ones",
    "poisoning": "what one dishonest node of ten costs each method while it stays within the bounds",
    "dishonest_analyses": "what one dishonest hospital of four can make of a glm, a cox and a km",
    "attacks": "what a dishonest researcher gets from a node, attack by attack, under each privacy profile",
    "private_glm": "errors and coverage of regression coefficients by epsilon, with intervals that count the noise",
    "private_utility": "accuracy on MNIST by epsilon, with noise that nodes share and with each node's own",
    "private_utility-fashion_mnist": "a linear model on Fashion-MNIST at epsilon 3, with noise that nodes share",
    "private_utility-heart_disease": "logistic regression and boosted trees on heart disease by epsilon",
    "canaries": "an audit of the noise: the faults that it catches, and its false alarms",
    "private_functions": "an audit of each private function, and the lower bound of epsilon that it measures",
    "compression": "accuracy and bytes of FedAvg with updates of 16 or 8 bits, or the largest values alone",
    "clipping": "what clipping each row's gradient costs beside a plain step",
    "cost": "the mock network beside a plain PyTorch loop and beside vantage6's own mock client",
    "speed": "seconds of a round beside pfl-research, Flower and a plain PyTorch loop",
    "scale": "seconds and memory of up to 100,000 mock nodes",
    "network": "a round on a real network beside an algorithm that does nothing; sizes of the images",
    "network_jobs-heart_disease": "whole jobs on a real network of four nodes: seconds until their results are there",
}


@dataclass(frozen=True)
class Stored:
    """A page as it is kept.

    Attributes:
        name: of its files, without their endings.
        title: its heading.
        about: what it is about.
        finished: whether all its rows and seeds were run.
        text: its Markdown.
        counts: how many of its numbers are near the document's, by rule.
    """

    name: str
    title: str
    about: str
    finished: bool
    text: str
    counts: Sequence[Count]


def stored(folder: Path) -> list[Stored]:
    """The pages in a folder of results; the reduced one if a benchmark was not run in full.

    Raises:
        SafeError: the folder has no page.
    """
    found = []
    for name, about in PAGES.items():
        for file in (folder / f"{name}.md", folder / f"{name}-reduced.md"):
            if file.exists():
                known: dict[str, Any] = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
                counts = count(map(Comparison.from_json, known["comparisons"]))
                finished = known["finished"] and file.stem == name
                text = file.read_text(encoding="utf-8")
                found.append(Stored(file.stem, known["title"], about, finished, text, counts))
                break
    if not found:
        raise SafeError(
            f"{folder} has no page of results. Give --out the folder that benchmarks have written to, or make one: "
            "python -m benchmarks all --data FOLDER"
        )
    return found


def headline(pages: Sequence[Stored], to: str = "") -> str:
    """The table of counts. Its links begin with ``to``, the way from where it stands to the pages."""
    counts = [count for page in pages for count in page.counts]
    of, one_seed = sum(count.of for count in counts), sum(count.one_seed for count in counts)
    return tables.render("counts.md", pages=pages, to=to, of=of, one_seed=one_seed)


def summary(pages: Sequence[Stored]) -> str:
    """The counts and the list of pages."""
    return tables.render("summary.md", counts=headline(pages), pages=pages, rules=RULES)


def whole(pages: Sequence[Stored]) -> str:
    """The summary and all pages, as Markdown."""
    return "\n\n".join(re.sub("^#", "##" if i else "#", text, flags=re.M) for i, text in enumerate(_texts(pages)))


def _texts(pages: Sequence[Stored]) -> Sequence[str]:
    return [text.strip("\n") for text in (summary(pages), *(page.text for page in pages))]


def html(text: str, folder: Path) -> str:
    """Markdown as one HTML file that holds its pictures, which lie in a folder."""

    def image(self: RendererHTML, tokens: Any, index: int, options: Any, env: Any) -> str:
        file = folder / tokens[index].attrs["src"]
        if file.suffix == ".png" and file.exists():
            tokens[index].attrs["src"] = f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"
        return RendererHTML.image(self, tokens, index, options, env)

    markdown = MarkdownIt("commonmark").enable("table")
    markdown.add_render_rule("image", image)
    return tables.render("report.html", body=Markup(markdown.render(text)))


def write() -> Path:
    """Write ``README.md``, ``REPORT.md`` and ``REPORT.html`` among the results; returns the first."""
    pages = stored(runs.RESULTS)
    text = whole(pages) + "\n"
    write_whole(runs.RESULTS / "REPORT.md", text)
    write_whole(runs.RESULTS / "REPORT.html", html(text, runs.RESULTS))
    write_whole(runs.RESULTS / "README.md", summary(pages))
    return runs.RESULTS / "README.md"
