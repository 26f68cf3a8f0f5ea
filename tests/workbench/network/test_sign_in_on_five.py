"""Signing in on vantage6 5: at Keycloak, with a browser or as a service account."""

import json
from types import SimpleNamespace

import pytest

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import FIVE
from v6_workbench.errors import NetworkError

if not FIVE:
    pytest.skip("vantage6 5 is not installed", allow_module_level=True)

from keycloak import KeycloakConnectionError, KeycloakPostError

from v6_workbench.network.client import five

DEVICE = {"verification_uri": "https://auth/device", "user_code": "AB-CD", "device_code": "d", "interval": 0}


def refusal(error):
    return KeycloakPostError("no", response_code=400, response_body=json.dumps({"error": error}).encode())


def keycloak(*answers):
    """A Keycloak that gives these answers, one after another."""
    left = [*answers]

    def token(**form):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(device=lambda scope: DEVICE, token=token)


@pytest.fixture
def sign_in(monkeypatch):
    """Signs in at such a Keycloak; ``said`` is what the user was told."""

    def call(server, username=None, known=None):
        class Client:
            def __init__(self, address, auth, log_level):
                self.kc_openid = server
                self.request = lambda endpoint, retry: known or {"id": 1}

            def initialize_service_account(self, secret, username):
                self.account = (username, secret)

            def _finalize_successful_authentication(self, token):
                self.token = token

        monkeypatch.setattr(five, "UserClient", Client)
        monkeypatch.setattr(five.time, "sleep", lambda seconds: None)
        call.said = []
        return five.authenticated("https://hq/hq", "https://auth", username, "secret", call.said.append)

    return call


def test_with_a_browser(sign_in):
    """The address is shown, as vantage6's own client shows it only if it finds that it has no browser."""
    user = sign_in(keycloak(refusal("authorization_pending"), refusal("slow_down"), {"access_token": "t"}))
    assert user.token == {"access_token": "t"}
    assert sign_in.said == ["sign in at https://auth/device (code AB-CD); waiting"]


def test_as_a_service_account(sign_in):
    user = sign_in(keycloak({"access_token": "t"}), "ann")
    assert user.account == ("ann", "secret") and user._access_token == "t" and not sign_in.said


@pytest.mark.parametrize(
    ("server", "username", "known", "says"),
    [
        (
            keycloak(refusal("expired_token")),
            None,
            None,
            "at https://auth does not accept your sign-in: expired_token",
        ),
        (keycloak(refusal("invalid_client")), "ann", None, "the service account ann with this secret: invalid_client"),
        (keycloak(KeycloakConnectionError("x\ny")), "ann", None, "no Keycloak answers at https://auth; check --auth"),
        (keycloak({"access_token": "t"}), "ann", {"msg": "who?"}, "https://hq/hq does not know this user of Keycloak"),
    ],
)
def test_a_user_who_is_not_accepted(sign_in, server, username, known, says):
    with pytest.raises(NetworkError) as caught:
        sign_in(server, username, known)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_without_the_address_of_keycloak():
    with pytest.raises(SafeError, match="sign in at Keycloak; add its address, such as --auth https://auth.org"):
        five.authenticated("https://hq/hq", None, None, None, print)
