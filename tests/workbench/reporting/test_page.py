"""The page of a result: it stands alone, whatever the result is and whatever columns and hospitals are called."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from helpers import table, train

from v6_workbench.reporting import page
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

VOID = {"meta", "br", "img", "link", "hr"}
EVIL = "<script>alert(1)</script>"
CURVES = {
    "calibration": [{"lower": 0.0, "upper": 0.5, "n": 20, "predicted": 0.2, "observed": 0.25}],
    "roc": [[0.0, 0.0], [0.1, 0.8], [1.0, 1.0]],
    "precision_recall": [[0.0, 1.0], [1.0, 0.5]],
    "brier": 0.12,
}
BY_HOSPITAL = [
    {"organization": 1, "evaluated": 30, "accuracy": 0.9, "auc": 0.93, "loss": 0.3, "brier": 0.1, "auc_variance": None,
     "confusion": [[14, 1], [2, 13]]},
    {"organization": 2, "evaluated": 20, "accuracy": 0.8, "auc": None, "loss": 0.5, "brier": None,
     "confusion": [[16, 0], [4, 0]]},
]  # fmt: skip


class Reader(HTMLParser):
    """Collects what a page holds, and fails if tags are not closed."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.loads, self.scripts = [], [], [], [], 0

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.append(found["id"])
        self.links += [v for k, v in attributes if k in ("href", "xlink:href", "aria-labelledby")]
        self.loads += [v for k, v in attributes if k == "src"]
        self.scripts += tag == "script" or any(k.startswith("on") for k, _ in attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        before = [*self.open]
        self.handle_starttag(tag, attributes)
        self.open = before

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag


def read(text):
    found = Reader()
    found.feed(text)
    assert not found.open and not found.scripts and not found.loads
    assert len({*found.ids}) == len(found.ids)
    for link in found.links:
        assert link.removeprefix("#") in found.ids or link.startswith("data:"), link
    return found


@pytest.fixture(scope="module")
def trained():
    rows = table(120, seed=1).rename(columns={"x0": EVIL})
    rows["label"] = rows["label"].map({0: "well", 1: EVIL})
    named = rows.assign(hospital=[f"{EVIL} {i % 3}" for i in range(120)])
    experiment = Experiment(Dataset(EVIL, named[["hospital", *rows.columns]]), 3, "column:hospital", 0, 0)
    return experiment.federated("fedavg", {"rounds": 3, "preprocess": ["standardize"]})


def results(trained):
    nodes = {k: table(40, seed=k) for k in (1, 2, 3)}
    numbers = {k: rows.assign(label=rows["x0"] * 2.0) for k, rows in nodes.items()}
    whole = {"by_hospital": BY_HOSPITAL, "curves": CURVES}
    group = {"level": EVIL, "evaluated": 20, "accuracy": 0.5, "confusion": [[5, 5], [5, 5]]}
    groups = {"column": EVIL, "rows": [group], "suppressed": [EVIL]}
    return {
        "trained": trained,
        "whole": {**trained, **whole, "subgroups": groups},
        "masked": train("v6_fedavg", nodes, rounds=2, aggregation="masked"),
        "noise": train("v6_fedavg", nodes, rounds=2, clip=1.0, noise=5.0, aggregation="masked"),
        "trees": train("v6_gbdt", numbers, rounds=2, objective="regression"),
        "components": train("v6_pca", nodes, components=2),
        "network": train("v6_scaffold", nodes, rounds=2, model="2nn"),
        "not evaluated": train("v6_fedavg", nodes, rounds=1, holdout=0),
    }


@pytest.fixture(scope="module")
def every(trained):
    return results(trained)


@pytest.fixture(params=["trained", "whole", "masked", "noise", "trees", "components", "network", "not evaluated"])
def result(every, request):
    return every[request.param]


def test_each_kind_of_result_has_a_page(result):
    found = read(page.page({"it": result}))
    assert {"settings-1", "privacy-1", "tripod"} <= {*found.ids}


def test_several_results_share_a_page_and_no_ids(every):
    text = page.page(every)
    read(text)
    assert text.count("<article") == len(every) and "Results side by side" in text


def test_names_are_text(every):
    text = page.page({EVIL: every["whole"]})
    assert "<script" not in text and text.count("&lt;script&gt;") > 8


def test_what_is_there_is_shown(every):
    text = page.page({"it": every["whole"]})
    for words in ("0.930 (0.746 to 0.984)", "Brier score 0.1200", "Not shown, since", "one deviation"):
        assert words in text, words
    assert "epsilon" in page.page({"it": every["noise"]})


def test_nothing_is_loaded(every):
    """Everything that a browser would fetch, in attributes and in styles, is in the page."""
    text = page.page(every)
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:|//)", text)
    assert not re.findall(r"url\((?!['\"]?(?:#|data:))", text) and "@import" not in text


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MEASURED = """<!doctype html><iframe id=page style="width:360px;height:800px;border:0" srcdoc="{}"></iframe>
<script>onload = () => {{ const html = document.getElementById("page").contentDocument.documentElement;
document.title = JSON.stringify([html.scrollWidth, html.clientWidth,
[...html.querySelectorAll("svg")].every(s => s.querySelector("title").textContent),
[...html.querySelectorAll("a,[tabindex]")].length]); }}</script>"""


# the other tests of the page need no browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_shows_it_at_360_pixels(every, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(MEASURED.format(page.page(every).replace("&", "&amp;").replace('"', "&quot;")))
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
        "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000",
        "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    width, there, named, reached = json.loads(re.search("<title>(.*?)</title>", done.stdout)[1])
    assert width <= there <= 360 and named and reached > 40


def test_on_paper_only_long_tables_are_divided():
    """A table of up to 25 lines stays on one sheet; longer ones repeat their head."""
    short, long = (page.Table("t", ["a", "b"], [["1", "2"]] * n) for n in (page.SHEET, page.SHEET + 1))
    assert not short.long and long.long
    text = page.page({"it": train("v6_fedavg", {k: table(40, seed=k) for k in (1, 2)}, rounds=1)})
    assert 'class="scroll long" role="region" aria-label="Settings of the job"' in text
    assert 'class="scroll" role="region" aria-label="What left the hospitals"' in text
    assert ".scroll.long { break-inside: auto; }" in text
