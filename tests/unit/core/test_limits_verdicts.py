"""The verdict table: each row an app, what there is, and what is said about the change."""

from dataclasses import replace

import pytest
from kits.limitscases import asks, change, daemon, node, own, recreate, rolling, stateful

from edgegpu_core.limits.capacity import NewPod, Quota
from edgegpu_core.limits.nodes import Constraints, NodeRequirement, Taint, Toleration
from edgegpu_core.limits.verdict import FitResult, LimitsChange, limits_verdict, manual_step
from edgegpu_core.limits.workload import UpdateStrategy
from edgegpu_core.sentences import sentence

FITS, AFTER, NEVER = FitResult.FITS, FitResult.AFTER_STOP, FitResult.NEVER
FIELD = {"forty": (0, 40), "fifty": (0, 50), "a": (0, 1)}
GPU_ONLY = Constraints(selector={"gpu": "yes"})
ON_A_OR_B = Constraints(
    terms=((NodeRequirement("kubernetes.io/hostname", "In", ("a",)),), (NodeRequirement("zone", "Exists"),)),
)
TAINTED = (Taint("dedicated", "gpu"),)
TOLERANT = Constraints(tolerations=(Toleration("dedicated", "gpu", "NoSchedule"),))

ROWS: dict[str, tuple[LimitsChange, FitResult, bool]] = {
    # the field's scenarios
    "40+50+1 on 94: 1 to 10": (change(recreate(), asks(10), node("box-1", [94], FIELD), pods=own("a")), NEVER, False),
    "40+50+1 on 94: 1 to 4": (change(recreate(), asks(4), node("box-1", [94], FIELD), pods=own("a")), AFTER, False),
    "40+50+1 on 94: 1 to 3": (change(recreate(), asks(3), node("box-1", [94], FIELD), pods=own("a")), FITS, False),
    "4+20+20 on two of 29": (
        change(recreate(), asks(20), node("box-1", [29, 29], {"x": (0, 4), "y": (0, 20), "a": (1, 4)}), pods=own("a")),
        FITS,
        False,
    ),
    # RollingUpdate
    "surge has room": (
        change(rolling(1, 1, 0), asks(10), node("box-1", [29], {"a": (0, 10)}), pods=own("a")),
        FITS,
        False,
    ),
    "surge has none, the stop makes it": (
        change(rolling(1, 1, 0), asks(20), node("box-1", [29], {"a": (0, 10)}), pods=own("a")),
        AFTER,
        True,
    ),
    "surge 0": (change(rolling(1, 0, 1), asks(20), node("box-1", [29], {"a": (0, 10)}), pods=own("a")), AFTER, False),
    "surge 0, one after the other": (
        change(rolling(2, 0, 1), asks(13), node("box-1", [26], {"a": (0, 10), "b": (0, 10)}), pods=own("a", "b")),
        AFTER,
        False,
    ),
    "surge 0, all must go": (
        change(rolling(2, 0, 1), asks(14), node("box-1", [28], {"a": (0, 12), "b": (0, 15)}), pods=own("a", "b")),
        AFTER,
        True,
    ),
    "surge fails, unavailable helps": (
        change(rolling(4, 1, 1), asks(7), node("box-1", [29], dict.fromkeys("abcd", (0, 7))), pods=own(*"abcd")),
        FITS,
        False,
    ),
    "never, not even alone": (
        change(rolling(1, 1, 0), asks(30), node("box-1", [29], {"a": (0, 10)}), pods=own("a")),
        NEVER,
        False,
    ),
    "replicas that fit in part": (
        change(rolling(3, 1, 0), asks(10), node("box-1", [29], dict.fromkeys("abc", (0, 5))), pods=own(*"abc")),
        NEVER,
        False,
    ),
    "whichever goes first": (  # if b does, its card is too small and the rollout stands; a's card takes both
        change(rolling(2, 0, 1), asks(10), node("box-1", [20, 5], {"a": (0, 11), "b": (1, 5)}), pods=own("a", "b")),
        AFTER,
        True,
    ),
    # StatefulSet, in turn
    "stateful after its stop": (
        change(stateful(2), asks(14), node("box-1", [29], {"a": (0, 10), "b": (0, 10)}), pods=own("a", "b")),
        AFTER,
        False,
    ),
    "stateful beside": (change(stateful(1), asks(5), node("box-1", [29], {"a": (0, 10)}), pods=own("a")), FITS, False),
    "stateful never": (change(stateful(2), asks(15), node("box-1", [29], {"a": (0, 10)}), pods=own("a")), NEVER, False),
    "a partition holds one back": (
        change(stateful(2, partition=1), asks(20), node("box-1", [29], {"a": (0, 9), "b": (0, 9)}), pods=own("a", "b")),
        AFTER,
        False,
    ),
    "OnDelete": (
        change(
            stateful(1, strategy=UpdateStrategy.ON_DELETE), asks(20), node("box-1", [29], {"a": (0, 10)}), pods=own("a")
        ),
        AFTER,
        False,
    ),
    # DaemonSet
    "daemon on each node": (
        change(daemon(), asks(10), node("a", [29], {"x": (0, 15)}), node("b", [29], {"y": (0, 20)})),
        NEVER,
        False,
    ),
    "daemon after its stop": (
        change(daemon(), asks(20), node("a", [29], {"p": (0, 10)}), pods=own("p", where="a")),
        AFTER,
        False,
    ),
    "daemon with surge": (
        change(daemon(surge=1), asks(20), node("a", [29], {"p": (0, 10)}), pods=own("p", where="a")),
        AFTER,
        True,
    ),
    "daemon where a node has no sharing": (
        change(daemon(), asks(1), node("a", [29]), node("b", [], problem="has no GPU sharing")),
        NEVER,
        False,
    ),
    "daemon kept off that node": (
        change(daemon(where=GPU_ONLY), asks(1), node("a", [29], labels={"gpu": "yes"}), node("b", [], problem="none")),
        FITS,
        False,
    ),
    # an autoscaler
    "fits now, not at the maximum": (
        change(rolling(1, 1, 0), asks(10), node("box-1", [29], {"a": (0, 5)}), pods=own("a"), at_most=3, before=5),
        NEVER,
        False,
    ),
    "fits at the maximum": (
        change(rolling(1, 1, 0), asks(9), node("box-1", [29], {"a": (0, 5)}), pods=own("a"), at_most=3, before=5),
        FITS,
        False,
    ),
    "takes less, though the maximum does not fit": (
        change(rolling(1, 1, 0), asks(10), node("box-1", [29], {"a": (0, 12)}), pods=own("a"), at_most=3, before=12),
        FITS,
        False,
    ),
    # where pods may go
    "selector": (
        change(recreate(where=GPU_ONLY), asks(5), node("a", [29]), node("b", [4], labels={"gpu": "yes"})),
        NEVER,
        False,
    ),
    "affinity": (
        change(recreate(where=ON_A_OR_B), asks(5), node("a", [29], labels={"kubernetes.io/hostname": "a"})),
        FITS,
        False,
    ),
    "affinity leaves all out": (change(recreate(where=ON_A_OR_B), asks(5), node("c", [29])), NEVER, False),
    "taint": (change(recreate(), asks(5), node("a", [29], taints=TAINTED)), NEVER, False),
    "tolerated": (change(recreate(where=TOLERANT), asks(5), node("a", [29], taints=TAINTED)), FITS, False),
    "PreferNoSchedule keeps nobody away": (
        change(recreate(), asks(5), node("a", [29], taints=[Taint("x", effect="PreferNoSchedule")])),
        FITS,
        False,
    ),
    "several nodes": (
        change(rolling(2, 1, 0), asks(20), node("a", [29], {"x": (0, 9)}), node("b", [29], {"y": (0, 9)})),
        FITS,
        False,
    ),
    # pods that go
    "another's terminating pod holds until it is gone": (
        change(recreate(), asks(10), node("box-1", [29], {"going": (0, 20)})),
        NEVER,
        False,
    ),
    "its own terminating pod is waited for": (
        change(recreate(), asks(20), node("box-1", [29], {"a": (0, 10)}), pods=own("a", terminating="a")),
        AFTER,
        False,
    ),
    "a rolling update does not wait for it": (
        change(rolling(1, 1, 0), asks(20), node("box-1", [29], {"a": (0, 10)}), pods=own("a", terminating="a")),
        AFTER,
        True,
    ),
    # quota
    "quota is spent": (
        change(recreate(), asks(20), node("box-1", [29], {"a": (0, 5)}), pods=own("a", units=5), quota=Quota(units=10)),
        NEVER,
        False,
    ),
    "quota after its stop": (
        change(recreate(), asks(15), node("box-1", [29], {"a": (0, 5)}), pods=own("a", units=5), quota=Quota(units=10)),
        AFTER,
        False,
    ),
    "quota lets no surge": (
        change(
            rolling(1, 1, 0), asks(5), node("box-1", [29], {"a": (0, 5)}), pods=own("a", units=5), quota=Quota(pods=0)
        ),
        AFTER,
        True,
    ),
    # no pods
    "no replicas": (change(recreate(0), asks(20), node("box-1", [29], {"x": (0, 20)})), FITS, False),
    "no replicas, and no card so large": (change(recreate(0), asks(30), node("box-1", [29])), NEVER, False),
    "paused": (change(recreate(paused=True), asks(5), node("box-1", [29])), FITS, False),
    # several containers
    "two containers, each on a card": (
        change(recreate(), asks(20, others=[(20, 1)]), node("box-1", [29, 29])),
        FITS,
        False,
    ),
    "two containers, one card too few": (
        change(recreate(), asks(20, others=[(20, 1)]), node("box-1", [29, 9])),
        NEVER,
        False,
    ),
    # what is asked
    "memory without core": (change(recreate(), asks(5, 0), node("box-1", [29])), NEVER, False),
    "two whole cards": (change(recreate(), asks(0, 200), node("box-1", [29, 29], {"x": (1, 1)})), NEVER, False),
    "limits taken away": (
        change(recreate(), NewPod(), node("box-1", [29], {"a": (0, 29)}), pods=own("a")),
        FITS,
        False,
    ),
    "no node at all": (change(recreate(), asks(5)), NEVER, False),
    "a policy that there is not": (
        change(recreate(), NewPod(problem=sentence("no policy 'x'")), node("a", [29])),
        NEVER,
        False,
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_verdict(row: str) -> None:
    case, answer, interrupts = ROWS[row]
    verdict = limits_verdict(case)
    assert (verdict.answer, verdict.interrupts) == (answer, interrupts), verdict
    assert bool(verdict.text) or answer is not NEVER


def test_the_numbers_and_the_words_of_a_refusal() -> None:
    verdict = limits_verdict(ROWS["40+50+1 on 94: 1 to 10"][0])
    assert (
        verdict.text
        == "needs 10 vcuda-memory on one card; card 0 has 4 free (the 1 that it holds itself counted as free)"
    )
    [card] = verdict.cards
    assert (card.node, card.card, card.free_units, card.free_core, card.held_by_app_units) == ("box-1", "0", 4, 98, 1)
    assert (verdict.request.memory_units, verdict.replicas) == (10, 1)


def test_what_no_card_has_is_not_called_free() -> None:
    verdict = limits_verdict(change(recreate(), asks(95), node("box-1", [94], FIELD), pods=own("a")))
    assert verdict.text == "needs 95 vcuda-memory on one card; card 0: 94 units in all"


def test_a_request_that_means_nothing_is_refused_without_a_word_of_what_is_free() -> None:
    verdict = limits_verdict(change(recreate(), asks(4, 0), node("box-1", [94], FIELD), pods=own("a")))
    assert verdict.text.endswith("add baidu.com/vcuda-core (1 to 100) to its limits")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("never, not even alone", "card 0 has 29 free (the 10 that it holds itself counted as free)"),
        ("quota is spent", "counts 20 and 1 (the 5 that it holds itself counted as free)"),
        (
            "replicas that fit in part",
            "2 of 3 pods have room, the next needs 10 vcuda-memory on one card; card 0 has 9 free",
        ),
        ("surge has none, the stop makes it", "it has room only when its own pods have gone: needs 20 vcuda-memory"),
        ("fits now, not at the maximum", "fits at its 1 replicas now, but not at the 3 of its autoscaler: 2 of 3 pods"),
        ("selector", "node a: its label gpu is not yes; node b: needs 5 vcuda-memory on one card; card 0 has 4 free"),
        ("taint", "node a: its taint dedicated=gpu is not tolerated"),
        ("quota is spent", "quota leaves 15 memory units and any core, a pod counts 20 and 1"),
        ("memory without core", "asks 5 vcuda-memory without vcuda-core"),
        ("no replicas, and no card so large", "it has no replicas now, and none could run: needs 30 vcuda-memory"),
        ("daemon where a node has no sharing", "1 of 2 pods have room, the next node b: has no GPU sharing"),
        ("no node at all", "there is no node"),
    ],
)
def test_the_words(row: str, words: str) -> None:
    assert words in limits_verdict(ROWS[row][0]).text


