"""The validator of tool arguments never contradicts the reference implementation."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.query.checks.tools.argument_schema import find_problem

_names = st.sampled_from(["a", "b", "c"])
_types = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
_scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | _names
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=6,
)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": _types | st.lists(_types, min_size=1, max_size=2, unique=True),
            "required": st.lists(_names, unique=True, max_size=2),
            "properties": st.dictionaries(_names, inner, max_size=2),
            "additionalProperties": st.booleans(),
            "items": inner,
            "enum": st.lists(_values, min_size=1, max_size=3),
            "const": _values,
            "minimum": st.integers(-2, 2),
            "maximum": st.integers(-2, 2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "$ref": st.just("#/$defs/N"),
        },
    )


_any_schema = st.recursive(_schemas(st.just({})), _schemas, max_leaves=6)


@pytest.mark.slow
@given(_any_schema, _values)
def test_no_problem_is_found_in_a_valid_value(schema: dict[str, Any], value: Any) -> None:
    """A missed problem is accepted. A false one is not."""
    complete = {"$defs": {"N": {"type": ["number", "object", "null"]}}, **schema}
    problem = find_problem(complete, value)

    assert problem is None or not jsonschema.Draft202012Validator(complete).is_valid(value)
