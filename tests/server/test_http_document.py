"""/v1/openapi.json is true: what it says is so, whatever is sent."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.http_server import record_collected, served
from vestige.home import Home
from vestige.server.auth import GuardedRoute

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 8
"""Requests per operation: enough to try each kind of value, few enough for CI."""


@schemathesis.serializer("application/x-ndjson")
def _as_it_is(context: object, value: object) -> bytes:
    """Journal lines, as bytes or as any text."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


@pytest.mark.slow
def test_whatever_the_document_allows_is_answered_as_it_says(home: Home) -> None:
    """No 5xx, and each answer has a status, a type and a shape that the document has."""
    record_collected(home)
    record_collected(home)
    with served(home) as site:
        schema = schemathesis.openapi.from_dict(site.data("/v1/openapi.json"))
        operations = [
            operation.ok()
            for operation in schema.get_all_operations()
            if operation.ok().path != "/api/v1/live"  # a stream does not end
        ]
        tried = 0
        for operation in operations:

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def check(case: schemathesis.Case) -> None:
                nonlocal tried
                tried += 1
                response = case.call(
                    base_url=f"http://127.0.0.1:{site.port}",
                    headers={"Authorization": f"Bearer {site.server.token}"},
                )
                # 501: a capability that is off, as OpenWOP wants it.
                checks = CHECKS[1:] if response.status_code == 501 else CHECKS
                case.validate_response(response, checks=checks)

            check()

    assert tried >= len(operations)


def test_every_route_with_an_operation_is_in_it(home: Home) -> None:
    """And says who may ask."""
    from vestige.server.app import make_app
    from vestige.server.server_state import Server

    app = make_app(Server(home))
    with served(home) as site:
        paths = site.data("/v1/openapi.json")["paths"]

    for route in app.routes:
        assert isinstance(route, GuardedRoute)
        if route.operation is None:
            continue
        described = paths[route.path_format]
        for method in (route.methods or set()) - {"HEAD"}:
            if route.scope is not None:
                assert described[method.lower()]["x-vestige-scope"] == route.scope
            assert ("security" in described[method.lower()]) == route.public
            assert {"401", "403", "404"} <= set(described[method.lower()]["responses"])
            assert ("408" in described[method.lower()]["responses"]) == bool(route.body_max)
    ingest = paths["/api/v1/ingest"]["post"]["responses"]
    assert {"200", "400", "408", "409", "413", "415", "429", "503"} <= set(ingest)
