"""No secret leaves in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edgegpu_agent.actions.redact import HIDDEN, Redactor
from edgegpu_installer.layout import LIMITS_KUBECONFIG, Layout

if TYPE_CHECKING:
    from pathlib import Path

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6In.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl-_x"
K3S = f"K10{'0123456789abcdef' * 4}::server:9f8e7d6c5b4a"


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        (f"Authorization: Bearer {JWT}", JWT),
        (f'token: "{JWT}"', JWT),
        (f"found {JWT} in it", JWT),
        (f"k3s agent --token {K3S} --server x", K3S),
        (f"joined with {K3S}", K3S),
        ("K3S_TOKEN=abcdef0123456789 k3s server", "abcdef0123456789"),
        ("edgegpu install --join=eyABCDEFG", "eyABCDEFG"),
        ("bootstrap 07401b.f395accd246ae52d used", "f395accd246ae52d"),
        ("  client-key-data: LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0t", "LS0tLS1CRUdJTiBF"),
        ('{"keyData": "LS0tLS1CRUdJ", "x": 1}', "LS0tLS1CRUdJ"),
        ("postgres://edge:hunter22@db/x", "hunter22"),
        ("http://:hunter22@proxy:3128", "hunter22"),
        ("http://edge:hunt@er22@proxy:3128", "er22"),
        ("PUT https://bucket/x?X-Amz-Signature=deadbeef&y=1", "deadbeef"),
        ("password=hunter22", "hunter22"),
        ('password="hunter two, 22"', "22"),
        ('{"password": "hun\\"ter 22", "x": 1}', "ter 22"),
        (r"body {\"token\": \"hunter two 22\"} was refused", "two 22"),
        ("password: 'hunter''s 22'", "s 22"),
        ("secret = 'hunter two 22", "two 22"),
        ('edgegpu install --token "hunter two 22"', "two 22"),
        ("argv: ['k3s', '--token', 'hunter two']", "hunter two"),
        ('["k3s", "--agent-token", "hunter,22"]', "22"),
        (f"box k3s[7]: {'MHcCAQEEIBoD' * 5}abcd", "MHcCAQEEIBoD"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(line: str, secret: str) -> None:
    clean = Redactor().line(line)
    assert secret not in clean
    assert HIDDEN in clean


@pytest.mark.parametrize(
    "line", ["k3s v1.33.5+k3s1 is up", "2 cards, 512 units, GPU-5f0c-11", "token count 3 of 5", "edgegpu.io/cards: 0,1"]
)
def test_what_is_none_stays(line: str) -> None:
    assert Redactor().line(line) == line


def test_private_keys_go_from_their_first_line_to_their_last() -> None:
    key = ["-----BEGIN EC PRIVATE KEY-----\n", "MHcCAQEEIB\n", "-----END EC PRIVATE KEY-----\n"]
    assert list(Redactor().lines(["a\n", *key, "b\n"])) == ["a\n", f"{HIDDEN} private key\n", "b\n"]


def test_the_boxs_own_secrets_are_hidden_however_they_are_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.etc.mkdir(parents=True)
    layout.cloud_token.write_text("one-time-4711\n")
    layout.kubeconfig.write_text("users:\n- user:\n    token: opaque-account-token\n")
    layout.at(LIMITS_KUBECONFIG).write_text("users:\n- user:\n    token: account-for-limits\n")
    redactor = Redactor.of_box(layout)
    clean = redactor.line("it said one-time-4711, then opaque-account-token, account-for-limits.")
    assert clean == f"it said {HIDDEN}, then {HIDDEN}, {HIDDEN}."


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("var/lib/rancher/k3s/server/token", f"{K3S}\n"),
        ("var/lib/rancher/k3s/server/agent-token", "9f8e7d6c5b4a\n"),
        ("etc/rancher/k3s/config.yaml", f"write-kubeconfig-mode: '0644'\ntoken: {K3S}\n"),
        ("etc/rancher/k3s/config.yaml", 'token: "9f8e7d6c5b4a"\n'),
        ("etc/systemd/system/k3s-agent.service.env", "K3S_TOKEN='9f8e7d6c5b4a'\nK3S_URL='https://x'\n"),
    ],
)
def test_the_password_in_a_k3s_token_is_hidden_alone_too(tmp_path: Path, where: str, text: str) -> None:
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    path.write_text(text)
    redactor = Redactor.of_box(Layout(tmp_path))
    assert redactor.line("basic auth of node:9f8e7d6c5b4a failed") == f"basic auth of node:{HIDDEN} failed"


def test_the_proxys_password_is_hidden_however_it_is_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.etc.mkdir(parents=True)
    layout.agent_yaml.write_text("cloud:\n  url: https://c\n  proxy: http://edge:hunter%40twenty@proxy:3128\n")
    redactor = Redactor.of_box(layout)
    clean = redactor.line("407 for edge, hunter@twenty, or hunter%40twenty at http://edge:hunter@twenty@proxy:3128/")
    assert clean == f"407 for edge, {HIDDEN}, or {HIDDEN} at http://edge:{HIDDEN}@proxy:3128/"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("asked http://edge:hunter…", f"asked http://edge:{HIDDEN}…"),
        (f"found {JWT[:40]}…, no more", f"found {HIDDEN}…, no more"),
        ("it said one-time-4…\nand one-time-4711", f"it said {HIDDEN}…\nand {HIDDEN}"),
        ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB…", f"{HIDDEN} private key\n"),
        ("it said one-time\nand no m…", "it said one-time\nand no m…"),
    ],
)
def test_what_was_cut_in_the_middle_of_a_secret_holds_no_half_of_it(text: str, clean: str) -> None:
    assert Redactor(("one-time-4711",)).text(text) == clean
