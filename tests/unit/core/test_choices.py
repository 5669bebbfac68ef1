"""What a pod may choose of what holds it, what a call that may be for several pods gives, and what may start."""

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_core.choices.answers import choice_marks, given_by, least
from edgegpu_core.choices.modes import Capability, PluginIsolation
from edgegpu_core.choices.pod_choice import (
    GIVEN_NOTHING,
    NO_CHOICE,
    AllowedChoices,
    GivenChoice,
    PodChoice,
    choice_refusal,
    read_allowed,
    read_choice,
    start_refusal,
)
from edgegpu_plugin.pb import Allocation
from edgegpu_plugin.pb.device_messages import allocation_message

NONE, LIMITER = PodChoice("none"), PodChoice("limiter")
HELD = GivenChoice(PluginIsolation.LIMITER)
DRAWS = GivenChoice(PluginIsolation.LIMITER, ("graphics",))
FREED = GivenChoice(PluginIsolation.NONE, replaced="limiter")
HOLDS = AllowedChoices("limiter")
HOLDS_MOST = AllowedChoices("limiter", ("none",))
FREE = AllowedChoices("none", ("limiter",))
GRAPHICS, BOTH = PodChoice("", ("graphics",)), PodChoice("", ("graphics", "video"))
OPENS = AllowedChoices("limiter", capabilities=("graphics",))
CANNOT = AllowedChoices("none", ("limiter",), "there are no libraries")
MODES = st.sampled_from([*PluginIsolation])
SOME = st.sets(st.sampled_from([*Capability])).map(lambda some: tuple(sorted(some)))
ALLOWED = st.builds(AllowedChoices, MODES, st.lists(MODES, max_size=2).map(tuple), capabilities=SOME)
CHOICES = st.builds(PodChoice, st.sampled_from(["", "none", "limiter", "strong"]), SOME)


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
        (LIMITER, None, "annotation edgegpu.io/isolation: this node's edgegpu is of a version that does not know it"),
        (
            GRAPHICS,
            None,
            "annotation edgegpu.io/capabilities: this node's edgegpu is of a version that does not know it",
        ),
        (GRAPHICS, OPENS, ""),
        (GRAPHICS, AllowedChoices("none"), ""),  # what nothing holds has all that the driver can do
        (PodChoice("none", ("graphics",)), HOLDS_MOST, ""),
        (
            GRAPHICS,
            HOLDS,
            (
                "annotation edgegpu.io/capabilities: this node does not open graphics to containers that it holds: "
                "change the annotation, or add graphics to isolation.capabilities in the node's plugin.yaml"
            ),
        ),
        (PodChoice("limiter", ("graphics",)), FREE, "does not open graphics"),
        (
            PodChoice("", ("display",)),
            AllowedChoices("none"),
            "there is no capability 'display' (there are: graphics, video)",
        ),
        (BOTH, OPENS, "does not open video"),
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
    for opened in allowed.given_to(choices).capabilities:
        assert found.has_limiter
        assert opened in allowed.capabilities
        assert choices
        assert all(opened in one.capabilities for one in choices)


@given(ALLOWED, CHOICES)
def test_a_pod_that_its_node_allows_gets_what_it_chooses_and_starts(allowed: AllowedChoices, choice: PodChoice) -> None:
    found = allowed.given_to([choice])
    if allowed.refusal(PodChoice(choice.isolation)):
        assert found.isolation == allowed.isolation
        assert start_refusal(choice, found, allowed) or found.isolation == choice.isolation
    elif allowed.refusal(choice):
        assert start_refusal(choice, found, allowed)
    else:
        assert found.capabilities == (choice.capabilities if PluginIsolation(found.isolation).has_limiter else ())
        assert found.isolation == (choice.isolation or allowed.isolation)
        assert start_refusal(choice, found, allowed) == ""


