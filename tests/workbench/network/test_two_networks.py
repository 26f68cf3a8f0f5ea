"""Two encrypted networks in one process: each has its own key."""

from vantage6.common.encryption import RSACryptor

from v6_workbench.network import client


def test_the_key_of_another_network_is_forgotten(tmp_path):
    files = [tmp_path / "one.pem", tmp_path / "two.pem"]
    public = [RSACryptor.create_public_key_bytes(RSACryptor.create_new_rsa_key(file)) for file in files]
    for file, key in zip(files, public, strict=True):
        client.forget_other_keys()
        assert RSACryptor(file).public_key_bytes == key
    client.forget_other_keys()
