"""Debug bundles: one `.wink` file that holds everything about a run, and opens anywhere.

manifest.py   what a bundle is about       content.py    what it holds, wherever it is
archive.py    write one                    unpack.py     read one that anybody may have made
read.py       a bundle as a run            write.py      a run as a bundle
records.py    the run's own records in it  others.py     what else is read as a bundle
"""

from vestige.formats.wink.check import check
from vestige.formats.wink.places import find, sniff
from vestige.formats.wink.read import read
from vestige.formats.wink.write import write

__all__ = ["check", "find", "read", "sniff", "write"]
