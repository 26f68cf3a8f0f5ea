"""``--page``: a page of the rounds that is written anew after each."""

import pytest

from v6_workbench.cli import live_page
from v6_workbench.cli.live_page import LivePage
from v6_workbench.cli.main import main
from v6_workbench.reporting import page

RELOADS = '<meta http-equiv="refresh" content="5">'
JOB = ["run", "fedavg", "--data", "breast-cancer", "--nodes", "3", "--preprocess", "standardize", "--rounds", "3"]


def test_it_is_written_after_each_round_and_ends_with_the_result(tmp_path, monkeypatch, capsys):
    file, seen = tmp_path / "rounds.html", []
    write = live_page.write_whole
    monkeypatch.setattr(live_page, "write_whole", lambda path, text: (seen.append(text), write(path, text)))
    assert main([*JOB, "--page", str(file)]) == 0
    *running, last = seen
    assert [text.count(RELOADS) for text in running] == [1] * 4  # before the first round, and after each of three
    assert [f"<dd>{t} of 3</dd>" in text for t, text in enumerate(running)] == [True] * 4
    assert "No round is finished yet." in running[0] and "Accuracy and loss by round" in running[3]
    assert RELOADS not in last and last == file.read_text() and "95% confidence intervals" in last
    assert f"the rounds as a page: {file}" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_does_not_end_the_job(tmp_path, monkeypatch, capsys):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(live_page, "write_whole", full)
    assert main([*JOB, "--page", str(tmp_path / "rounds.html")]) == 0
    said = capsys.readouterr().err
    assert said.count("cannot be written: No space left on device; the job goes on without it") == 1


@pytest.mark.parametrize("name", ["rounds.png", "rounds", "."])
def test_another_kind_of_file_is_refused(tmp_path, name, capsys):
    assert main([*JOB, "--page", str(tmp_path / name)]) == 2
    assert "expected a file that ends in .html" in capsys.readouterr().err


def test_one_page_is_of_one_job(tmp_path, capsys):
    assert main([*JOB, "--repeats", "2", "--page", str(tmp_path / "rounds.html")]) == 2
    assert "cannot be used with --repeats" in capsys.readouterr().err


def test_rows_of_a_task_s_log_are_enough(tmp_path):
    """``watch`` knows the rows alone: of a regression, and of components, which have no accuracy."""
    row = {"round": 1, "participants": [1, 2], "n": 90, "train_loss": 3.0, "loss": 2.5, "accuracy": None, "auc": None}
    row |= {"r2": 0.4, "evaluated": 20, "bytes_up": 1000, "bytes_down": 2000, "seconds": 0.2, "missing": []}
    text = page.live("gbdt", [{**row, "unevaluated": []}], None)
    assert "<dd>0.400</dd>" in text and "<dd>1</dd>" in text
    shown = LivePage(None, "pca", 2)
    shown.on_round(lambda row: None)(row)  # no file, and nothing is drawn
