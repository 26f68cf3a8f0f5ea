"""The option ``--node-env``: environment variables of all nodes, or of one."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from v6_federated.base.errors import SafeError
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.rules.environment import CORRECT_IT, OTHERS
from v6_federated.rules.limits import LIMITS, PREFIX
from v6_federated.rules.policy import Policy

EXPECTED = f"expected NAME=VALUE, or K:NAME=VALUE for node K, for example 2:{PREFIX}MINIMUM_ROWS=20"
MOST_DIGITS = 9  # of a node's number
NEAR = 0.9  # similarity of a name to the one that is suggested


@dataclass(frozen=True)
class NodeEnvironment:
    """Environment variables of nodes, as the options name them.

    Attributes:
        every: of every node.
        own: further ones of single nodes, by their numbers from 1.
    """

    every: Mapping[str, str]
    own: Mapping[int, Mapping[str, str]]

    def of(self, node: int) -> dict[str, str]:
        """The variables of a node.

        Args:
            node: its number.
        """
        return {**self.every, **self.own.get(node, {})}

    def check(self, base: Mapping[str, str]) -> None:
        """Check that all variables are limits that a node accepts.

        Args:
            base: what a node has besides.

        Raises:
            SafeError: a node would refuse to work with them.
        """
        for node in (0, *self.own):
            try:
                Policy.of_node({**base, **self.of(node)})
            except NodePermissionException as error:
                # a node's own words would send the reader to its configuration
                said = str(error).removesuffix(CORRECT_IT).removesuffix(NOTHING_COMPUTED).rstrip("; ")
                where = f", node {node}" if node else ""
                raise SafeError(f"--node-env{where}: {said.replace(' of this node', '')}") from None

    def check_nodes(self, nodes: int) -> None:
        """Check that there are such nodes.

        Args:
            nodes: how many nodes there are.

        Raises:
            SafeError: an option names another node.
        """
        for node, variables in self.own.items():
            if not 1 <= node <= nodes:
                name, value = next(iter(variables.items()))
                text = f"{node}:{name}={value}"
                raise SafeError(
                    f"--node-env {text!r}: there is no node {node}; expected a node from 1 to {nodes}, or "
                    f"{name}={value} for all nodes"
                )


def read(texts: Sequence[str]) -> NodeEnvironment:
    """Read the options.

    Args:
        texts: NAME=VALUE, or K:NAME=VALUE for node K, which has that value whatever the others have.

    Returns:
        The variables.

    Raises:
        SafeError: an option has another form, or sets a variable twice.
    """
    every, own = dict[str, str](), dict[int, dict[str, str]]()
    for text in texts:
        before, equals, value = text.partition("=")
        who, colon, name = (part.strip() for part in before.rpartition(":"))
        if not equals or not name:
            raise SafeError(f"--node-env {text!r} is not understood; {EXPECTED}")
        if colon and not (who.isascii() and who.isdigit() and len(who) <= MOST_DIGITS):
            raise SafeError(
                f"--node-env {text!r}: {who!r} is not the number of a node; {EXPECTED}, once for each such node"
            )
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise SafeError(
                f"--node-env {text!r}: {name!r} is not the name of a variable, which has letters, digits and _; "
                f"{EXPECTED}"
            )
        found = own.setdefault(int(who), {}) if colon else every
        if name in found:
            raise SafeError(f"--node-env {f'{int(who)}:' if colon else ''}{name} is given twice; remove one")
        found[name] = value.strip()
    return NodeEnvironment(every, own)


def check_mock(found: NodeEnvironment) -> None:
    """Refuse variables that mock nodes do not read.

    Args:
        found: the variables.

    Raises:
        SafeError: there is one.
    """
    for name in (*found.every, *(name for own in found.own.values() for name in own)):
        if not name.startswith(PREFIX):
            meant = _meant(name)
            raise SafeError(
                f"--node-env {name}: mock nodes read no such variable; "
                + (f"did you mean {meant}?" if meant else f"{EXPECTED}, whose name begins with {PREFIX}")
            )


def _meant(name: str) -> str | None:
    """The variable of a node that a name without the prefix, or with small letters, was to be."""
    known = [PREFIX + one for one in (*(limit.name for limit in LIMITS), *OTHERS)]
    if (whole := PREFIX + name.upper()) in known:
        return whole
    return next(iter(difflib.get_close_matches(name.upper(), known, n=1, cutoff=NEAR)), None)
