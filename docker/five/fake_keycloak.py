"""Keycloak, as far as a local network of vantage6 5 needs it: accounts from a file, and tokens that say who asks.

A service that signs what it is asked to is no protection: this one checks names and secrets, and nothing else. A real
Keycloak has policies, sessions, roles, a browser's sign-in and much more.
"""

import base64
import secrets
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from flask import Flask, jsonify, request

REALM = "vantage6"
SECONDS = 600  # for which a token holds


def service(accounts: Mapping[str, Mapping[str, str]], key_file: Path) -> Flask:
    """Make the service.

    Args:
        accounts: by their names: ``id``, ``secret`` and ``kind`` (user, node or admin).
        key_file: the key that signs tokens. It is made if it is not there, and outlives a restart.

    Returns:
        The service, to be run by a web server.
    """
    key = _key(key_file)
    shape = serialization.PublicFormat.SubjectPublicKeyInfo
    public = base64.b64encode(key.public_key().public_bytes(serialization.Encoding.DER, shape)).decode()
    app = Flask("keycloak")

    def token(name: str, kind: str) -> dict[str, Any]:
        now = int(time.time())
        claims = {"sub": accounts[name]["id"], "iat": now, "exp": now + SECONDS, "jti": str(uuid.uuid4())}
        return {
            f"{use}_token": jwt.encode(
                claims | {"vantage6_client_type": kind, "typ": use, "name": name}, key, algorithm="RS256"
            )
            for use in ("access", "refresh")
        } | {"token_type": "Bearer", "expires_in": SECONDS}

    @app.get(f"/realms/{REALM}")
    def realm():
        return jsonify(realm=REALM, public_key=public)

    @app.post(f"/realms/{REALM}/protocol/openid-connect/token")
    def sign_in():
        form = request.form
        if form["grant_type"] == "refresh_token":
            try:
                old = jwt.decode(form["refresh_token"], key.public_key(), algorithms=["RS256"])
            except jwt.PyJWTError:
                return jsonify(error="invalid_grant", error_description="Token is not active"), 400
            return jsonify(token(old["name"], old["vantage6_client_type"]))
        of_user = form["grant_type"] == "password"
        name, secret = (form["username"], form["password"]) if of_user else (form["client_id"], form["client_secret"])
        known = accounts.get(name)
        if known is None or not secrets.compare_digest(known["secret"], secret):
            return jsonify(error="invalid_grant", error_description="Invalid user or client credentials"), 401
        return jsonify(token(name, known["kind"]))

    # What HQ asks when it begins: who its own administrator is, whose account here it then marks as its own.
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
