"""Checks of what agents answer: evidence, announced tools, instructions of the prompt."""
