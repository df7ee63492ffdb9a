"""Start recording in a process under `vestige run`; see vestige/boot/__init__.py.

The interpreter imports this module by its name. The recorder need not be installed for this
interpreter: it is found beside this file (vestige/boot/import_finder.py). This module supports
any Python 3, and leaves a version that the recorder does not support unrecorded.
"""

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any


def _run_hidden_module() -> None:
    """Run the sitecustomize that this file hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _load_finder() -> Any:
    boot = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    file = os.path.join(boot, "import_finder.py")
    spec = importlib.util.spec_from_file_location("_vestige_import_finder", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


try:
    if os.environ.get("VESTIGE_START") == "1" and sys.version_info >= (3, 10):
        importlib.import_module(_load_finder().find_recorder() + ".boot").start()
except Exception:  # noqa: BLE001  # the program runs unrecorded
    pass
finally:
    _run_hidden_module()
