"""The option ``--node-env``: environment variables of all nodes, or of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.privacy.limits import PREFIX
from v6_federated.privacy.policy import Policy


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
                raise SafeError(f"--node-env: {error}") from None

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
                raise SafeError(f"--node-env {text!r}: there is no node {node}; expected a node from 1 to {nodes}")


def read(texts: Sequence[str]) -> NodeEnvironment:
    """Read the options.

    Args:
        texts: NAME=VALUE, or K:NAME=VALUE for node K, which has that value whatever the others have.

    Returns:
        The variables.

    Raises:
        SafeError: an option is none of the two.
    """
    every, own = dict[str, str](), dict[int, dict[str, str]]()
    for text in texts:
        who, colon, rest = text.partition(":")
        one = bool(colon) and who.isascii() and who.isdigit()
        name, equals, value = (part.strip() for part in (rest if one else text).partition("="))
        if not equals or not name:
            raise SafeError(
                f"--node-env {text!r} is not understood; expected NAME=VALUE, or K:NAME=VALUE for node K, for example "
                f"2:{PREFIX}MINIMUM_ROWS=20"
            )
        (own.setdefault(int(who), {}) if one else every)[name] = value
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
            raise SafeError(
                f"--node-env {name}: mock nodes read no such variable; expected one that begins with {PREFIX}, for "
                f"example {PREFIX}MINIMUM_ROWS=20"
            )