@pytest.mark.parametrize(
    ("choice", "given_", "allowed", "words"),
    [
        (
            LIMITER,
            GIVEN_NOTHING,
            FREE,
            "it asks for limiter, and the container was given none when its pod was admitted",
        ),
        (NONE, HELD, HOLDS_MOST, ""),
        (NONE, GIVEN_NOTHING, HOLDS, ""),  # the node allowed it when the pod came
        (NONE, HELD, HOLDS, "does not allow none"),
        (LIMITER, HELD, CANNOT, ""),
        (PodChoice("strong"), HELD, HOLDS, "there is no isolation 'strong'"),
        (
            GRAPHICS,
            HELD,
            OPENS,
            "it asks for graphics, and the container was not given that when its pod was admitted",
        ),
        (GRAPHICS, HELD, HOLDS, "does not open graphics"),
        (GRAPHICS, DRAWS, HOLDS, ""),  # the node opened it when the pod came
        (NO_CHOICE, DRAWS, HOLDS, ""),
        (GRAPHICS, GIVEN_NOTHING, OPENS, ""),
        (
            PodChoice("limiter", ("graphics",)),
            GIVEN_NOTHING,
            OPENS,
            "asks for limiter, and the container was given none",
        ),
        (
            NO_CHOICE,
            GIVEN_NOTHING,
            HOLDS,
            "",
        ),  # it was admitted before the node had a limiter, and is told of as degraded
        (
            NO_CHOICE,
            replace(GIVEN_NOTHING, differs=True),
            HOLDS,
            "given under two settings of isolation: delete the pod",
        ),
        (NONE, FREED, HOLDS_MOST, ""),
        (NONE, FREED, HOLDS, ""),  # the node allowed it when the pod came
        (NO_CHOICE, FREED, HOLDS_MOST, "the container was given none in place of this node's limiter"),
        (NO_CHOICE, FREED, AllowedChoices("none"), "its pod has none, and the container was given none"),
        (LIMITER, FREED, HOLDS_MOST, "it asks for limiter, and the container was given none"),
    ],
)
def test_what_may_start(choice: PodChoice, given_: GivenChoice, allowed: AllowedChoices, words: str) -> None:
    found = start_refusal(choice, given_, allowed)
    assert (words in found) if words else found == ""


def answer(marks: dict[str, str]) -> str:
    message = allocation_message(Allocation(annotations=marks, envs={"A": "edgegpu.io/isolation"}))
    return base64.b64encode(message.SerializeToString()).decode()


@pytest.mark.parametrize("mode", [*PluginIsolation])
@pytest.mark.parametrize("opened", [(), ("graphics",), ("video",), ("graphics", "video")])
@pytest.mark.parametrize("replaced", ["", *PluginIsolation])
def test_kubelets_answer_says_what_was_given(mode: PluginIsolation, opened: tuple[str, ...], replaced: str) -> None:
    given_ = GivenChoice(mode, opened, replaced)
    assert given_by(answer(choice_marks(given_))) == given_


def test_an_answer_without_a_mark_gives_nothing_that_holds() -> None:
    assert given_by(answer({})) == GIVEN_NOTHING
    assert given_by("no base64") == GIVEN_NOTHING


def test_of_two_answers_the_less_strict_counts() -> None:
    assert least([HELD, GIVEN_NOTHING]) == replace(GIVEN_NOTHING, differs=True)
    assert least([HELD, FREED]) == least([FREED, HELD]) == replace(FREED, differs=True)
    assert least([GIVEN_NOTHING, FREED]) == FREED
    assert least([HELD]) == HELD
    one = GivenChoice(PluginIsolation.LIMITER, ("graphics", "video"))
    other = GivenChoice(PluginIsolation.LIMITER, ("video",))
    assert least([one, other]) == least([other, one]) == other
    assert least([]) == GIVEN_NOTHING


@given(ALLOWED, st.lists(CHOICES, max_size=4))
def test_a_pod_that_chooses_nothing_never_starts_with_less_than_its_nodes_mode(
    allowed: AllowedChoices, choices: list[PodChoice]
) -> None:
    found = allowed.given_to(choices)
    told = start_refusal(NO_CHOICE, found, allowed)
    assert bool(told) == (found.isolation.strictness < PluginIsolation(allowed.isolation).strictness)


@given(st.builds(AllowedChoices, MODES, st.lists(MODES, max_size=2).map(tuple), st.sampled_from(["", "why"]), SOME))
def test_a_nodes_report_carries_what_it_allows(allowed: AllowedChoices) -> None:
    assert read_allowed(allowed.to_json()) == allowed


def test_an_annotation_is_read_as_it_is_written() -> None:
    assert read_choice({"edgegpu.io/isolation": "Limiter"}) == PodChoice("Limiter")
    assert read_choice({"edgegpu.io/capabilities": " video,graphics ,,video"}) == BOTH
    assert read_choice({"edgegpu.io/isolation": ""}) == read_choice({}) == NO_CHOICE
