"""``stop``: refuse a job at this node from now on, whatever the server sends."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from v6_federated.base.errors import SafeError
from v6_federated.messages.job import KEY
from v6_federated.operator.command_line import Found, prints
from v6_federated.operator.make_keys import existing
from v6_federated.operator.options import StopOptions
from v6_federated.operator.show_audit import minute, unused
from v6_federated.rules import audit
from v6_federated.rules.stopped import Stopped

LEFT = "what has left before is not undone; `v6-federated audit` shows it"


@prints
def run(options: StopOptions) -> Found:
    """Change the list of stopped jobs, and show it."""
    folder = existing(options.folder)
    _check(options)
    methods = _methods(folder)
    before, now = Stopped.read(folder), audit.now()
    known = before.jobs if options.undo else methods
    named = dict.fromkeys((_whole(job, known, options.undo) for job in options.jobs), now)
    if options.list:
        return Found([*_shown(before, methods), *unused(folder)], _numbers(before))
    if options.undo:
        after = Stopped() if options.all else before.without(named)
    else:
        after = replace(before.adding(named), all=before.all or (now if options.all else None))
    try:
        after.write(folder)
    except OSError as error:
        raise SafeError(
            f"the list of stopped jobs in {folder} cannot be written ({error.strerror}); run the command as the user "
            "that the folder belongs to, for example with sudo"
        ) from None
    return Found([*_shown(after, methods), *([] if options.undo else [LEFT]), *unused(folder)], _numbers(after))


def _check(options: StopOptions) -> None:
    if options.list and (options.jobs or options.all or options.undo):
        raise SafeError("--list only shows what is stopped; leave out the jobs, --all and --undo")
    if not options.list and options.all == bool(options.jobs):
        raise SafeError(
            f"expected jobs or --all, and not both, for example `v6-federated stop {options.folder} 2f0c`; "
            "`v6-federated audit` shows the keys of jobs, and --list what is stopped"
        )


def _methods(folder: Path) -> dict[str, str]:
    """The method of each job in the audit log, by the job's key."""
    file = folder / audit.NAME
    entries = audit.read(file) if file.is_file() else ()
    return {entry.job: entry.method for entry in entries if entry is not None}


def _whole(job: str, known: Iterable[str], undo: bool) -> str:
    """The key that begins so."""
    found = [key for key in known if key == job] or [key for key in known if job and key.startswith(job)]
    if len(found) == 1:
        return found[0]
    if found:
        raise SafeError(f"{len(found)} jobs have keys that begin with {job}: {', '.join(found[:5])}; write one in full")
    if KEY.fullmatch(job) and not undo:
        return job  # a job that has not reached this node yet
    where = "is stopped here, see --list" if undo else "is in the audit log, or write the job's key in full"
    raise SafeError(f"no job has a key that begins with {job or 'an empty word'}; expected one that {where}")


def _shown(stopped: Stopped, methods: Mapping[str, str]) -> list[str]:
    lines = [
        f"job {key}: {methods.get(key, 'not in the audit log')}, stopped {minute(at)} UTC"
        for key, at in stopped.jobs.items()
    ]
    if stopped.all is not None:
        lines.append(f"every job is stopped since {minute(stopped.all)} UTC, and new ones too")
    return lines or ["no job is stopped"]


def _numbers(stopped: Stopped) -> dict[str, object]:
    return {"stopped": dict(stopped.jobs), "all": stopped.all}
