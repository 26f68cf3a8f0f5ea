"""``v6-federated privacy plan``: what a privacy budget buys, before a job is sent."""

from dataclasses import fields

from v6_federated.base.errors import SafeError
from v6_workbench.cli import console, results
from v6_workbench.cli.options import PICTURE, PlanOptions

FEWEST = 10  # training rows of a hospital, unless its operator says otherwise
SETTINGS = (
    "epsilon",
    "delta",
    "rounds",
    "sampling",
    "epochs",
    "steps_per_epoch",
    "evaluate_every",
    "clip",
)  # of the job
COLUMNS = (
    "noise: standard deviation of the noise of a sum, over what one row can change in it. Hospitals of a study share "
    "the noise of FedSGD and of evaluations; otherwise each adds all of it.",
    "in a step: the noise of a coordinate of the mean gradient, over clip / sqrt({d}), its size if all rows pulled the "
    "same way. At 1, noise is as large as the largest signal there can be; real signals are smaller.",
    "in the job: the same for the sum of all steps, in which noise grows as the root of their number.",
    "accuracy ±: standard deviation that noise adds to the accuracy in an evaluation on the {held} held-out rows of "
    "all hospitals. It does not change the model.",
)
UNKNOWN = (
    "How accurate a model becomes depends on the data and is not in this table. Try it on a table like yours: "
    "`v6-federated run fedavg --data TABLE --nodes {hospitals} --study --schema FILE --set clip=1 --set "
    "epsilon={epsilon:g} ...`"
)


def run(options: PlanOptions) -> int:
    """Show how much noise a job would have, and other ways to spend the same budget."""
    _check(options)
    results.check_folder(options.out)
    from v6_workbench.reporting import noise, tables  # slow to import
    from v6_workbench.simulation.studies import assumed_colluders, dealt

    everybody = [str(k) for k in range(options.hospitals)]
    blocks = [everybody] if options.hospitals == 1 else dealt(everybody, options.block)
    hospitals = noise.Hospitals(
        number=options.hospitals,
        rows=options.rows,
        holdout=options.holdout,
        classes=options.classes,
        parameters=options.parameters,
        blocks=[len(block) for block in blocks],
        colluders=assumed_colluders(everybody),
        hospitals_a_person=options.hospitals_a_person,
    )
    asked = {name: getattr(options, name) for name in SETTINGS}
    found = noise.alternatives(asked, hospitals)
    print(
        f"{options.hospitals} hospitals with {hospitals.training:,} training rows and {hospitals.held_out:,} held-out "
        f"rows together; a study has {len(blocks)} block(s), and {hospitals.colluders} hospital(s) of each may work "
        f"with the server; epsilon {options.epsilon:g} at delta {options.delta:g}; a model with {options.parameters:,} "
        "parameters"
    )
    console.console().print(tables.noise_table(found))
    for line in (*COLUMNS, UNKNOWN):
        values = {"d": options.parameters, "held": hospitals.held_out}
        print(line.format(**values, hospitals=options.hospitals, epsilon=options.epsilon))
    if options.delta * options.rows / options.hospitals >= 1:
        console.say(
            f"delta {options.delta:g} is too large for {options.rows // options.hospitals} rows at a hospital: it may "
            "give away a whole row; choose one far below 1 / rows"
        )
    picture = None
    if options.out:
        from v6_workbench.reporting import pictures

        picture = options.out / PICTURE
        pictures.write(pictures.noise(noise.by_rounds(asked, hospitals), options.rounds), picture)
    console.last_line(
        {
            **{field.name: getattr(options, field.name) for field in fields(options) if field.name != "out"},
            "training_rows": hospitals.training,
            "held_out_rows": hospitals.held_out,
            "assumed_colluders": hospitals.colluders,
            "blocks": hospitals.blocks,
            "alternatives": [it.to_json() for it in found],
            "picture": None if picture is None else str(picture),
        }
    )
    return console.OK


def _check(options: PlanOptions) -> None:
    """Refuse numbers that no federation has; settings of the job are checked as in a job."""
    for name, least in (("hospitals", 1), ("parameters", 1), ("classes", 2)):
        if (value := getattr(options, name)) < least:
            raise SafeError(f"--{name} {value} must be {least} or more")
    if not 1 <= options.hospitals_a_person <= options.hospitals:
        raise SafeError(
            f"--hospitals-a-person {options.hospitals_a_person} must be from 1 to {options.hospitals}, the number of "
            "hospitals"
        )
    if not 0 <= options.holdout < 1:
        raise SafeError(f"--holdout {options.holdout:g} must be from 0 to below 1, for example 0.2")
    if options.rows < FEWEST * options.hospitals:
        raise SafeError(
            f"--rows {options.rows} are too few for {options.hospitals} hospitals, which need {FEWEST} training rows "
            f"each; expected {FEWEST * options.hospitals} or more"
        )
