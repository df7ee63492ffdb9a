"""Start recording in a process under `vestige run`; see vestige/boot/__init__.py.

The interpreter imports this module by its name. If vestige is not installed for this interpreter,
the program runs unrecorded.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _run_hidden_module() -> None:
    """Run the sitecustomize that this file hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    if os.environ.get("VESTIGE_START") == "1":
        from vestige.boot import start

        start()
except ImportError:
    pass
finally:
    _run_hidden_module()
