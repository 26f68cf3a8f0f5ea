"""Commands and their options, as ``v6_federated.operator.command_line`` has them, and what only researchers give."""

import argparse

from v6_federated.operator.command_line import Command, Group, Option, Parser, add_options, build, filled, parse

__all__ = [
    "DEFAULT_BLOCKS",
    "Command",
    "Group",
    "Option",
    "Parser",
    "add_options",
    "build",
    "filled",
    "parse",
    "read_block",
    "read_id",
    "read_iterations",
    "read_seed",
]
DEFAULT_BLOCKS = 0  # size of the blocks of a study, where none is named


def read_seed(text: str) -> int:
    """Read a seed."""
    from v6_federated.messages.settings import LARGE

    if not text.isdecimal() or int(text) > LARGE:
        raise argparse.ArgumentTypeError(f"{text} is not a seed; expected a whole number from 0 to {LARGE}")
    return int(text)


def read_id(text: str) -> int:
    """Read the id of a task."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the id of a task; expected a whole number, as `v6-federated tasks` lists them"
        )
    return int(text)


def read_block(text: str) -> int:
    """Read the size of a study's blocks."""
    if not (text.isascii() and text.isdigit() and int(text) >= 2):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the size of a block; expected a whole number from 2, or --study after the methods"
        )
    return int(text)


def read_iterations(text: str) -> int:
    """Read the value of ``--test``."""
    try:
        return int(text)
    except ValueError:
        problem = f"{text!r} is not a number of cross-validations; write --test I after the methods"
        raise argparse.ArgumentTypeError(problem) from None
