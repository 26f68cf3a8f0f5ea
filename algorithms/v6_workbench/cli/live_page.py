"""A page of a job that is written anew after each round."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_workbench.cli import console, results

OnRound = Callable[[dict[str, Any]], None]


def check(file: Path | None) -> None:
    """Refuse a file that is no page.

    Args:
        file: the page; None if there is to be none.

    Raises:
        SafeError: its name does not end in .html, it is a folder, or its folder cannot be written to.
    """
    if file is not None and (file.suffix != ".html" or file.is_dir()):
        raise SafeError(f"--page {file} is no page; expected a file that ends in .html, such as rounds.html")
    results.check_file(file, "--page")


class LivePage:
    """The page of one job. A disk that is full is said once, and does not end the job."""

    def __init__(self, file: Path | None, method: str, rounds: int | None, target: float | None = None) -> None:
        """Write the page before the first round.

        Args:
            file: the page; None if there is to be none.
            method: the method's name.
            rounds: number of rounds; None if unknown.
            target: accuracy to draw a line at.
        """
        self._file, self._about, self._target = file, (method, rounds), target
        self._rows: list[Mapping[str, Any]] = []
        if file is not None:
            self._write(self._live())
        if self._file is not None:
            console.say(f"the rounds as a page: {file}")

    def on_round(self, shown: OnRound) -> OnRound:
        """Write the page anew with each row of the history.

        Args:
            shown: what else is done with the row.

        Returns:
            A function of the row.
        """

        def both(row: dict[str, Any]) -> None:
            shown(row)
            self._rows.append(row)
            if self._file is not None:
                self._write(self._live())

        return both

    def end(self, result: Mapping[str, Any]) -> None:
        """Write the page of the result, which is not loaded again.

        Args:
            result: the result.
        """
        if self._file is not None:
            from v6_workbench.reporting import page

            self._write(page.page({str(result["method"]): result}, self._target))

    def _live(self) -> str:
        from v6_workbench.reporting import page

        method, rounds = self._about
        return page.live(method, self._rows, rounds, self._target)

    def _write(self, text: str) -> None:
        assert self._file is not None
        try:
            write_whole(self._file, text)
        except OSError as error:
            console.say(f"--page {self._file} cannot be written: {error.strerror}; the job goes on without it")
            self._file = None
