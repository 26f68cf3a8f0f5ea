"""Tables of results, for the terminal. A function returns None if there is nothing to show."""

from typing import TYPE_CHECKING

from v6_federated.base import lazy

if TYPE_CHECKING:
    from v6_workbench.reporting.tables.choosing import noise_table, search_table, signs
    from v6_workbench.reporting.tables.comparing import medians_table, nested_table, regressions_tables
    from v6_workbench.reporting.tables.models import (
        class_of,
        coefficients_table,
        components_table,
        fit_of,
        importances_table,
        ratio_named,
        ratio_of,
    )
    from v6_workbench.reporting.tables.of_settings import settings_table
    from v6_workbench.reporting.tables.performance import (
        calibration_table,
        classes_table,
        hospitals_table,
        intervals_table,
        personal_table,
        subgroups_table,
    )
    from v6_workbench.reporting.tables.times import survival_of, survival_table
    from v6_workbench.reporting.tables.training import rounds_table, table

__all__ = [
    "calibration_table",
    "class_of",
    "classes_table",
    "coefficients_table",
    "components_table",
    "fit_of",
    "hospitals_table",
    "importances_table",
    "intervals_table",
    "medians_table",
    "nested_table",
    "noise_table",
    "personal_table",
    "ratio_named",
    "ratio_of",
    "regressions_tables",
    "rounds_table",
    "search_table",
    "settings_table",
    "signs",
    "subgroups_table",
    "survival_of",
    "survival_table",
    "table",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy.names_of(__name__)
