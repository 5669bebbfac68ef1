"""What a pod may choose of what holds it, what a call that may be for several pods gives, and what may start."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_core.choices.answers import choice_marks, given_by, least
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.choices.pod_choice import (
    NO_CHOICE,
    TOO_OLD,
    AllowedChoices,
    PodChoice,
    choice_refusal,
    read_allowed,
    read_choice,
    start_refusal,
)
from edgegpu_plugin.pb import Allocation
from edgegpu_plugin.pb.device_messages import allocation_message

NONE, LIMITER = PodChoice("none"), PodChoice("limiter")
HOLDS = AllowedChoices("limiter")
HOLDS_MOST = AllowedChoices("limiter", ("none",))
FREE = AllowedChoices("none", ("limiter",))
CANNOT = AllowedChoices("none", ("limiter",), "there are no libraries")
MODES = st.sampled_from([*PluginIsolation])
ALLOWED = st.builds(AllowedChoices, MODES, st.lists(MODES, max_size=2).map(tuple))
CHOICES = st.builds(PodChoice, st.sampled_from(["", "none", "limiter", "strong"]))


@pytest.mark.parametrize(
    ("choice", "allowed", "words"),
    [
        (NO_CHOICE, HOLDS, ""),
        (LIMITER, HOLDS, ""),
        (NONE, HOLDS_MOST, ""),
        (LIMITER, FREE, ""),
        (NONE, FREE, ""),
        (NONE, CANNOT, ""),
        (
            NONE,
            HOLDS,
            (
                "annotation edgegpu.io/isolation: this node does not allow none (it allows: limiter): change the "
                "annotation, or add none to isolation.pods_may in the node's plugin.yaml"
            ),
        ),
        (LIMITER, AllowedChoices("none"), "does not allow limiter (it allows: none)"),
        (LIMITER, CANNOT, "this node cannot give limiter: there are no libraries"),
        (PodChoice("strong"), FREE, "there is no isolation 'strong' (this node allows: none, limiter)"),
        (PodChoice("strong"), CANNOT, "there is no isolation 'strong'"),
        (LIMITER, None, TOO_OLD),
        (NO_CHOICE, None, ""),
    ],
)
def test_what_a_pod_may_choose(choice: PodChoice, allowed: AllowedChoices | None, words: str) -> None:
    found = choice_refusal(choice, allowed)
    assert (words in found) if words else found == ""


def test_a_mode_of_a_newer_node_may_be_chosen_by_an_older_extender() -> None:
    assert choice_refusal(PodChoice("vm"), AllowedChoices("limiter", ("vm",))) == ""


@given(ALLOWED, st.lists(CHOICES, max_size=4))
def test_a_call_that_may_be_for_several_pods_gives_no_pod_less_than_it_would_get_alone(
    allowed: AllowedChoices, choices: list[PodChoice]
) -> None:
    found = PluginIsolation(allowed.given_to(choices).isolation)
    alone = [PluginIsolation(allowed.given_to([one]).isolation) for one in choices]
    assert all(found.strictness >= one.strictness for one in alone)
    assert found in alone or (not choices and found == allowed.isolation)


@given(ALLOWED, CHOICES)
def test_a_pod_that_its_node_allows_gets_what_it_chooses_and_starts(allowed: AllowedChoices, choice: PodChoice) -> None:
    found = allowed.given_to([choice])
    if allowed.refusal(choice):
        assert found.isolation == allowed.isolation
        assert start_refusal(choice, found, allowed) or found.isolation == choice.isolation
    else:
        assert found.isolation == (choice.isolation or allowed.isolation)
        assert start_refusal(choice, found, allowed) == ""


@pytest.mark.parametrize(
    ("choice", "given_", "allowed", "words"),
    [
        (LIMITER, NONE, FREE, "it asks for limiter, and the container was given none when its pod was admitted"),
        (NONE, LIMITER, HOLDS_MOST, ""),
        (NONE, NONE, HOLDS, ""),  # the node allowed it when the pod came
        (NONE, LIMITER, HOLDS, "does not allow none"),
        (LIMITER, LIMITER, CANNOT, ""),
        (PodChoice("strong"), LIMITER, HOLDS, "there is no isolation 'strong'"),
        (NO_CHOICE, NONE, HOLDS, ""),  # it was admitted before the node had a limiter, and is told of as degraded
    ],
)
def test_what_may_start(choice: PodChoice, given_: PodChoice, allowed: AllowedChoices, words: str) -> None:
    found = start_refusal(choice, given_, allowed)
    assert (words in found) if words else found == ""


def answer(marks: dict[str, str]) -> str:
    message = allocation_message(Allocation(annotations=marks, envs={"A": "edgegpu.io/isolation"}))
    return base64.b64encode(message.SerializeToString()).decode()


@pytest.mark.parametrize("mode", [*PluginIsolation])
def test_kubelets_answer_says_what_was_given(mode: PluginIsolation) -> None:
    assert given_by(answer(choice_marks(PodChoice(mode)))) == PodChoice(mode)


def test_an_answer_without_a_mark_gives_nothing_that_holds() -> None:
    assert given_by(answer({})) == NONE
    assert given_by("no base64") == NONE


def test_of_two_answers_the_less_strict_counts() -> None:
    assert least([LIMITER, NONE]) == NONE
    assert least([LIMITER]) == LIMITER
    assert least([]) == NO_CHOICE


@given(st.builds(AllowedChoices, MODES, st.lists(MODES, max_size=2).map(tuple), st.sampled_from(["", "why"])))
def test_a_nodes_report_carries_what_it_allows(allowed: AllowedChoices) -> None:
    assert read_allowed(allowed.to_json()) == allowed


def test_an_annotation_is_read_as_it_is_written() -> None:
    assert read_choice({"edgegpu.io/isolation": "Limiter"}) == PodChoice("Limiter")
    assert read_choice({"edgegpu.io/isolation": ""}) == read_choice({}) == NO_CHOICE
