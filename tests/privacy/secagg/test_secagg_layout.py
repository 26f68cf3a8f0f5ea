"""The layout: nodes and central derive it from what a function declares; a request has its digest, and units."""

import pytest
import second
import single_values
from hypothesis import given
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.masks.summands import Item, Layout

UNITS = st.none() | st.just("any") | st.just("mean") | st.integers(-64, 280) | st.just(range(-64, 65))
ADDITIVE = st.sampled_from(["row", "person", "stratum", "hospital"])
ITEMS = st.builds(
    Item,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    st.sampled_from(["one", "rows", "share", "equal", "equal/x"]),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    UNITS,
    ADDITIVE,
)


def of(vector):
    return Layout(tuple(Item(name, weight, tuple(shape), *rest) for name, weight, shape, *rest in vector["items"]))


def terms(parts):
    return [{"name": p.name, "bits": p.bits, "shape": [*p.shape], "exponent": p.exponent} for p in parts]


def test_vectors(vectors):
    layout = of(vectors["layout"])
    assert layout.digest == vectors["layout"]["digest"] == vectors["request"]["layout"][2]
    assert terms(layout.parts(vectors["layout"]["units"])) == vectors["layout"]["terms"]


@given(st.lists(ITEMS, max_size=4), st.randoms())
def test_both_implementations_derive_the_same_terms(items, random):
    layout = Layout(tuple(items))
    units = [[-64, 64] if isinstance(i.unit, range) else i.unit for i in items]
    plain = [[i.name, i.weight, [*i.shape], unit, i.additive] for i, unit in zip(items, units, strict=True)]
    assert layout.digest == second.layout_digest(plain)
    bits = [random.choice([*item.accepted]) for item in layout.chosen]
    units = [[b, random.choice(item.accepted[b])] for b, item in zip(bits, layout.chosen, strict=True)]
    assert terms(layout.parts(units)) == single_values.terms(plain, units)


@given(ITEMS, ITEMS)
def test_another_layout_has_another_digest(one, other):
    assert (Layout((one,)).digest == Layout((other,)).digest) == (one == other)
    assert Layout((one, other)).digest != Layout((one,)).digest


OTHERS = [[], [[64, 11]], [[32, 41]], [[16, 3]], [[64, 10], [64, 10]], [[64, 10.0]], None, 7, "ab"]


@pytest.mark.parametrize("units", OTHERS, ids=str)
def test_other_units_than_those_of_the_layout_are_refused(units):
    layout = Layout((Item("w", "share", (5,), "mean", "hospital"),))
    with pytest.raises(SafeError, match="unit"):
        layout.parts(units)
