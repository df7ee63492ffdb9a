"""The durable queue between the agent's process and everything else: one file per process."""
