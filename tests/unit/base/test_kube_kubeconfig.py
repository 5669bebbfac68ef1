import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgegpu_base.kube import KubeconfigError
from edgegpu_base.kube import load_kubeconfig as load


def write(folder: Path, *, cluster: dict[str, Any], user: dict[str, Any], current: str = "main") -> Path:
    file = folder / "kubeconfig"
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "current-context": current,
    }
    file.write_text(yaml.safe_dump(value))
    return file


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_inline_data_is_decoded(tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:6443/", "certificate-authority-data": b64("CA")}
    access = load(
        write(tmp_path, cluster=cluster, user={"client-certificate-data": b64("C"), "client-key-data": b64("K")})
    )
    assert (access.server, access.ca_pem, access.cert_pem, access.key_pem) == ("https://127.0.0.1:6443", "CA", "C", "K")
    assert "key_pem" not in repr(access)


def test_files_count_from_the_folder_of_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("CA")
    cluster = {"server": "https://h:6443", "certificate-authority": "ca.pem"}
    access = load(write(tmp_path, cluster=cluster, user={"tokenFile": "token"}))
    assert access.ca_pem == "CA"
    assert access.token_file == tmp_path / "token"


def test_tls_options_and_token(tmp_path: Path) -> None:
    cluster = {"server": "https://h", "insecure-skip-tls-verify": True, "tls-server-name": "kubernetes"}
    access = load(write(tmp_path, cluster=cluster, user={"token": "secret"}))
    assert (access.verify, access.server_name, access.token) == (False, "kubernetes", "secret")
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    ("cluster", "user", "current", "words"),
    [
        ({"server": "https://h"}, {}, "other", r"current-context 'other' is not among its contexts \(main\)"),
        ({"server": "h:6443"}, {}, "main", "not an http"),
        ({}, {}, "main", "clusters.0.cluster.server: Field required"),
        ({"server": "https://h"}, {"exec": {"command": "aws"}}, "main", "exec plugin.*service account"),
        ({"server": "https://h"}, {"client-certificate-data": b64("C")}, "main", "no client-key"),
        ({"server": "https://h"}, {"client-key-data": "%%%"}, "main", "client-key is not PEM"),
        ({"server": "https://h", "certificate-authority": "absent.pem"}, {}, "main", "absent.pem: No such file"),
        ({"server": "https://h", "certificate-authority": "/dev/null"}, {}, "main", "/dev/null: it is empty"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], current: str, words: str
) -> None:
    with pytest.raises(KubeconfigError, match=words):
        load(write(tmp_path, cluster=cluster, user=user, current=current))


@pytest.mark.parametrize("text", ["", "just words", "a: [", "- 1"])
def test_what_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(KubeconfigError, match="kubeconfig"):
        load(file)


def test_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"No such file.*kubernetes\.kubeconfig"):
        load(tmp_path / "absent")
