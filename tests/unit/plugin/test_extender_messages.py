import json

import pytest
from integration.extender_world import pod
from pydantic import ValidationError

from edgegpu_plugin.extender.messages import BindingArgs, BindingResult, ExtenderArgs, FilterResult, HostPriority


def test_arguments_by_name_and_by_node() -> None:
    by_name = ExtenderArgs.model_validate({"Pod": pod("p"), "Nodes": None, "NodeNames": ["a", "b"], "New": 1})
    assert by_name.names() == ["a", "b"]
    by_node = ExtenderArgs.model_validate(
        {"Pod": pod("p"), "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "a"}}]}}
    )
    assert by_node.names() == ["a"]
    assert ExtenderArgs.model_validate({"Pod": {}, "Nodes": {"items": None}}).names() == []


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"Pod": 1},
        {"Pod": {}, "NodeNames": "a"},
        {"Pod": {}, "NodeNames": [1]},
        {"Pod": {}, "Nodes": {"items": [{}]}},
    ],
)
def test_arguments_that_are_none(value: object) -> None:
    with pytest.raises(ValidationError):
        ExtenderArgs.model_validate(value)


def test_answers_carry_go_names_and_a_list_that_is_never_null() -> None:
    assert json.loads(FilterResult().model_dump_json(by_alias=True)) == {
        "Nodes": None,
        "NodeNames": [],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    assert HostPriority(host="a", score=3).model_dump(by_alias=True) == {"Host": "a", "Score": 3}
    assert BindingResult(error="no").model_dump(by_alias=True) == {"Error": "no"}


def test_binding_arguments() -> None:
    args = BindingArgs.model_validate({"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "box"})
    assert (args.pod_name, args.pod_namespace, args.pod_uid, args.node) == ("p", "n", "u", "box")
