"""Rows of one person: trained on or held out together, and drawn for a step together."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import canaries

from v6_federated import models
from v6_federated.data import pca
from v6_federated.data.declared import conformed
from v6_federated.data.source import Rows, Source
from v6_federated.messages.job import DataSpec
from v6_federated.node import noising
from v6_federated.node.noising import Noising
from v6_federated.noise import accountant, clipping, units
from v6_federated.noise.clipping import clipped_sum
from v6_federated.noise.plan import Plan
from v6_federated.operator import spent
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

SCHEMA = Schema((Column("x", "number", 0.0, 1.0),), "y", (0, 1), person="who", m=3)
SPEC = DataSpec(label="y", features=["x"], holdout=0.25)


def visits(people, rows, seed=0):
    """A table in which a person's rows lie anywhere."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"x": rng.random(rows), "who": rng.integers(0, people, rows), "y": rng.integers(0, 2, rows)})


@pytest.fixture
def table():
    return visits(60, 200)


def roles(table):
    """For each row, whether it is trained on, held out or idle."""
    source = conformed(Source(table=table), SCHEMA)
    kept, held = source.split(SPEC, 7, 10)
    found = np.full(len(table), "idle", dtype=object)
    found[kept], found[held] = "kept", "held"
    found[source.idle] = "idle"
    return found


def test_a_person_is_trained_on_or_held_out(table):
    found = roles(table)
    for who, rows in table.groupby("who").groups.items():
        there = [role for role in found[rows] if role != "idle"]
        assert len({*there}) == 1 and len(there) == min(len(rows), 3), who
    assert 0.1 < (found == "held").sum() / (found != "idle").sum() < 0.4


def test_another_persons_rows_change_nobodys_role(table):
    """If the rows of one person change, all other rows keep their role."""
    before, one = roles(table), table["who"] == table["who"][50]
    changed = table.copy()
    changed.loc[one, "y"] = 9  # not declared, so these rows take part in nothing
    after = roles(changed)
    assert (after[~one] == before[~one]).all() and {*after[one]} == {"idle"}


def test_an_idle_row_is_empty_and_keeps_its_place(table):
    """Rows are added up in chunks of 64: if one went, all others would move into other chunks, and be rounded there."""

    def prepared(rows):
        spec = replace(SPEC, classes=[0, 1])
        return conformed(Source(table=rows), SCHEMA).prepared(spec, 7, Policy.of("private"))[0]

    before, changed = prepared(table), table.copy()
    first = int(np.flatnonzero(roles(table) == "kept")[0])
    changed.loc[first, "y"] = 9  # not declared
    after = prepared(changed)
    odd = np.flatnonzero((before.X != after.X).any(axis=1) & ~np.isnan(before.X).any(axis=1))
    assert len(odd) == 1 and np.isnan(after.X[odd]).all() and len(before) == len(after)
    model, w = models.build({"name": "logreg", "features": 1, "classes": 2}), np.zeros(2, np.float32)
    without = clipped_sum(model, w, np.delete(before.X, odd, 0), np.delete(before.y, odd), 1.0, 2**20)
    assert abs(clipped_sum(model, w, after.X, after.y, 1.0, 2**20) - without).max() <= len(before)  # of rounding


def test_rows_without_a_person_are_of_one_person():
    table = visits(20, 100)
    table["who"] = table["who"].where(table["who"] > 3).astype("float")
    found = roles(table)
    assert (found[table["who"].isna()] != "idle").sum() == 3


class Request:
    """What ``Noising`` needs of a request of a developer's own node."""

    folder, digest = None, b"d" * 32


def test_a_person_is_drawn_with_all_rows(table):
    plan = Plan(rate=0.3, steps=50, steps_per_epoch=3)
    source = conformed(Source(table=table), SCHEMA)
    kept, _ = source.split(SPEC, 7, 10)
    persons, noise = source.persons[kept], Noising(plan, Request(), "job")
    rows = Rows(np.zeros((len(kept), 1)), np.zeros(len(kept)), persons)
    shares = []
    for step in range(50):
        drawn = np.zeros(len(kept), bool)
        drawn[noise.sample(rows, step)] = True
        assert all(len({*drawn[persons == who]}) == 1 for who in {*persons})
        shares.append(drawn.mean())
    assert np.mean(shares) == pytest.approx(0.3, abs=0.05) and len({*shares}) > 10


