"""A job is answered by the plan that it has reserved, and jobs with a plan run only where something counts it.

Each test is an attack that once worked: a plan with so much noise that it costs nothing was reserved, and another used.
"""

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.attacks import transport
from benchmarks.attacks.researcher import TARGET, Refused, Researcher, hospitals

from v6_federated.gate import under_masks
from v6_federated.messages import codec
from v6_federated.noise.ledger import Ledger
from v6_federated.noise.plan import Plan

CHEAP = Plan(clip=4.0, noise=1e6, steps=20)
USED = replace(CHEAP, noise=0.1)
MODEL = {"name": "svm", "features": 2, "classes": 2}
W = np.zeros(3)
OTHER = "has reserved another privacy plan"


class Plain(Researcher):
    """Hospitals with a budget that answer one by one."""

    mode = "plain"

    @property
    def environment(self):
        return {**super().environment, "V6_FEDERATED_AGGREGATION": "plain"}


class Masked(Researcher):
    """Hospitals with a budget, of which one takes part, and the researcher invents the others."""

    mode, pinned, block, members = "masked", False, (TARGET,), (TARGET,)

    def network(self, package):
        for k in self.tables:
            (self.hospital(k) / "schema.json").write_text(self.schema.text())
        return super().network(package)


def of(researcher, plan, package="v6_fedavg", **parts):
    data = {**researcher.spec, "features": researcher.features[:2]}
    return researcher.job(package, data=data, **{"model": MODEL, "privacy": plan.to_json(), **parts})


def used(researcher):
    [job] = Ledger(researcher.hospital(TARGET), 1.0, 1e-5).spent().jobs
    return job.plan, job.steps


def gradient(researcher, agreed, plan):
    request = {"job": of(researcher, plan), "arrays": {"weights": W}, "to": researcher.block}
    return agreed.opened(*researcher.sums("v6_fedavg", "noisy_gradient", agreed, **request))[:2]


def test_a_request_brings_no_plan_of_its_own():
    with Plain(hospitals(rows=160), "private 1") as researcher:
        job = of(researcher, CHEAP, "v6_coop")
        step = {"round": 1, "local": {"lr": 1.0}, "arrays": codec.encode({"weights": W}, "float64")}
        researcher.send("v6_coop", "describe", [TARGET], job={**job, "model": None}, round=0, raw=True)
        for other in (USED, replace(CHEAP, clip=8.0), replace(CHEAP, steps=21)):
            with pytest.raises(Refused, match=OTHER):
                researcher.send("v6_coop", "client_update", [TARGET], job={**job, "privacy": other.to_json()}, **step)
        assert used(researcher) == (CHEAP, 0)
        researcher.send("v6_coop", "client_update", [TARGET], job=job, **step)
        assert used(researcher) == (CHEAP, 1)


def test_a_job_that_was_forgotten_agrees_on_no_other_plan():
    """Once the node kept the second agreement although it had refused its plan."""
    with Masked(hospitals(rows=160), "private 1") as researcher:
        agreed = transport.agree(researcher, "v6_fedavg", [TARGET], job=of(researcher, CHEAP))
        again = of(researcher, USED, key=agreed.key, aggregation="masked", participants=agreed.participants)
        researcher.send("v6_fedavg", "forget", [TARGET], job=again, round=1)
        with pytest.raises(Refused, match=OTHER):
            transport.agree(researcher, "v6_fedavg", [TARGET], key=agreed.key, job=again)
        with pytest.raises(Refused, match="have not agreed on keys"):
            gradient(researcher, agreed, USED)
        job = {**again, "privacy": CHEAP.to_json()}
        agreed = transport.agree(researcher, "v6_fedavg", [TARGET], key=agreed.key, job=job)
        with pytest.raises(Refused, match="other rows, columns or classes"):
            gradient(researcher, agreed, USED)
        assert gradient(researcher, agreed, CHEAP) == (1, 0) and used(researcher) == (CHEAP, 1)


def test_of_two_agreements_at_the_same_time_one_holds():
    """A run that has read the session before another has agreed: the file is as it was then."""
    with Researcher(hospitals(rows=160), "private 1") as researcher:
        send, before = researcher.send, {}

        def read_first(package, function, organizations, **kwargs):
            for k in organizations if function == "confirm" and not before else ():
                [file] = researcher.network(package).nodes[k].folder.rglob(f"*{kwargs['job']['key']}-*-keys.sealed")
                before[file] = file.read_bytes()
            return send(package, function, organizations, **kwargs)

        researcher.send = read_first
        agreed = transport.agree(researcher, "v6_fedavg", researcher.members, job=of(researcher, CHEAP))
        job = of(researcher, USED, key=agreed.key, aggregation="pinned", participants=agreed.participants, model=None)
        for file, content in before.items():
            file.write_bytes(content)
        with pytest.raises(Refused, match=OTHER):
            send("v6_fedavg", "confirm", researcher.members, job=job, round=0, roster=agreed.roster)
        with pytest.raises(Refused, match="have not agreed on keys"):
            gradient(researcher, agreed, USED)


def test_one_run_at_a_time_agrees_on_the_keys_of_a_job(tmp_path):
    node = SimpleNamespace(state=SimpleNamespace(folder=tmp_path, name="job"))
    other = SimpleNamespace(state=SimpleNamespace(folder=tmp_path, name="other"))
    inside = threading.Event()

    def second():
        with under_masks._agreeing(node):
            inside.set()

    thread = threading.Thread(target=second)
    with under_masks._agreeing(node), under_masks._agreeing(other):
        thread.start()
        assert not inside.wait(0.2)
    assert inside.wait(20)
    thread.join()


@pytest.mark.parametrize("column", ["careful", "masked", "pinned"])
def test_without_a_budget_no_plan_takes_the_place_of_limits_on_rows(column):
    """A plan with hardly any noise was answered with exact counts, from hospitals of one row, of invented classes."""
    tables = hospitals(rows=160)
    tables[TARGET] = tables[TARGET].iloc[:1]
    with Researcher(tables, column, plan=Plan(statistics=60, statistics_noise=0.1)) as researcher:
        job = researcher.job("v6_pca", aggregation=researcher.mode)
        for function, settings in (("describe", {"raw": True}), ("noisy_moments", {"d": len(researcher.features)})):
            with pytest.raises(Refused, match=r"no privacy budget to count them against; leave out clip, or .*PROFILE"):
                researcher.send("v6_pca", function, [TARGET], job=job, round=0, **settings)
