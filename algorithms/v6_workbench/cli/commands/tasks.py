"""``v6-federated tasks|status|watch|fetch|cancel``: tasks that were sent, found again."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from v6_federated.base.errors import SafeError
from v6_workbench import registry
from v6_workbench.cli import console, live_page, results, show, values
from v6_workbench.cli.live_page import LivePage
from v6_workbench.cli.options import FetchOptions, TaskOptions, TasksOptions, WatchOptions
from v6_workbench.cli.place import Place, connect
from v6_workbench.errors import ServerGone

if TYPE_CHECKING:
    from v6_workbench.network.tasks import Task

SILENT = "central's node does not share its log, so the accuracy of each round comes with the result"
WAITS = "central's node is offline; the task waits for it"


def list_tasks(options: TasksOptions) -> int:
    """List the newest tasks."""
    from rich.markup import escape
    from rich.table import Table

    from v6_workbench.network import tasks

    if options.last < 1:
        raise SafeError(f"--last {options.last} is too few; expected at least 1")
    place = connect(options)
    found = tasks.newest(place.client, options.last)
    if not found:
        console.say(f"no task of v6-federated at {place.name} yet; `v6-federated submit` sends one")
    table = Table(box=None, pad_edge=False)
    for heading in ("task", "method", "status", "rounds", "sent", "by"):
        table.add_column(heading, justify="right" if heading in ("task", "rounds") else "left", overflow="fold")
    for task in found:
        cells = (str(task.id), task.method, task.status, _rounds(task), _local(task.sent), task.user)
        table.add_row(*map(escape, cells))
    if found:
        console.console().print(table)
    console.last_line({"tasks": [_line(task) for task in found]})
    return console.OK


def status(options: TaskOptions) -> int:
    """Show how far a task is, and what to do next."""
    from v6_workbench.network import calls, submit, tasks
    from v6_workbench.reporting import diagnostics

    place = connect(options)
    task = tasks.find(place.client, options.task)
    print(f"task {task.id} at {place.name}: {task.method}, {task.status}")
    print(f"{_rounds(task)} rounds are finished{_reached(task)}")
    ended = f", ended {_local(task.ended)}" if task.ended else ""
    print(f"sent {_local(task.sent)} by {task.user} of organization {task.organization}{ended}")
    if task.running and (asked := calls.described(task.calls)):
        print(f"asked last: {asked}")
    if task.silent:
        print(SILENT)
    if not task.running and task.status != "completed":
        print(submit.failure(place.client, task.id))
    elif not task.running and not place.encrypted:  # without the organization's key, status and rounds are still known
        for line in diagnostics.stopped(submit.result_of(place.client, task.id, task.method)):
            print(line)
            fetched = f"runs/task-{task.id}"
            console.say(f"to go on from there, fetch it: {place.command('submit', task.method, '--resume', fetched)}")
    _say_next(place, task)
    console.last_line(_line(task))
    return console.OK


def watch(options: WatchOptions) -> int:
    """Show the rounds of a task until it ends, and its result."""
    from v6_workbench.network import submit, tasks

    values.check_target(options.target)
    results.check_folder(options.out)
    live_page.check(options.page)
    place = connect(options)
    task = tasks.find(place.client, options.task)
    if task.running and task.silent:
        console.say(SILENT)
    if task.waits:
        console.say(WAITS)
    page = LivePage(options.page, task.method, task.rounds, options.target)
    try:
        with console.Bar(task.rounds, task.method, one_job=True) as bar:
            result = submit.follow(
                place.client,
                task.id,
                task.method,
                page.on_round(bar.on_round),
                bar.on_call,
                patience=options.server_timeout,
            )
        result = place.labelled(result, task.id)
    except KeyboardInterrupt:
        console.say(f"\ntask {task.id} goes on; to come back to it: {place.command('watch', task.id)}")
        raise
    except ServerGone as error:
        raise place.without(error, task.id, options.out) from None
    page.end(result)
    return show.finish(result, options.out, options.target)


def fetch(options: FetchOptions) -> int:
    """Bring the result of a task that has ended."""
    from v6_workbench.network import submit, tasks

    values.check_target(options.target)
    results.check_folder(options.out)
    place = connect(options)
    task = tasks.find(place.client, options.task)
    if task.running:
        waiting = place.command("watch", task.id, after=("--out", options.out))
        raise SafeError(
            f"task {task.id} is still running ({task.status}, {_rounds(task)} rounds); `{waiting}` waits for its result"
        )
    result = submit.result_of(place.client, task.id, task.method)
    return show.finish(place.labelled(result, task.id), options.out, options.target)


def cancel(options: TaskOptions) -> int:
    """Stop a task at all nodes."""
    from v6_workbench.network import tasks

    place = connect(options)
    task = tasks.find(place.client, options.task)
    if not task.running:
        raise SafeError(f"task {task.id} has ended already ({task.status}); there is nothing to stop")
    tasks.stop(place.client, task.id)
    console.say(tasks.STOPPED.format(task=task.id))
    if not _say_how_to_resume(place, task):
        kept = f"how far it was: {place.command('status', task.id)}"
        console.say(f"it cannot be resumed, as the server has nothing that a new task could begin with; {kept}")
    console.last_line({"task": task.id, "cancelled": True, "rounds": task.finished})
    return console.OK


def _say_next(place: Place, task: Task) -> None:
    """Print the command that one needs next."""
    if task.waits:
        console.say(WAITS)
    if task.running:
        console.say(f"its rounds as they come: {place.command('watch', task.id)}")
    elif task.status == "completed":
        console.say(f"its result: {place.fetch(task.id, None)}")
    else:
        _say_how_to_resume(place, task)


def _say_how_to_resume(place: Place, task: Task) -> bool:
    """Print the command that goes on with a stopped task, and return whether the server has kept enough for it."""
    able = bool(task.history) and registry.recoverable(task.method) and not place.encrypted
    if able:
        rounds = () if task.rounds is None else ("--rounds", task.rounds)
        same = ("--organization", task.central, "--image", task.image, *rounds)
        console.say(f"to go on from there: {place.command('submit', task.method, '--resume', task.id, after=same)}")
    return able


def _rounds(task: Task) -> str:
    return f"{task.finished} of {task.rounds}" if task.rounds else str(task.finished)


def _reached(task: Task) -> str:
    """The latest evaluation in the log."""
    for row in reversed(task.history):
        for measure in ("r2", "c_index", "accuracy"):
            if row.get(measure) is not None:
                return f"; {measure} {row[measure]:.4f} after round {row['round']}"
    return ""


def _local(time: datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M")


def _line(task: Task) -> dict[str, Any]:
    """A task in the line of JSON."""
    return {
        "task": task.id,
        "method": task.method,
        "status": task.status,
        "finished": task.finished,
        "rounds": task.rounds,
        "sent": task.sent.isoformat(timespec="seconds"),
        "ended": task.ended and task.ended.isoformat(timespec="seconds"),
        "user": task.user,
    }
