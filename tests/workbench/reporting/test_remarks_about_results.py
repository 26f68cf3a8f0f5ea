"""What a result says about itself besides its numbers."""

import json

from v6_workbench.cli.main import main
from v6_workbench.reporting import diagnostics


def test_a_job_that_stopped_says_so_wherever_it_is_shown(tmp_path, capsys, hospitals):
    from helpers import train

    result = train("v6_fedavg", hospitals, rounds=2) | {"stopped": "round 3: the operator of this node has stopped it"}
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert main(["report", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0
    says = "the job stopped: round 3: the operator of this node has stopped it; the model is that of round 2"
    assert says in " ".join(capsys.readouterr().err.split())
    assert says in (tmp_path / "page.html").read_text()


def test_counts_that_vary_more_than_poissons_are_named():
    result = {"settings": {"family": "poisson"}, "deviance": 900.0, "df_residual": 100}
    [line] = diagnostics.overdispersed(result)
    assert "deviance 900 on 100 degrees of freedom" in line and "about 3.0 times too small" in line
    assert diagnostics.overdispersed({**result, "deviance": 110.0}) == []
    assert diagnostics.overdispersed({**result, "settings": {"family": "gaussian"}}) == []


def test_times_without_a_column_of_events_are_named():
    [line] = diagnostics.without_event({"method": "km", "settings": {"event": None}})
    assert "all of them count" in line
    assert diagnostics.without_event({"method": "km", "settings": {"event": "died"}}) == []
    assert diagnostics.without_event({"method": "fedavg", "settings": {}}) == []
