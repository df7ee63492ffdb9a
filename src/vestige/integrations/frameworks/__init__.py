"""Agents, steps, tools and handoffs of frameworks, as spans around the calls of the wire.

Each module hooks one framework when the program imports it, by the framework's own callbacks where
it has them. `vestige run` installs them, and `vestige.auto()`; the setting `integrations` selects.

    install(("langchain", "openai_agents"))     # only these
    install(("!crewai",))                       # all but this one
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

from vestige._runtime.import_hooks import when_imported
from vestige.integrations.failure_counts import record_fault
from vestige.integrations.frameworks import tool_replay

_OTLP_EXPORTERS = "frameworks.otlp_exporters.install"
MODULES: dict[str, tuple[tuple[str, str], ...]] = {
    "langchain": (("langchain_core.tracers.context", "install"),),
    "openai_agents": (("agents", "install"),),
    "crewai": (("crewai.events.event_bus", "install"),),
    "smolagents": (("smolagents.agents", "install"),),
    "llama_index": (("llama_index_instrumentation", "install"),),
    "dspy": (("dspy.dsp.utils.settings", "install"),),
    "pydantic_ai": (("pydantic_ai", "install"),),
    "autogen": (
        ("autogen_core.tools._base", "install"),
        ("autogen_agentchat.teams._group_chat._base_group_chat", "install_teams"),
        ("autogen_agentchat.agents._base_chat_agent", "install_agents"),
    ),
    "ag2": (("ag2.agent", "install"),),
    "agent_framework": (
        ("agent_framework._tools", "install"),
        ("agent_framework.observability", "install_agents"),
        ("agent_framework_orchestrations._handoff", "install_handoffs"),
    ),
    "google_adk": (
        ("google.adk.telemetry.tracing", "install"),
        ("google.adk.plugins.plugin_manager", "install_errors"),
        ("google.adk.tools.function_tool", "install_tools"),
    ),
    "claude_agent_sdk": (("claude_agent_sdk", "install"),),
    "mcp": (
        ("mcp.client.session", "install"),
        ("mcp.server.mcpserver.tools.tool_manager", "install_server"),
        ("mcp.server.fastmcp.tools.tool_manager", "install_server"),
    ),
    "opentelemetry": (
        ("opentelemetry.trace", "install"),
        ("opentelemetry.sdk.trace", "install_sdk"),
        ("opentelemetry.exporter.otlp.proto.http.trace_exporter", _OTLP_EXPORTERS),
        ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", _OTLP_EXPORTERS),
    ),
    "starlette": (("starlette.applications", "services.incoming_requests.install_starlette"),),
    "flask": (("flask.app", "services.incoming_requests.install_flask"),),
    "django": (
        ("django.core.handlers.wsgi", "services.incoming_requests.install_django"),
        ("django.core.handlers.asgi", "services.incoming_requests.install_django_async"),
    ),
    "celery": (("celery.signals", "services.task_queues.install_celery"),),
    "rq": (("rq.job", "services.task_queues.install_rq"),),
    "dramatiq": (("dramatiq.actor", "services.task_queues.install_dramatiq"),),
    "jupyter": (("IPython.core.interactiveshell", "services.notebooks.install"),),
}
"""Each integration's modules, and the function that hooks each after its import."""

_installed: set[str] = set()


def install(selected: Sequence[str] = ()) -> None:
    """Install the selected integrations, each when the program imports its framework."""
    for name, modules in MODULES.items():
        if name not in _installed and is_selected(name, selected):
            _installed.add(name)
            for module, function in modules:
                when_imported(module, _make_hook(name, function))
    tool_replay.install(lambda name: is_selected(name, selected))


def is_selected(name: str, selected: Sequence[str]) -> bool:
    """Return whether a name is included: by no `!name`, and by a name if there are any."""
    if f"!{name}" in selected or "!*" in selected:
        return False
    included = [each for each in selected if not each.startswith("!")]
    return not included or name in included


def _make_hook(name: str, function: str) -> Callable[[ModuleType], None]:
    def hook(module: ModuleType) -> None:
        try:
            from importlib import import_module

            where, _, called = function.rpartition(".")
            package = __name__.rpartition(".")[0] if where else __name__
            getattr(import_module(f"{package}.{where or name}"), called)(module)
        except Exception as error:  # noqa: BLE001  # an unsupported version of the framework
            record_fault(f"integration {name}", error)

    return hook
