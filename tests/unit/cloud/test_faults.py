"""What is wrong with a value is said in our own words, whatever type pydantic has for it, in both languages."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import TYPE_CHECKING, Any

import pytest
from kits.speaking import phrasing
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core._pydantic_core import list_all_errors

import edgegpu_cloud
import edgegpu_sync
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.operations.kinds import checked_args
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.phrases import Phrase, of_sentence, phrase
from edgegpu_cloud.rollouts.strategy import RolloutStrategy
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_core.sentences import Sentence
from edgegpu_sync.errors import SyncError
from edgegpu_sync.faults import fault, first_fault
from edgegpu_sync.ids import op_name
from edgegpu_sync.messages.spec import AppLimits
from edgegpu_sync.rules.ops import OPS, BadArgumentsError, read_args

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = (f"{edgegpu_cloud.__name__}.", f"{edgegpu_sync.__name__}.")
GENERAL = "has a value that is not allowed"
LIMITS = {"rev": 0, "cluster": "0" * 36, "namespace": "a", "app": "b", "container": "c", "memory_units": 1, "core": 1}
OF_SCHEMAS = {
    "any": (),
    "bool": ("bool_type", "bool_parsing"),
    "dataclass": ("dataclass_type",),
    "dataclass-args": ("unexpected_keyword_argument", "missing", "missing_argument", "missing_keyword_only_argument"),
    "dict": ("dict_type", "invalid_key"),
    "enum": ("enum",),
    "float": ("float_type", "float_parsing", "finite_number"),
    "function-after": ("value_error",),
    "function-wrap": ("value_error",),
    "int": ("int_type", "int_parsing", "int_from_float", "int_parsing_size"),
    "is-instance": ("is_instance_of",),
    "list": ("list_type",),
    "literal": ("literal_error",),
    "model": ("model_type", "model_attributes_type", "json_invalid"),
    "model-fields": ("missing", "extra_forbidden"),
    "none": ("none_required",),
    "str": ("string_type", "string_unicode"),
    "tagged-union": ("union_tag_invalid", "union_tag_not_found"),
    "tuple": ("tuple_type",),
}
"""The types of errors of each kind of schema that a model of ours has."""
AROUND = {"chain", "dataclass-field", "default", "definition-ref", "definitions", "json-or-python", "model-field"} | {
    "no-info",
    "nullable",
    "union",  # what each of its choices says
}
"""Kinds of schemas that refuse nothing themselves."""
OF_BOUNDS = {
    "ge": "greater_than_equal",
    "le": "less_than_equal",
    "gt": "greater_than",
    "lt": "less_than",
    "multiple_of": "multiple_of",
    "pattern": "string_pattern_mismatch",
    "min_length": "too_short",
    "max_length": "too_long",
}
CONTEXT = {"ge": 1, "le": 100.0, "min_length": 1, "max_length": 9, "pattern": "^a$", "expected": "'a' or 'b'"} | {
    "expected_tags": "'a', 'b'",
    "discriminator": "'kind'",
}
WORDS = ("Input", "should", "permitted", "required", "unable")
"""Of pydantic's own sentences."""


def models() -> Iterator[Any]:
    for package in (edgegpu_cloud, edgegpu_sync):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    waiting: list[type[BaseModel]] = [BaseModel]
    while waiting:
        for one in waiting.pop().__subclasses__():
            waiting.append(one)
            if one.__module__.startswith(OURS):
                yield one.__pydantic_core_schema__
    yield from (TypeAdapter(one).core_schema for one in (ContainerLimits, RolloutStrategy))


def raised(schema: Any) -> Iterator[str]:  # noqa: ANN401  (pydantic's own)
    """Yield the types of errors of a schema and of all within it."""
    if isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str):
            assert kind in AROUND | OF_SCHEMAS.keys(), f"which errors does a schema {kind} raise?"
            yield from OF_SCHEMAS.get(kind, ())
            bounds = (OF_BOUNDS[name] for name in schema.keys() & OF_BOUNDS.keys())
            yield from (f"string_{one}" if kind == "str" and one.startswith("too") else one for one in bounds)
        for name, within in schema.items():
            if name not in {"metadata", "serialization"}:
                yield from raised(within)
    elif isinstance(schema, list | tuple):
        for within in schema:
            yield from raised(within)


def test_each_type_that_our_models_raise_has_words_of_its_own() -> None:
    types = {one for schema in models() for one in raised(schema)}
    assert len(types) > 25
    general = {one for one in types if fault({"type": one, "ctx": CONTEXT}) == GENERAL}
    assert general <= {"value_error", "is_instance_of"}


@pytest.mark.parametrize("kind", [one["type"] for one in list_all_errors()])
def test_no_type_has_pydantics_words(kind: str) -> None:
    text = fault({"type": kind, "ctx": CONTEXT, "msg": "Input should be valid"})
    assert not [word for word in WORDS if word in text]
    assert phrasing("en").said(of_sentence(text)) == phrasing("en").said(str(text))
    chinese = phrasing("zh").said(of_sentence(text))
    assert chinese != phrasing("en").said(text), "it has a translation"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"core": 9_999}, "core: must be 6400 or less"),
        ({"core": -1}, "core: must be 0 or more"),
        ({"core": "many"}, "core: is not a whole number"),
        ({"core": 1.5}, "core: is not a whole number"),
        ({"core": None}, "core: is not a whole number"),
        ({"force": "yes"}, "force: is neither true nor false"),
        ({"app": 7}, "app: is not a text"),
        ({"on_drift": "x"}, "on_drift: must be one of 'report', 'enforce'"),
        ({"app": "A B"}, "app: is not a name: small letters, digits, - and . alone, 253 at most"),
    ],
)
def test_faults_of_limits(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AppLimits.model_validate_json(json.dumps(LIMITS | changes))
    said = first_fault(caught.value)
    assert said == text
    assert isinstance(said, Sentence)


def test_faults_of_no_field() -> None:
    for text, words in (("{", "the body: is not valid JSON"), ("[]", "the body: is not an object")):
        with pytest.raises(ValidationError) as caught:
            AppLimits.model_validate_json(text)
        assert first_fault(caught.value, whole="the body") == words
    with pytest.raises(ValidationError) as caught:
        AppLimits.model_validate_json("{}")
    assert first_fault(caught.value) == "rev: is missing"


def test_a_check_of_ours_says_it_itself() -> None:
    with pytest.raises(SyncError) as caught:
        op_name("A B")
    own = {"type": "value_error", "ctx": {"error": caught.value}}
    assert fault(own) == "no op: 'A B' is not words of a-z and 0-9 with dots between"
    assert fault({"type": "value_error", "ctx": {"error": ValueError("of a library")}}) == GENERAL
    assert fault({"type": "value_error"}) == GENERAL


def test_an_error_carries_its_sentence_into_a_phrase() -> None:
    with pytest.raises(BadArgumentsError) as caught:
        read_args(OPS[op_name("logs.collect")], {"url": "https://a/b", "max_mib": 9_999})
    whole = phrase("cannot ask for %(op)s: %(error)s", op="logs.collect", error=caught.value)
    assert whole == "cannot ask for logs.collect: max_mib: must be 1024 or less"
    assert isinstance(whole.fields["error"], Phrase)
    with pytest.raises(CloudError) as refused:
        checked_args(OperationKind.LIMITS, {"namespace": "a"})
    assert refused.value.text == "cannot start limits: app: is missing"
    assert phrasing("zh").said(refused.value.text).endswith("app\N{FULLWIDTH COLON}缺失")
