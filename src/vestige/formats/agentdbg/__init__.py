"""The AgentDbg v0.1 trace format: run directories with run.json and events.jsonl."""
