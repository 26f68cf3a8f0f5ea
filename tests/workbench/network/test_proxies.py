"""A server on this machine is reached directly, whatever proxies are configured."""

import pytest
import requests

from v6_workbench.network import local

ELSEWHERE = ("docker.hospital", "a", "c")


@pytest.mark.parametrize(
    "named", [{}, {"NO_PROXY": "docker.hospital"}, {"no_proxy": "a", "NO_PROXY": "b"}, {"no_proxy": "*"}]
)
def test_only_this_machine_is_not_reached_through_a_proxy(monkeypatch, named):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy.hospital:3128")
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    before = [requests.utils.should_bypass_proxies(f"http://{host}", None) for host in ELSEWHERE]
    local.bypass_proxies()
    after = [requests.utils.should_bypass_proxies(f"http://{host}", None) for host in ELSEWHERE]
    assert before == after and requests.utils.should_bypass_proxies("http://127.0.0.1:5000", None)
