"""Settings: one name, one type and one range each."""

from helpers import refused


def test_settings_are_checked_in_the_task_too(hospitals):
    for bad, says in [
        ({"fraction": 1.5}, "fraction=1.5 is refused"),
        ({"rounds": 0}, "rounds=0 is refused"),
        ({"epoch": 3}, "unknown setting 'epoch'"),
        ({"organizations": [3, 4]}, "[4]: not in the collaboration"),
        ({"evaluators": [3, 5, 8], "organizations": [3]}, "train as well"),
    ]:
        refused(says, hospitals, **bad)
