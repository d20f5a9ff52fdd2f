"""What a gateway without an engine loads."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("zmq")

WITHOUT_TORCH = """
import sys
# As where they are not installed:
sys.modules |= dict.fromkeys(("torch", "transformers", "numpy", "genai_prices", "pyarrow"))
from prefold.cli.main import main
main()
"""


def test_a_gateway_loads_no_torch():
    code = (
        "import sys, prefold.cli.gateway, prefold.gateway.run, prefold.server.run; "
        "sys.exit(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)) or 0)"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (0, "") == (finished.returncode, finished.stderr)


def test_the_command_runs_where_there_is_no_torch(tmp_path: Path):
    config = tmp_path / "gateway.toml"
    config.write_text('[[replica]]\nname = "a"\nurl = "http://127.0.0.1:9"\nmodels = ["m"]\n')
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", "--config", str(config), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith(("Serving", "error")))
        assert said.startswith("Serving a at http://127.0.0.1:")
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()