@pytest.mark.parametrize("m", [1, 2, 8])
def test_noise_that_is_shared_hides_the_person_with_most_rows(m, tmp_path, monkeypatch):
    """One hospital of a study declares m rows a person, the others 1: how many they declare is their own.

    The noise of all but the hospital that may work with the server must hide a person of that one hospital. If each
    added m z / sqrt(3), it would be 1.1 to 1.7 times too small.
    """
    names, z = [f"x{i}" for i in range(40)], 5.0
    schema = Schema(tuple(Column(name, "number", -1, 1) for name in names), "")
    tables = {k: pd.DataFrame(0.0, index=range(50), columns=names).assign(who=range(50)) for k in range(1, 5)}
    private = {"V6_FEDERATED_PROFILE": "private", "V6_FEDERATED_EPSILON": "3", "V6_FEDERATED_DELTA": "1e-5"}
    drawn = {}
    real = Noising._noise

    def noise(self, *args, **kwargs):
        drawn[self.request.entry.organization] = real(self, *args, **kwargs)
        return drawn[self.request.entry.organization]

    monkeypatch.setattr(Noising, "_noise", noise)
    study = StudyPlan(schema=schema)
    with MockNetwork("v6_pca", tables, environment=private, hospital_folder=tmp_path, study=study) as network:
        if m > 1:
            folder = Path(network.nodes[1].environment["HOSPITAL_DATABASE_URI"])
            (folder / "schema.json").write_text(replace(schema, person="who", m=m).text())
        network.run(clip=1.0, noise=z, preprocess=["scale"], components=2)
    unit = z * pca.moments_sensitivity()
    of_the_others = [drawn[k] for k in (1, 2, 3)]
    assert len(drawn) == 4 and np.std(sum(of_the_others)) > 0.9 * m * unit
    assert np.std(drawn[2]) == pytest.approx(unit / 3**0.5, rel=0.15)  # a hospital of m = 1 still shares its noise


@pytest.mark.parametrize("N", [1, 2, 3, 4])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "whole"])
def test_noise_hides_a_person_at_so_many_hospitals_of_a_study(shared, N, monkeypatch):
    """Whatever rows a person each hospital of four declares, whoever of them works with the server, and wherever a
    person is: what the honest hospitals' rows of the person change, over the honest hospitals' noise, is 1 at most.
    """
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: sigma)
    found = []
    for rows in itertools.product((1, 2, 8), repeat=4):
        nodes = [Noising(Plan(), Request(), "job", m, 3, N) for m in rows]
        sigmas = np.array([node._noise("sum", float(m), 1, shared) for node, m in zip(nodes, rows, strict=True)])
        for honest in (range(4), range(1, 4)):
            for at in itertools.chain.from_iterable(itertools.combinations(honest, k + 1) for k in range(N)):
                m, own = np.array(rows)[[*at]], sigmas[[*at]]
                # noise of a sum over all; or each hospital's own, if its answer is seen alone
                found.append(m.sum() / np.sqrt((sigmas[[*honest]] ** 2).sum()))
                found += [] if shared else [np.sqrt(((m / own) ** 2).sum())]
    assert max(found) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("rate", "share"), [(1.0, 2 / 3**0.5), (0.5, 2**0.5)])
def test_rows_that_hospitals_draw_are_hidden_by_noise_of_their_own(rate, share, monkeypatch):
    """Two hospitals draw a person's rows independently, so that one sum of both has no plan's distribution."""
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: np.full(size, round(sigma)))
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    node = Noising(Plan(noise=5, rate=rate, steps=1), Request(), "job", shares=3, hospitals_of_a_person=2)
    w, X, y = np.zeros(2, np.float32), np.zeros((0, 1), np.float32), np.zeros(0, np.int64)
    drawn = node.gradient(model, w, X, y, 0, shared=True)
    assert drawn[0] == pytest.approx(5 * share * clipping.sensitivity(2, units.GRADIENT), rel=1e-6)


