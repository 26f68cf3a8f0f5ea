"""The published vectors are those that the second implementation makes."""

import json
import re

import second


def test_the_file_is_up_to_date():
    """Otherwise run python tests/privacy/secagg/second.py."""
    assert json.loads(json.dumps(second.vectors())) == json.loads(second.FILE.read_text(encoding="utf-8"))


def test_the_second_implementation_shares_no_code():
    imported = re.findall(r"^\s*(?:from|import) (\S+)", second.Path(second.__file__).read_text(), re.MULTILINE)
    allowed = {"hashlib", "hmac", "json", "math", "struct", "fractions", "pathlib"}
    assert {name for name in imported if not name.startswith("cryptography.hazmat")} == allowed


def test_the_sums_of_the_vectors_are_those_of_the_values(vectors):
    for block in vectors["blocks"]:
        for name, decoded in ((name, found) for name, found in block["decoded"].items() if name != "checks"):
            columns = zip(*(answer["values"][name] for answer in block["answers"]), strict=True)
            for found, column in zip(decoded, columns, strict=True):
                assert abs(found - sum(column)) <= len(block["answers"]) * 2.0 ** (3 - 31)
