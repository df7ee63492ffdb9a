"""A recorded request as a script that sends it again."""
