"""``limits``: what a node's limits are, by its configuration, before it starts."""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.operator.command_line import Found, prints
from v6_federated.operator.options import LimitsOptions
from v6_federated.rules.limits import LIMITS, PREFIX, PROFILES
from v6_federated.rules.policy import Policy

BUDGET = {f"{PREFIX}EPSILON": "3", f"{PREFIX}DELTA": "1e-5"}  # private needs one
# what vantage6 4.15 knows in a node's configuration; it ignores other names without a word
KEYS = (
    "algorithm_device_requests",
    "algorithm_env",
    "alpine",
    "api_key",
    "api_path",
    "databases",
    "debug",
    "docker_registries",
    "docker_services",
    "encryption",
    "images",
    "logging",
    "node_extra_env",
    "node_extra_hosts",
    "node_extra_mounts",
    "policies",
    "port",
    "prometheus",
    "run_context_file",
    "server_url",
    "share_algorithm_logs",
    "share_config",
    "ssh-tunnels",
    "task_dir",
    "vpn_subnet",
    "whitelist",
)
POLICIES = (
    "allow_basics_algorithm",
    "allow_either_whitelist_or_store",
    "allowed_algorithm_stores",
    "allowed_algorithms",
    "allowed_organizations",
    "allowed_users",
    "require_algorithm_pull",
)
DATABASE = ("env", "label", "mount_mode", "type", "uri")
EXAMPLE = re.compile(r"\.example(?=[/:]|$)")  # no host has such a name: RFC 2606
CAPITALS = re.compile("READER:PASSWORD@|NAME-OF-THE-")  # in ``node_configs/sql.yaml``
TYPES = ("csv", "excel", "folder", "omop", "other", "parquet", "sparql", "sql")
NOT_READ = {  # types that vantage6 knows and no image of this project reads: what to do instead
    "omop": "give the view that a project needs as type sql, or its rows as a csv file",
    "parquet": "write its rows as a csv file, type csv",
}
ADDRESSES = ("omop", "sparql", "sql")  # types whose uri is an address
READ_ONLY = ("csv", "excel", "folder", "parquet")  # types for which vantage6 knows mount_mode: ro
PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]+@")


@prints
def run(options: LimitsOptions) -> Found:
    """Show every limit, with its value and what it does."""
    if options.file is not None and options.profile is not None:
        raise SafeError("a configuration has a profile of its own; leave out --profile, or the file")
    if options.profile is not None and options.profile not in PROFILES:
        raise SafeError(f"unknown profile {options.profile!r}; expected one of {', '.join(PROFILES)}")
    remarks: list[str] = []
    if options.profile is not None:
        private = options.profile == "private"
        environment: Mapping[str, str] = {f"{PREFIX}PROFILE": options.profile} | (BUDGET if private else {})
        if private:
            remarks.append("the budget, epsilon and delta, is an example: this profile needs one of yours")
    elif options.file is not None:
        environment, remarks = _configured(options.file)
    else:
        environment = os.environ
    policy = Policy.of_node(environment)
    looser = policy.looser()
    values = {limit.name: written(getattr(policy, limit.name.lower())) for limit in LIMITS}
    own = [limit.name for limit in LIMITS if environment.get(PREFIX + limit.name, "").strip() and not options.profile]
    lines = [f"profile {policy.profile}", *_lines(values, own, looser), *remarks]
    return Found(lines, {"profile": policy.profile, "limits": values, "set": own, "looser": looser, "remarks": remarks})


def _lines(values: Mapping[str, str], own: list[str], looser: list[str]) -> Iterator[str]:
    for limit in LIMITS:
        note = " (set here)" if limit.name in own else ""
        note = " (set here; LOOSER than the profile)" if limit.name in looser else note
        yield f"  {PREFIX}{limit.name}: {values[limit.name]}{note}"
        yield f"      {limit.does}"


def written(value: Any) -> str:
    """Write the value of a limit for people."""
    if value is None:
        return "no limit"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, frozenset | list):
        return ",".join(sorted(map(str, value))) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _configured(file: Path) -> tuple[dict[str, str], list[str]]:
    """The variables that a node's configuration gives to algorithms, and what is wrong with the configuration."""
    import yaml  # vantage6 brings it

    try:
        node = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        raise SafeError(f"{file.name} is not YAML; expected a node's configuration, as in node_configs/") from None
    if not isinstance(node, dict) or "api_key" not in node:
        raise SafeError(f"{file.name} has no api_key; expected a node's configuration, as in node_configs/")
    parts = {name: node.get(name) or {} for name in ("algorithm_env", "policies")}
    if wrong := [name for name, part in parts.items() if not isinstance(part, dict)]:
        raise SafeError(
            f"{wrong[0]} of {file.name} is no list of names and values; expected lines such as NAME: 'value'"
        )
    return {str(k): str(v) for k, v in parts["algorithm_env"].items()}, [*_remarks(node, parts["policies"])]