STALE = replace(node("box-1", [29]), problem="its inventory is not current: 29 units, kubelet offers 0", stale=True)


@pytest.mark.parametrize(
    ("case", "answer", "stale"),
    [
        (change(recreate(), asks(5), STALE), NEVER, True),
        (change(recreate(replicas=0), asks(5), STALE), NEVER, True),
        (change(rolling(1, 1, 0), asks(5), STALE, node("b", [4])), NEVER, True),
        (change(rolling(1, 1, 0), asks(5), STALE, node("b", [5]), at_most=2), NEVER, True),
        (change(daemon(), asks(5), STALE), NEVER, True),
        (change(daemon(), asks(5), node("a", [4]), STALE), NEVER, False),  # a's pod has no room, whatever box-1 reports
        (change(recreate(), asks(5), STALE, quota=Quota(units=4)), NEVER, False),
        (change(recreate(), NewPod(problem=sentence("no policy 'x'")), STALE), NEVER, False),
        (change(recreate(where=GPU_ONLY), asks(5), STALE), NEVER, False),  # no pod may go there
        (change(recreate(), asks(5), STALE, node("b", [5])), FITS, False),
        (change(recreate(), asks(5), node("a", [4])), NEVER, False),
    ],
)
def test_a_verdict_says_whether_it_may_pass_soon(case: LimitsChange, answer: FitResult, *, stale: bool) -> None:
    verdict = limits_verdict(case)
    assert (verdict.answer, verdict.stale) == (answer, stale), verdict


def test_what_a_person_has_to_do() -> None:
    assert "paused" in manual_step(recreate(paused=True))
    assert "OnDelete" in manual_step(stateful(1, strategy=UpdateStrategy.ON_DELETE))
    assert not manual_step(recreate())
