"""All commands of operators, in the order in which they are listed."""

from v6_federated.operator import options
from v6_federated.operator.command_line import Command, Group

COMMANDS: tuple[Command | Group, ...] = (
    Command(
        "audit",
        options.AuditOptions,
        "v6_federated.operator.show_audit:run",
        help="Show what left a node, by job, what was refused, and what a privacy budget has been spent on.",
        example="audit hospitals/node-1",
    ),
    Command(
        "results",
        options.ResultsOptions,
        "v6_federated.operator.results:run",
        help="Show how the last model of each job does on this hospital's own held-out rows.",
        example="results hospitals/node-1",
    ),
    Command(
        "stop",
        options.StopOptions,
        "v6_federated.operator.stop:run",
        help="Stop a job at this node: it refuses everything that the job asks from now on.",
        example="stop hospitals/node-1 2f0c",
    ),
    Command(
        "limits",
        options.LimitsOptions,
        "v6_federated.operator.show_limits:run",
        help="Show a node's limits: those of its configuration, of a profile, or of the environment.",
        example="limits --profile careful",
    ),
    Group(
        "keys",
        (
            Command(
                "new",
                options.KeysOptions,
                "v6_federated.operator.make_keys:new",
                help="Make this hospital's identity key, and print the half that others may know.",
                example="keys new hospitals/node-1",
            ),
            Command(
                "show",
                options.KeysOptions,
                "v6_federated.operator.make_keys:show",
                help="Print the half of this hospital's identity key that others may know.",
                example="keys show hospitals/node-1",
            ),
        ),
        "Make or show this hospital's identity key.",
    ),
    Group(
        "schema",
        (
            Command(
                "new",
                options.NewSchemaOptions,
                "v6_federated.operator.check_schema:new",
                help="Draft a schema from this hospital's own table, and say what to check in it by hand.",
                example="schema new patients.csv --label ill --out schema.json",
            ),
            Command(
                "check",
                options.CheckSchemaOptions,
                "v6_federated.operator.check_schema:check",
                help="Check the schema in a hospital's folder, and compare it with the hospital's table.",
                example="schema check hospitals/node-1 --table patients.csv",
            ),
        ),
        "Draft or check what the hospitals agree on about their tables.",
    ),
    Group(
        "study",
        (
            Command(
                "new",
                options.NewStudyOptions,
                "v6_federated.operator.studies:new",
                help="Write a study: which hospitals take part, with which keys, in which blocks.",
                example=(
                    "study new study.json --name sepsis --hospital-totals hidden --hospital A=KEY "
                    "--hospital B=KEY --hospital C=KEY --hospital D=KEY"
                ),
            ),
            Command(
                "check",
                options.CheckStudyOptions,
                "v6_federated.operator.studies:check",
                help="Show the study in a hospital's folder, its code to be read aloud, and whether it is accepted.",
                example="study check hospitals/node-1",
            ),
            Command(
                "accept",
                options.AcceptStudyOptions,
                "v6_federated.operator.studies:accept",
                help="Accept the study in a hospital's folder, if its code is the one that was read aloud.",
                example="study accept hospitals/node-1 --code ABCD-EFGH-IJKL-MNOP-QRST-UVWX-YZ23-4567",
            ),
            Command(
                "sizes",
                options.SizesOptions,
                "v6_federated.operator.sizes:sizes",
                help="Compare sizes of blocks: how often one is whole, and how many jobs reach their last round.",
                example="study sizes --hospitals 50 --misses 0.03 --rounds 20",
            ),
        ),
        "Agree with other hospitals on who takes part.",
    ),
)
