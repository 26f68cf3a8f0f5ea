"""What a node's errors do not say."""

from helpers import refused, table


def test_no_value_of_a_row_in_any_message(hospitals):
    """Whatever goes wrong at a node, the text that leaves it holds nothing of its rows."""
    secret = 987654.25
    for column, value in (("label", secret), ("label", str(secret)), ("x1", str(secret))):
        spoiled = {**hospitals, 9: table(30).astype({column: object})}
        spoiled[9].loc[5, column] = value
        assert str(secret) not in refused("organization 9", spoiled, classes=[0, 1])


def test_an_error_of_a_library_is_withheld(hospitals, monkeypatch):
    def quotes_a_row(self, w, X, y):
        raise RuntimeError(f"bad value {X[0, 0]}")

    monkeypatch.setattr("v6_federated.models.linear.LinearModel.loss_and_gradient", quotes_a_row)
    text = refused("RuntimeError in test_withheld.py", hospitals)
    assert "its text is withheld" in text and "bad value" not in text


def test_divergence_is_named(hospitals):
    text = refused(
        "training has diverged",
        {k: v * 1e6 for k, v in hospitals.items()},
        lr=1e38,
        rounds=5,
        model="svm",
        classes=[0, 1000000],
    )
    assert "organization" in text
