"""Receive records from other machines and from OpenTelemetry exporters."""
