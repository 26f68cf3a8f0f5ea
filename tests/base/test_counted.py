"""Numbers of things in plain English."""

from v6_federated.base.text import counted


def test_one_has_no_s():
    assert [counted(1, "event"), counted(0, "event"), counted(1200, "try", "tries")] == [
        "1 event",
        "0 events",
        "1,200 tries",
    ]
