"""Checks of model calls: prompts, answers, history, prompt cache."""
