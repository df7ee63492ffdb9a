"""Benchmarks: what recording costs, what survives a kill, what storing and reading cost.

    python -m bench                 # everything, and bench/RESULTS.md
    python -m bench emit ingest     # only these sections; nothing is written

Machines differ and so do moments, so no figure is given alone: our code is measured beside
a floor (the least work that could do the job) and beside the tools that people use now,
in turns, in one run. `met` is always computed from what was just measured.

Elsewhere: figures.py is a row and its goal; contenders.py the recorders that compete.
"""
