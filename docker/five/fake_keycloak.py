"""Keycloak, as far as a local network of vantage6 5 needs it: service accounts with their secrets, and their tokens.

Nodes, the researcher and HQ have such accounts. It checks the secret and nothing else: a real Keycloak has people, who
sign in with a browser, and policies, sessions, roles and much more.
"""

import base64
import secrets
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from flask import Flask, jsonify, request

REALM = "vantage6"
SECONDS = 600  # for which a token holds


def service(accounts: Mapping[str, Mapping[str, str]], key_file: Path) -> Flask:
    """Make the service.

    Args:
        accounts: by their client's id: ``id``, ``secret`` and ``kind`` (user, node or admin).
        key_file: the key that signs tokens. It is made if it is not there, and outlives a restart.

    Returns:
        The service, to be run by a web server.
    """
    key = _key(key_file)
    shape = serialization.PublicFormat.SubjectPublicKeyInfo
    public = base64.b64encode(key.public_key().public_bytes(serialization.Encoding.DER, shape)).decode()
    app = Flask("keycloak")

    @app.get(f"/realms/{REALM}")
    def realm():
        return jsonify(realm=REALM, public_key=public)

    @app.post(f"/realms/{REALM}/protocol/openid-connect/token")
    def sign_in():
        if request.form["grant_type"] != "client_credentials":
            return jsonify(error="unsupported_grant_type", error_description="only service accounts sign in here"), 400
        account = accounts.get(request.form["client_id"])
        if account is None or not secrets.compare_digest(account["secret"], request.form["client_secret"]):
            return jsonify(
                error="invalid_client", error_description="Invalid client or Invalid client credentials"
            ), 401
        now = int(time.time())
        claims = {"sub": account["id"], "vantage6_client_type": account["kind"], "iat": now, "exp": now + SECONDS}
        token = jwt.encode(claims | {"jti": str(uuid.uuid4())}, key, algorithm="RS256")
        return jsonify(access_token=token, token_type="Bearer", expires_in=SECONDS)

    # What HQ asks when it starts for the first time: which account is that of its administrator, and to mark it.
    @app.get(f"/admin/realms/{REALM}/users")
    def users():
        name = request.args["username"]
        return jsonify([{"id": accounts[name]["id"], "username": name}] if name in accounts else [])

    @app.get(f"/admin/realms/{REALM}/users/<identity>")
    def user(identity: str):
        return jsonify(id=identity, attributes={})

    @app.put(f"/admin/realms/{REALM}/users/<identity>")
    def change(identity: str):
        return "", 204

    return app


def _key(file: Path) -> rsa.RSAPrivateKey:
    if not file.exists():
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        form = serialization.PrivateFormat.PKCS8
        file.touch(mode=0o600)
        file.write_bytes(made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return serialization.load_pem_private_key(file.read_bytes(), None)
