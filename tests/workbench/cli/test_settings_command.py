"""``settings``: the settings of a method."""

import json

import pytest
from helpers import table, train

from v6_workbench import registry
from v6_workbench.cli.main import main

NEEDED = {"components": 2}  # settings without which 40 rows are too few
BY_THE_DATA = {"label", "rounds", "organizations", "evaluators"}


@pytest.mark.parametrize("method", registry.names())
def test_every_setting_is_shown_with_the_default_that_a_run_has(method, capsys):
    status = main(["settings", method])
    shown, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    shown, _, sums = shown.partition("Secure aggregation is ")
    assert sums.startswith("not possible: " if registry.single_answers(method) else "possible: ")
    lines = [line for line in shown.splitlines() if not line.startswith(" ")]  # a long meaning goes on below
    fields = registry.settings_of(method).model_fields.keys() - registry.unused(method)
    assert status == 0 and sorted(line.split()[0] for line in lines[1:]) == sorted(fields)
    defaults = json.loads(last)["defaults"]
    assert fields - defaults.keys() <= {"rounds"} and defaults.keys() <= fields
    own = {name: value for name, value in NEEDED.items() if name in fields}
    own |= {"label": "label"} if registry.times_only(method) else {}
    rows = {k: table(40, seed=k) for k in (1, 2)}
    used = train(registry.package_of(method).__name__, rows, rounds=2, **own)["settings"]
    used = {name: value for name, value in used.items() if name in fields - {*BY_THE_DATA, *own}}
    assert used == {name: defaults[name] for name in used} and len(used) >= 10


@pytest.mark.parametrize("method", registry.names())
def test_it_says_whether_central_may_see_sums_only(method, capsys):
    assert main(["settings", method]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    shown, accepted = " ".join(" ".join(lines).split()), json.loads(last)["aggregation"]
    if reason := registry.single_answers(method):
        always = registry.central_of(method).single_answers  # whatever the settings are
        assert accepted == ["auto", "plain", *([] if always else ["masked", "pinned"])]
        plain = "The nodes' operators must set V6_FEDERATED_AGGREGATION=plain."
        assert f"Secure aggregation is not possible: {reason}. {plain}" in shown
    else:
        assert accepted == ["auto", "plain", "masked", "pinned"]
        assert "Secure aggregation is possible: aggregation=masked, or pinned in a study" in shown


def test_an_unknown_method_is_refused(refused):
    refused("unknown method 'fedprox'; expected one of", "settings", "fedprox")
