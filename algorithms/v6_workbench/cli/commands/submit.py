"""``v6-federated submit``: a method as a task on a vantage6 server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_workbench import registry
from v6_workbench.cli import console, job, live_page, results, show
from v6_workbench.cli.live_page import LivePage
from v6_workbench.cli.options import SubmitOptions
from v6_workbench.cli.place import Place, connect
from v6_workbench.errors import NetworkError, ServerGone


def run(options: SubmitOptions) -> int:
    """Send a method as a task, show its rounds, and bring the result."""
    options = job.with_rounds(options, options.method)
    if options.repeats is not None:
        raise SafeError(
            "--repeats is for run and compare: hospitals hold out the same rows in every job, so that jobs together "
            "tell no more about a row than one; to vary the random choices only, send tasks with other --seed"
        )
    if options.exclude is not None and options.resume is not None:
        raise SafeError("--exclude cannot be used with --resume, which keeps the features of the job; remove it")
    features, excluded = job.features_of(options), job.excluded_of(options)
    rows = {"label": options.label, "features": features, "exclude": excluded, "holdout": options.holdout}
    settings = {name: value for name, value in rows.items() if value is not None}
    settings |= {**job.seed_of(options), **job.settings_of(options)}
    place = None
    if job.has_names(settings):
        place = connect(options, organization=options.organization)
        settings = job.with_ids(settings, place.ids)
    if options.resume is not None and options.resumed_task is None:
        settings = job.resumed(results.read(Path(options.resume)), options.method, settings)
    checked = registry.validate(options.method, settings)
    job.check_has_accuracy(options.method, checked, options.target)
    if options.resumed_task is None:  # otherwise it is checked with the settings of the earlier task
        registry.check(options.method, checked)
    results.check_folder(options.out)
    live_page.check(options.page)
    page = LivePage(options.page, options.method, options.rounds, options.target)
    result = _send(options, settings, page, place)
    page.end(result)
    return show.finish(result, options.out, options.target)


def _send(options: SubmitOptions, settings: dict[str, Any], page: LivePage, place: Place | None) -> dict[str, Any]:
    """Send the task, show its rounds, return its result. Ctrl-C asks whether the nodes should stop too."""
    from v6_workbench.network import earlier_tasks, images, submit

    place = place or connect(options, organization=options.organization)
    client, network = place.client, place.network
    organization, label = options.organization, options.database or "default"
    if network is not None:
        organization = min(network.organizations.values()) if organization is None else organization
        label = options.database or network.label
    assert organization is not None  # ``connect`` asks for it
    asked = settings.get("organizations")
    asked = asked and sorted({organization, *asked, *(settings.get("evaluators") or [])})
    for offline in submit.check_nodes(client, place.collaboration, label, asked):
        console.say(f"organization {offline}: its node is offline; the task waits for it")
    if options.resumed_task is not None:
        earlier = earlier_tasks.result_of(client, options.resumed_task, options.method)
        settings = job.resumed(earlier, options.method, settings)
        asked = asked or sorted({organization, *earlier["organizations"]})
        registry.check(options.method, registry.validate(options.method, settings))
    image = options.image or images.of_method(options.method)
    if network is not None and (stale := images.stale([image])):
        console.say(images.STALE.format(names=", ".join(stale)))
    task = submit.send(
        client,
        options.method,
        settings,
        collaboration=place.collaboration,
        organization=organization,
        organizations=asked or submit.members(client, place.collaboration),
        image=image,
        label=label,
        query=options.query,
        digest=None if network is None else images.digest(image),
        say=console.say,
    )
    try:
        console.say(f"task {task} was sent to {place.name}; to come back to it: {place.command('watch', task)}")
        with console.Bar(options.rounds, options.method, one_job=True) as bar:
            result = submit.follow(
                client,
                task,
                options.method,
                page.on_round(bar.on_round),
                bar.on_call,
                patience=options.server_timeout,
            )
        return place.labelled(result, task)
    except KeyboardInterrupt:
        _ask_to_stop(place, task, options)
        raise
    except ServerGone as error:
        raise place.without(error, task, options.out) from None


def _ask_to_stop(place: Place, task: int, options: SubmitOptions) -> None:
    """Stop the task at the nodes if the user says so; otherwise say how to bring its result."""
    from v6_workbench.network import tasks

    console.say(f"\nStop task {task} at the nodes too? [y/N]")
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    if answer.strip().lower().startswith("y"):
        try:
            tasks.stop(place.client, task)
        except NetworkError as error:
            console.say(error)
        else:
            console.say(tasks.STOPPED.format(task=task))
            return
    console.say(f"task {task} goes on; this brings its result:")
    console.say(place.fetch(task, options.out))
