"""What a gateway without an engine loads."""

import subprocess
import sys

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("zmq")


def test_a_gateway_loads_no_torch():
    code = (
        "import sys, prefold.cli.gateway, prefold.gateway.run, prefold.server.run; "
        "sys.exit(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)) or 0)"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (0, "") == (finished.returncode, finished.stderr)
