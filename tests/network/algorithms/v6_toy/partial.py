"""The partial functions."""

import os

import pandas as pd
from vantage6.algorithm.tools.decorators import data, metadata


@metadata
def nothing(node) -> dict:
    return {"organization_id": node.organization_id}


@data(1)
@metadata
def column_sum(node, rows: pd.DataFrame, column: str) -> dict:
    limit = os.environ.get("V6_TOY_LIMIT", "")
    return {"organization_id": node.organization_id, "sum": float(rows[column].sum()), "limit": limit}


@metadata
def crash(node) -> dict:
    raise ValueError("this partial always fails")
