"""``audit`` shows the ledger of a privacy budget: by job, in all, and its head."""

import json
import sqlite3

import pytest

from v6_federated.noise.ledger import NAME, Ledger
from v6_federated.noise.plan import Plan
from v6_federated.rules.audit import NAME as LOG

FIRST = Plan(clip=1.0, noise=20.0, steps=30, evaluations=3, evaluation_noise=10.0)
SECOND = Plan(clip=1.0, noise=40.0, steps=100)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("EPSILON", "DELTA"):
        monkeypatch.delenv(f"V6_FEDERATED_{name}", raising=False)


@pytest.fixture
def folder(tmp_path):
    ledger = Ledger(tmp_path, 3.0, 1e-6)
    ledger.reserve("a1b2", FIRST)
    ledger.use("a1b2", FIRST, b"first request", steps=1)
    ledger.use("a1b2", FIRST, b"second request", steps=1, evaluations=1)
    ledger.reserve("c3d4", SECOND)
    return tmp_path


def test_jobs_what_is_spent_and_the_head(call, folder):
    known = Ledger(folder, 3.0, 1e-6).spent()
    status, lines, answer, _ = call("audit", folder, "--epsilon", 3, "--delta", 1e-6)
    assert status == 0
    found = answer["ledger"]
    assert (found["budget"], found["delta"], found["head"]) == (3.0, 1e-6, known.head)
    assert found["epsilon"] == known.epsilon and found["left"] == 3 - known.epsilon
    assert [job["job"] for job in found["jobs"]] == ["a1b2", "c3d4"]
    assert found["jobs"][0]["plan"] == FIRST.to_json()
    assert f"2 job(s) have reserved epsilon {known.epsilon:.4g} of 3 together" in lines[0]
    assert f"{3 - known.epsilon:.4g} is left" in lines[0]
    alone = known.jobs[0].epsilon
    assert lines[1].startswith(f"  job a1b2: epsilon {alone:.4g} alone, reserved 20")
    assert f"used: 2 of 30 steps, 1 of 3 evaluations; head {known.jobs[0].head[:16]}" in lines[1]
    assert lines[2].endswith(f"used: 0 of 100 steps; head {known.head[:16]}")
    assert known.jobs[0].head != known.head == known.jobs[1].head
    assert lines[-1].startswith(f"head {known.head}: note it outside this folder")


def test_one_job_is_shown_and_all_count(call, folder):
    _, lines, answer, _ = call("audit", folder, "--job", "c3", "--epsilon", 3)
    assert [job["job"] for job in answer["ledger"]["jobs"]] == ["c3d4"]
    assert answer["ledger"]["epsilon"] == Ledger(folder, 3.0, 1e-5).spent().epsilon
    assert not any("a1b2" in line for line in lines) and "1e-05 is assumed" in lines[0]


def test_the_budget_is_that_of_the_environment_unless_an_option_says_it(call, folder, monkeypatch):
    monkeypatch.setenv("V6_FEDERATED_EPSILON", "4")
    monkeypatch.setenv("V6_FEDERATED_DELTA", "1e-6")
    found = call("audit", folder)[2]["ledger"]
    assert (found["budget"], found["delta"]) == (4.0, 1e-6)
    found = call("audit", folder, "--epsilon", 5, "--delta", 1e-5)[2]["ledger"]
    assert (found["budget"], found["delta"]) == (5.0, 1e-5)
    monkeypatch.setenv("V6_FEDERATED_EPSILON", "four")
    status, _, _, error = call("audit", folder)
    assert status == 2 and "V6_FEDERATED_EPSILON must be a number above 0" in error


def test_an_unknown_budget_is_said(call, folder):
    status, lines, answer, _ = call("audit", folder)
    assert status == 0 and "The budget is not known here: give --epsilon and --delta" in lines[0]
    assert (answer["ledger"]["budget"], answer["ledger"]["left"], answer["ledger"]["delta"]) == (None, None, 1e-5)


@pytest.mark.parametrize("option", ["--epsilon", "--delta"])
def test_a_wrong_number_is_one_line(call, folder, option):
    status, _, _, error = call("audit", folder, option, "-1")
    assert status == 2 and f"{option} must be a number above 0" in error


def test_a_changed_ledger_is_one_line_and_the_log_is_shown(call, folder):
    cheap = json.dumps(Plan(clip=1.0, noise=9e5, steps=1).to_json())
    with sqlite3.connect(folder / NAME) as database:
        database.execute("UPDATE reservation SET plan = ? WHERE job = 'c3d4'", (cheap,))
    (folder / LOG).touch()
    status, lines, answer, _ = call("audit", folder)
    assert status == 1 and len(lines) == 2 and "0 job(s)" in lines[0]
    assert "has been changed: reservation 2 of 2 does not follow from those before" in lines[1]
    assert answer["answers"] == 0 and "has been changed" in answer["ledger"]["error"]


def test_a_folder_without_a_ledger_says_nothing_of_it(call, tmp_path):
    (tmp_path / LOG).touch()
    status, lines, answer, _ = call("audit", tmp_path)
    assert status == 0 and len(lines) == 1 and "ledger" not in answer
