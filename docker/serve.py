"""Runs a vantage6 server in its container: SERVER_CONFIG ENTITIES PORT.

What ``vserver-local import`` and the official image's uwsgi do, in one process: load the organisations, users and the
collaboration, then serve. The organisations are loaded first, so that their ids are 1..N.
"""

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402
import secrets  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import bcrypt  # noqa: E402
import yaml  # noqa: E402
from vantage6.cli.context.server import ServerContext  # noqa: E402
from vantage6.server import ServerApp  # noqa: E402
from vantage6.server.controller import fixture  # noqa: E402
from vantage6.server.model.base import Database  # noqa: E402


def main(config: str, entities: str, port: str) -> None:
    context = ServerContext.from_external_config_file(config, system_folders=False)
    uri = context.get_database_uri()
    new = not Path(uri.removeprefix("sqlite:///")).exists()  # a server that is restarted has its entities
    Database().connect(uri=uri, allow_drop_all=False)
    if new:
        fixture.load(yaml.safe_load(Path(entities).read_text(encoding="utf-8")))
    # Otherwise the server's root user gets the password "root".
    nobody = bcrypt.hashpw(secrets.token_bytes(32).hex().encode(), bcrypt.gensalt())
    os.environ["V6_INIT_SUPER_PASS_HASHED"] = nobody.decode()
    server = ServerApp(context).start()
    server.socketio.run(server.app, host="0.0.0.0", port=int(port), log_output=False)


main(*sys.argv[1:])