@pytest.mark.parametrize("N", [1, 3])
def test_a_study_says_at_how_many_hospitals_a_person_is(N, tmp_path, monkeypatch):
    drawn, real = {}, noising.discrete_gaussian
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, s, n: drawn.setdefault(s, real(key, s, n)))
    schema = Schema(tuple(Column(f"x{i}", "number", -1, 1) for i in range(3)), "")
    rows = np.random.default_rng(0).choice([-1.0, 1.0], (100, 3))  # of which noise does not hide all variances
    tables = {k: pd.DataFrame(rows, columns=schema.features) for k in range(1, 5)}
    private = {"V6_FEDERATED_PROFILE": "private", "V6_FEDERATED_EPSILON": "3", "V6_FEDERATED_DELTA": "1e-5"}
    study = StudyPlan(schema=schema, hospitals_a_person=N)
    with MockNetwork("v6_pca", tables, environment=private, hospital_folder=tmp_path, study=study) as network:
        result = network.run(clip=1.0, noise=5.0, preprocess=["scale"], components=2)
        folder = Path(network.nodes[1].environment["HOSPITAL_DATABASE_URI"])
    [sigma] = drawn
    assert sigma == pytest.approx(N * 5.0 * pca.moments_sensitivity() / 3**0.5)
    assert result["privacy"]["hospitals_a_person"] == N
    assert f"rows at {N} of its hospitals at most (hospitals_a_person)" in " ".join(spent.shown(folder)[0])


# ---- what a person at several hospitals costs, on the page

DELTA = 1e-5


def exact(mu: float) -> float:
    """The epsilon of a Gaussian mechanism (Balle and Wang 2018), without a library of accountants."""
    return canaries.epsilon_of(mu, DELTA)


def by_orders(mu: float) -> float:
    """The epsilon of a Gaussian mechanism by Renyi divergences a mu^2 / 2, without a library of accountants."""
    orders = np.array(accountant.ORDERS)
    found = orders * mu**2 / 2 + np.log1p(-1 / orders) - np.log(DELTA * orders) / (orders - 1)
    return float(found.min())


def test_what_a_person_at_several_hospitals_costs_is_on_the_page():
    """By two accountants each: dp-accounting's, and formulas for Gaussian noise, equal to three digits."""
    plan = accountant.calibrated(Plan(steps=100), 1.0, DELTA)
    sampled = accountant.calibrated(Plan(steps=100, rate=0.1), 1.0, DELTA)
    mu, at = 10 / plan.noise, (1, 2, 3, 4)
    lines = []

    def costs(name: str, plans: list[Plan], mus: list[float] | None) -> None:
        both = [accountant.epsilon([p], DELTA) for p in plans], [accountant.epsilon_pld(p, DELTA) for p in plans]
        if mus is not None:
            for found, other in zip(both, ([*map(by_orders, mus)], [*map(exact, mus)]), strict=True):
                assert [f"{e:#.3g}" for e in found] == [f"{e:#.3g}" for e in other]
        for accountant_, found in zip(("RDP", "PLD"), both, strict=True):
            lines.append(f"| {name} | {accountant_} | {' | '.join(f'{e:#.3g}' for e in found)} |")

    costs("shared, 1 declared", [replace(plan, noise=plan.noise / h) for h in at], [h * mu for h in at])
    costs("each its own, 1 declared", [replace(plan, steps=100 * h) for h in at], [h**0.5 * mu for h in at])
    costs("each its own, of rows drawn at 0.1, 1 declared", [replace(sampled, steps=100 * h) for h in at], None)
    costs("shared, or each its own; as many declared", [plan] * 4, [mu] * 4)
    drawn = [replace(sampled, noise=sampled.noise * h**0.5, steps=100 * h) for h in at]
    costs("each its own, of rows drawn at 0.1; as many declared", drawn, None)
    print("\n".join(lines))
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in page


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 30.0])
def test_hospitals_that_draw_rows_by_themselves_cost_a_person_no_more_than_the_plan(rate, noise):
    """At whole orders, log E exp is convex in 1 / noise^2, and 0 at 0: N steps with sqrt(N) times the noise cost less.

    (At other orders the library's numbers are bounds, and sometimes far above.)
    """
    whole = np.array([float(order).is_integer() for order in accountant.ORDERS])
    one = accountant._divergence(Plan(rate=rate, noise=noise, steps=1))[whole]
    for N in (2, 3, 10):
        found = accountant._divergence(Plan(rate=rate, noise=noise * N**0.5, steps=N))[whole]
        assert (found <= one * (1 + 1e-9) + N * 1e-11).all()
