"""Commands that run a program: run, replay."""
