"""One real network of four hospitals for several files of tests: the fourth hospital is strict."""

ROWS = 40
GENES = [f"g{i}" for i in range(30)]
FEATURES = "a,b,c"
TRAINING = ["--rounds", "2", "--seed", "3", "--label", "outcome", "--features", FEATURES]
THREE = ["--set", "organizations=[1,2,3]"]
STRICT = ["--set", "organizations=[1,2,4]"]
LIMITS = {
    "MINIMUM_ROWS": "1000",
    "DISALLOWED_COLUMNS": "FEDAVGXX",  # decoded twice, as vantage6's get_env_var does, this name would be garbled
    "MAXIMUM_ROUNDS": "8",
}


def training(method: str) -> list[str]:
    """The options of a short job. Methods of survival look at days, and one of them takes no features."""
    if method in ("cox", "km"):
        return [*TRAINING[:4], "--label", "days", *(["--features", "a,c"] if method == "cox" else [])]
    return TRAINING


def selected(request, test: str) -> list[str]:
    """The ids of the cases of a test that are to run."""
    return [item.callspec.id for item in request.session.items if item.originalname == test]


def complaint(err: str) -> str:
    """The one line that says what is wrong."""
    [line] = [line for line in err.splitlines() if line.startswith("v6-federated: ")]
    return line


def three(arguments: list[str]) -> list[str]:
    """The three hospitals that are not strict, unless the arguments name others."""
    return [] if any(text.startswith("organizations=") for text in arguments) else THREE