def _remarks(node: Mapping[str, Any], policies: Mapping[str, Any]) -> Iterator[str]:
    if left := [*_placeholders(node, policies)]:
        yield f"left from the example, to be replaced by yours before the node starts: {', '.join(left)}"
    yield from _unknown(node, KEYS)
    yield from _unknown(policies, POLICIES, " under policies")
    if not policies.get("allowed_algorithms") and not policies.get("allowed_algorithm_stores"):
        yield "policies name no allowed_algorithms: this node runs every image that a task names"
    listed = node.get("databases")
    databases = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    for database in databases:
        yield from _unknown(database, DATABASE, f" of the database {database.get('label')}")
        if "type" in database and str(database["type"]) not in TYPES:
            yield f"the database {database.get('label')} has an unknown type, {database['type']}; " + _expected(
                database["type"], TYPES
            )
        yield from _unusable(database)
        # vantage6 shares logs unless it is told not to
        if str(database.get("type")) in ADDRESSES and node.get("share_algorithm_logs", True) is not False:
            secret = ", with its password," if PASSWORD.search(str(database.get("uri"))) else ""
            yield (
                "logs are shared, and images other than this project's can print the address of the database "
                f"{database.get('label')}{secret} into the logs, as vantage6's own reader does: if policies allow such "
                "images, set share_algorithm_logs: false"
            )
    if "hospital" not in [database.get("label") for database in databases]:
        yield (
            "there is no database with the label hospital: the audit log and the counters would lie in the node's data "
            "volume, and be lost with it"
        )


def _unusable(database: Mapping[str, Any]) -> Iterator[str]:
    """A database that no image of this project reads, or with which the node does not start."""
    label, kind = str(database.get("label")), str(database.get("type"))
    if kind in NOT_READ:
        yield f"the database {label} has the type {kind}, which no image of this project reads; {NOT_READ[kind]}"
    elif str(database.get("uri")).lower().endswith(".parquet"):
        yield f"the database {label} is a Parquet file, which no image of this project reads; {NOT_READ['parquet']}"
    if str(database.get("mount_mode", "copy")) not in ("copy", "ro"):
        yield f"mount_mode of the database {label} must be copy or ro: with another one the node does not start"
    elif database.get("mount_mode") == "ro" and kind not in READ_ONLY:
        yield (
            f"mount_mode: ro of the database {label} is for the types {', '.join(READ_ONLY)} only: with another one "
            "the node does not start"
        )
    if not label.isidentifier():
        yield (
            f"the label {label} of a database must be letters, digits and underscores: with another one the node does "
            "not start"
        )


def _placeholders(node: Mapping[str, Any], policies: Mapping[str, Any]) -> Iterator[str]:
    """What still stands there as in ``node_configs/``: zeros, hosts under .example, and words in capitals."""
    if not str(node["api_key"]).strip("0-"):
        yield "api_key"
    if EXAMPLE.search(str(node.get("server_url"))):
        yield "server_url"
    allowed = policies.get("allowed_algorithms")
    images = [str(image).replace("\\", "") for image in (allowed if isinstance(allowed, list) else [allowed])]
    if any(EXAMPLE.search(image) for image in images):
        yield "the registry of allowed_algorithms"
    if any(re.search("sha256:0+[$]?$", image) for image in images):
        yield "the digest of allowed_algorithms"
    listed = node.get("databases")
    for database in listed if isinstance(listed, list) else []:
        if isinstance(database, dict) and CAPITALS.search(str(database.get("uri"))):
            yield f"the uri of the database {database.get('label')}"
    services = node.get("docker_services")
    if isinstance(services, dict) and any(CAPITALS.search(str(name)) for name in services.values()):
        yield "docker_services"


def _unknown(names: Iterable[object], known: tuple[str, ...], where: str = "") -> Iterator[str]:
    for name in names:
        if name not in known:
            yield f"vantage6 does not know {name}{where}, and ignores it without a word; {_expected(name, known)}"


def _expected(name: object, known: tuple[str, ...]) -> str:
    """The known name that is nearest to a misspelt one, or all of them."""
    near = difflib.get_close_matches(str(name).lower(), known, n=1)
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
