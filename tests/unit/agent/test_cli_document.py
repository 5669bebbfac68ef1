"""Reading the status document: what is ignored, what is defaulted, what is refused and in which words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kits.cli import CARD_0, card, document, pod

from edgegpu_agent.cli.clients import plugin as client
from edgegpu_agent.cli.clients.document import DocumentError, read_document
from edgegpu_agent.cli.status import problems
from edgegpu_plugin import status
from edgegpu_plugin.config import schema


def test_the_socket_and_the_file_are_where_the_plugin_has_them() -> None:
    assert client.SOCKET_NAME == status.SOCKET_NAME
    assert client.DEFAULT_CONFIG == schema.DEFAULT_PATH
    assert schema.PluginConfig(version=1).paths.run / status.SOCKET_NAME == client.DEFAULT_SOCKET


def test_unknown_keys_are_ignored_and_kept() -> None:
    doc = read_document(document(tomorrow=[1]))
    assert doc.raw["tomorrow"] == [1]


def test_a_document_of_an_extender_alone_needs_no_more() -> None:
    doc = read_document({"v": 1, "node": "s", "role": "extender-only", "api": {"synced": True}, "extender": None})
    assert not doc.has_cards
    assert problems(doc) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "the document is no object"),
        ({}, "v is missing"),
        ({"v": 2}, "version 2, and this edgegpu reads version 1"),
        ({"v": True}, "v is True"),
        (document(node=None), "node is missing"),
        (document(cards=[{**card(), "units": "29"}]), "cards[0].units is '29'"),
        (document(cards=["x"]), "cards[0] is no object"),
        (document(pods=[pod("a", 1, CARD_0), {}]), "pods[1].namespace is missing"),
        (document(pods={"a": 1}), "pods is {'a': 1}"),
        (document(kubelet={"registered": 1}), "kubelet.registered is 1"),
    ],
)
def test_a_broken_document_is_refused_with_the_place(value: object, words: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(words)):
        read_document(value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"driver": {"version": "", "problem": "no driver library"}}, ["driver: no driver library"]),
        (
            {"kubelet": {"registered": False, "waiting_for": "kubelet.sock"}},
            ["kubelet: not registered, waiting for kubelet.sock"],
        ),
        ({"cards": [card(healthy=False)]}, [f"card 0 is out of order ({CARD_0})"]),
        (
            {"cards": [card(healthy=False, problem="XID 95")]},
            [f"card 0 is out of order ({CARD_0}): XID 95"],
        ),
        ({"api": {"synced": False, "problem": "refused"}}, ["API: refused"]),
        ({"api": {}}, ["API: the cluster has not been read yet"]),
        (
            {"extender": {"listen": "127.0.0.1:1", "healthy": False}},
            ["extender: nothing answers on 127.0.0.1:1; new GPU pods wait"],
        ),
        ({"extender": None}, []),
        (
            {"pods": [pod("a", 1, state="refused", reason="needs 30")]},
            ["baetyl-edge/a container main is refused: needs 30"],
        ),
        ({"pods": [pod("a", 1, state="waiting")]}, []),
    ],
)
def test_what_counts_as_wrong(change: dict[str, Any], words: list[str]) -> None:
    assert problems(read_document(document(**change))) == words
