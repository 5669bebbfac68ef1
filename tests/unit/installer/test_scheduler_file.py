import random
from pathlib import Path

import pytest
import yaml
from kits.scheduler import Materials, Verdict, base64_of, materials
from kits.schedulercases import corpus
from kits.schedulermutants import damaged

from edgegpu_installer.errors import InstallError
from edgegpu_installer.scheduler.file import merge, render, validate

SOURCE = "/etc/rancher/k3s/scheduler.yaml"


def read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    return materials(tmp_path_factory.mktemp("files"))


def existing(given: Materials, **fields: object) -> str:
    head = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": given.kubeconfig},
    }
    return yaml.safe_dump(head | fields)


def merged(given: Materials, text: str) -> str:
    return merge(text, given.extender, source=SOURCE, read_file=read)


def test_of_every_case_our_verdict_is_the_one_that_stands_there(given: Materials) -> None:
    wrong = {
        case.name: [str(problem) for problem in problems]
        for case in corpus(given)
        if bool(problems := validate(case.text, read_file=read)) == (case.verdict is Verdict.GOOD)
    }
    assert wrong == {}


def test_the_corpus_is_large_enough(given: Materials) -> None:
    cases = list(corpus(given))
    assert len(cases) >= 40
    assert len({case.name for case in cases}) == len(cases)


def test_what_is_rendered_says_what_the_design_asks_for(given: Materials) -> None:
    (extender,) = yaml.safe_load(render(given.extender, kubeconfig=given.kubeconfig))["extenders"]
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True
    assert extender["httpTimeout"] == "30s"
    assert [one["name"] for one in extender["managedResources"]] == ["baidu.com/vcuda-memory", "baidu.com/vcuda-core"]
    assert extender["tlsConfig"]["keyData"] == base64_of(given.extender.key)
    assert "leaderElection" not in yaml.safe_load(render(given.extender, kubeconfig=given.kubeconfig))


@pytest.mark.parametrize(
    ("minor", "api"), [(21, "v1beta1"), (22, "v1beta2"), (23, "v1beta3"), (24, "v1beta3"), (25, "v1"), (None, "v1")]
)
def test_a_file_is_of_its_schedulers_age(given: Materials, minor: int | None, api: str) -> None:
    text = render(given.extender, kubeconfig=given.kubeconfig, minor=minor)
    assert yaml.safe_load(text)["apiVersion"] == f"kubescheduler.config.k8s.io/{api}"
    assert validate(text, read_file=read, minor=minor) == []
    assert merge(text, given.extender, source=SOURCE, read_file=read, minor=minor).endswith(text.partition("api")[2])


@pytest.mark.parametrize(
    ("minor", "api"), [(21, "v1"), (23, "v1beta1"), (24, "v1"), (28, "v1beta2"), (29, "v1beta3"), (33, "v1beta1")]
)
def test_a_file_of_another_age_is_refused(given: Materials, minor: int, api: str) -> None:
    text = existing(given, apiVersion=f"kubescheduler.config.k8s.io/{api}")
    (problem,) = validate(text, read_file=read, minor=minor)
    assert f"it is kubescheduler.config.k8s.io/{api} KubeSchedulerConfiguration and must be" in str(problem)


def test_plugins_of_an_old_scheduler_are_not_merged_with(given: Materials) -> None:
    old = {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}
    named = existing(given, **old, profiles=[{"schedulerName": "default-scheduler"}])
    assert validate(named, read_file=read, minor=24) == []
    plugins = {"score": {"disabled": [{"name": "ImageLocality"}]}}
    text = existing(given, **old, profiles=[{"schedulerName": "default-scheduler", "plugins": plugins}])
    assert validate(text, read_file=read, minor=24)


def test_the_same_values_give_the_same_bytes(given: Materials) -> None:
    assert render(given.extender, kubeconfig="/k") == render(given.extender, kubeconfig="/k")


def test_profiles_and_other_extenders_are_kept(given: Materials) -> None:
    profiles = [{"schedulerName": "default-scheduler"}, {"schedulerName": "packed"}]
    other = {"urlPrefix": "http://127.0.0.1:9", "filterVerb": "filter"}
    text = merged(given, existing(given, profiles=profiles, extenders=[other], parallelism=4))
    document = yaml.safe_load(text)
    assert document["profiles"] == profiles
    assert document["extenders"][0] == other
    assert document["extenders"][1]["bindVerb"] == "bind"
    assert document["parallelism"] == 4
    assert validate(text, read_file=read) == []
    assert SOURCE in text


def test_merging_twice_is_merging_once(given: Materials) -> None:
    once = merged(given, existing(given))
    assert merged(given, once) == once


def test_what_stands_there_without_a_value_is_as_if_left_out(given: Materials) -> None:
    assert validate(merged(given, existing(given, extenders=None, profiles=None)), read_file=read) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"extenders": [{"urlPrefix": "http://a", "bindVerb": "b"}]}, "binds pods itself"),
        ({"extenders": [{"urlPrefix": "http://a", "managedResources": [{"name": "baidu.com/vcuda-core"}]}]}, "already"),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "must be kubescheduler.config.k8s.io/v1"),
        ({"leaderElection": {"leaderElect": False}}, "leaderElection: must be left out"),
        ({"nonsense": 1}, "nonsense: is not a known field"),
        ({"extenders": "http://a"}, "extenders"),
    ],
)
def test_what_cannot_be_merged_is_refused_with_the_remedy(
    given: Materials, fields: dict[str, object], words: str
) -> None:
    with pytest.raises(InstallError, match=words) as raised:
        merged(given, existing(given, **fields))
    assert SOURCE in raised.value.remedy


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [", "words\n"])
def test_what_is_no_configuration_is_refused(given: Materials, text: str) -> None:
    with pytest.raises(InstallError, match="cannot merge"):
        merged(given, text)


def test_a_deep_file_and_a_large_one_are_refused_at_once() -> None:
    for text in ("[" * 5000, "a: &x [1]\nb: *x\n", "x" * (1 << 20)):
        assert validate(text, read_file=read)


def test_a_place_is_named_as_one_would_look_for_it(given: Materials) -> None:
    document = yaml.safe_load(render(given.extender, kubeconfig=given.kubeconfig))
    document["extenders"][0]["managedResources"][1]["name"] = "vcuda-core"
    (problem,) = validate(yaml.safe_dump(document), read_file=read)
    assert str(problem).startswith("extenders[0].managedResources[1].name: 'vcuda-core' is not a resource name")


def test_no_damage_to_a_key_goes_unseen_and_none_to_a_certificate_is_an_exception(given: Materials) -> None:
    text = render(given.extender, kubeconfig=given.kubeconfig)
    chance = random.Random(3)
    for _ in range(60):
        assert validate(damaged(chance, text, "keyData"), read_file=read)
        for field in ("caData", "certData"):
            validate(damaged(chance, text, field), read_file=read)
