"""What a model says of itself, so that nodes can refuse what it must not be used for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """What a model may be used for. Each model has them; a name that is wrong is an error when the model is defined.

    Attributes:
        regression: it predicts numbers, and their loss may be evaluated.
        takes_missing: rows may have missing values (NaN).
        arrays_only: it must not read tables, of which its parameters would reveal values.
        plain_only: no masked job may use it.
        plain_evaluation: masked jobs may train it but not evaluate it.
        row_by_row: the score of a row follows from this row alone, even if it is not finite.
        costly_sums: exact sums over rows take many times as long as others, so that nodes make them only where a study
            hides what sums of hospitals tell.
        random: it draws random numbers while it trains, as for dropout: two gradients of the same rows differ.
    """

    regression: bool = False
    takes_missing: bool = False
    arrays_only: bool = False
    plain_only: bool = False
    plain_evaluation: bool = False
    row_by_row: bool = False
    costly_sums: bool = False
    random: bool = False
