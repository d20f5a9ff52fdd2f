"""From what a user calls a model to a checked folder of files: `resolve`.

Whatever the model comes as, the result is a folder in the Hugging Face layout, ready to be loaded in well under a
second. GGUF files are converted into one, once, under the caller's cache folder:

    <cache>/models/<name>-<first 12 hex digits of the GGUF's SHA-256>-v<converter version>/

A conversion is built in a hidden sibling folder under a lock and renamed into place when complete, so an interrupted
one leaves nothing behind that could be taken for a model, and a second process waits for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prefold.engine.default_model import DEFAULT_MODEL, fetch_gguf
from prefold.engine.gguf_file import CONVERTER_VERSION, convert, read_config
from prefold.engine.model_config import ModelConfig, read_json_object
from prefold.engine.progress import Progress
from prefold.engine.safetensors_file import read_header, weight_files
from prefold.errors import MissingExtra, ModelError, PrefoldError, UnsupportedModel

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)
_HUB_FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    # Not every *.safetensors: some repositories hold the same weights twice, under another name.
    "model*.safetensors",
    "model*.safetensors.index.json",
]

_FINGERPRINT_VERSION = b"prefold model fingerprint 1\n"
_SAMPLES = 64
_SAMPLE_BYTES = 4096


@dataclass(frozen=True)
class Checkpoint:
    """A model's files, found and checked.

    Args:
        name: what the API calls the model.
        folder: a Hugging Face folder: config.json, safetensors (one or sharded), tokenizer.json, chat template.
        fingerprint: hex SHA-256 that tells this model's K/V from any other's; see `fingerprint`.
        config: the model's shape.
    """

    name: str
    folder: Path
    fingerprint: str
    config: ModelConfig


def resolve(model: str | None, *, cache_dir: Path, progress: Progress) -> Checkpoint:
    """Find a model, fetching and converting it first where needed.

    Args:
        model: a Hugging Face folder, a `.gguf` file, a hub id `organisation/name[@revision]`, or None for the default
            model, whose name is also accepted.
        cache_dir: where prefold keeps converted models.
        progress: told how far a download or conversion is.

    Raises:
        ModelError: if the model cannot be found, fetched, read or converted; the message names the file concerned.
        UnsupportedModel: if an exact prefix cache cannot serve it, or its weights are quantised or pickled.
        MissingExtra: if what reads this kind of model is not installed.
    """
    if model is None or model == DEFAULT_MODEL.name:
        return _checkpoint(DEFAULT_MODEL.name, _default_folder(cache_dir, progress))
    path = Path(model).expanduser()
    if model and path.is_dir():
        return _checkpoint(path.resolve().name, path)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise _not_a_model_file(path)
        return _checkpoint(path.stem, _converted_folder(path, cache_dir, progress))
    if _is_hub_id(model):
        return _checkpoint(model, _hub_folder(model, progress))
    raise _no_such_model(model)


def resolve_config(model: str, *, cache_dir: Path, progress: Progress) -> ModelConfig:
    """A model's shape, without its weights and whether or not prefold can serve it.

    Args:
        model: what `resolve` takes, or the path of a `config.json`.
        cache_dir: where prefold keeps converted models.
        progress: told how far a download is.

    Raises:
        ModelError: if the model cannot be found, fetched or read.
        MissingExtra: if what reads this kind of model is not installed.
    """
    path = Path(model).expanduser()
    if model == DEFAULT_MODEL.name:
        return ModelConfig.from_folder(_default_folder(cache_dir, progress))
    if model and path.is_dir():
        return ModelConfig.from_folder(path)
    if path.suffix.lower() == ".json" and path.is_file():
        return ModelConfig.from_dict(read_json_object(path), source=str(path))
    if path.suffix.lower() == ".gguf" and path.is_file():
        return read_config(path)
    if path.is_file():
        raise _not_a_model_file(path)
    if _is_hub_id(model):
        return ModelConfig.from_folder(_hub_snapshot(model, ["config.json"]))
    raise _no_such_model(model)


def fingerprint(folder: Path) -> str:
    """Hex SHA-256 that identifies the model in `folder` for the keys of its K/V cache.

    It covers `config.json` and, for each weight file in name order, its name, its size, its safetensors header (every
    tensor's name, dtype, shape and place) and 64 evenly spaced samples of 4 KiB of its content. So it sees any other
    architecture, any retrained, requantised or truncated weights, in milliseconds; it would not see a few bytes
    changed by hand between two samples. Tokenizer and chat template are left out: keys are made of token ids.

    Raises:
        ModelError: if a file is missing, truncated or not what its name says, naming it.
    """
    digest = hashlib.sha256(_FINGERPRINT_VERSION)
    config_path = folder / "config.json"
    try:
        _add_framed(digest, config_path.read_bytes())
        for path in weight_files(folder):
            header = read_header(path)
            size = path.stat().st_size
            _add_framed(digest, path.name.encode())
            _add_framed(digest, size.to_bytes(8, "little"))
            _add_framed(digest, header)
            with path.open("rb") as file:
                for index in range(_SAMPLES):
                    file.seek(index * max(size - _SAMPLE_BYTES, 0) // (_SAMPLES - 1))
                    _add_framed(digest, file.read(_SAMPLE_BYTES))
    except OSError as error:
        raise ModelError(
            f"{error.filename or folder} cannot be read: {error.strerror}.", hint="Check that it exists and its rights."
        ) from error
    return digest.hexdigest()


def _add_framed(digest: hashlib._Hash, data: bytes) -> None:
    """Hash `data` with its length before it, so that no two sequences of parts run into the same bytes."""
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def _checkpoint(name: str, folder: Path) -> Checkpoint:
    config = ModelConfig.from_folder(folder)
    _require_servable(config)
    return Checkpoint(name, folder, fingerprint(folder), config)


def _require_servable(config: ModelConfig) -> None:
    config.require_full_attention()
    quantization = config.raw.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
        raise UnsupportedModel(
            f"The model's weights are quantised ({method}), which prefold does not load.",
            hint="Use the unquantised model, or a GGUF file of it, which prefold converts.",
        )


def _is_hub_id(model: str) -> bool:
    return bool(_HUB_ID.fullmatch(model)) and not model.startswith(".")


def _no_such_model(model: str) -> ModelError:
    return ModelError(
        f"There is no model {model!r}.",
        hint=f"Give a Hugging Face folder, a .gguf file, a hub id such as org/name, or {DEFAULT_MODEL.name}.",
    )


def _not_a_model_file(path: Path) -> ModelError:
    if path.suffix.lower() in {".bin", ".pt", ".pth", ".ckpt"}:
        return UnsupportedModel(
            f"{path} is a pickle, which can run any code when it is loaded.",
            hint="Use a folder with *.safetensors, or a .gguf file.",
        )
    return ModelError(
        f"{path} is not a model that prefold can read.",
        hint="Give the folder that holds config.json and *.safetensors, or a .gguf file.",
    )


def _default_folder(cache_dir: Path, progress: Progress) -> Path:
    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-download-") as scratch:
            gguf = fetch_gguf(DEFAULT_MODEL, cache_dir, Path(scratch), progress)
            convert(gguf, folder, source=DEFAULT_MODEL.source, sha256=DEFAULT_MODEL.gguf_sha256, progress=progress)

    target = _target(cache_dir, DEFAULT_MODEL.name, DEFAULT_MODEL.gguf_sha256)
    return _build_once(target, build, progress)


def _converted_folder(gguf: Path, cache_dir: Path, progress: Progress) -> Path:
    sha256 = _file_sha256(gguf, progress)
    target = _target(cache_dir, gguf.stem, sha256)
    if not target.is_dir():
        # Refuse before the work of converting, not after.
        read_config(gguf).require_full_attention()

    def build(folder: Path) -> None:
        convert(gguf, folder, source=str(gguf.resolve()), sha256=sha256, progress=progress)

    return _build_once(target, build, progress)


def _target(cache_dir: Path, name: str, sha256: str) -> Path:
    return cache_dir / "models" / f"{name}-{sha256[:12]}-v{CONVERTER_VERSION}"


def _file_sha256(path: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    done = 0
    try:
        total = path.stat().st_size
        with path.open("rb") as file:
            while chunk := file.read(1 << 24):
                digest.update(chunk)
                done += len(chunk)
                progress(f"Checking {path.name}", done, total)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", hint="Check its access rights.") from error
    return digest.hexdigest()


def _build_once(target: Path, build: Callable[[Path], None], progress: Progress) -> Path:
    """The folder `target`, made by `build` in a sibling folder and renamed into place unless it exists.

    Raises:
        ModelError: if the cache folder cannot be written.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.with_name(f".{target.name}.lock"), target.name, progress):
            if target.is_dir():  # another process made it while this one waited
                return target
            prefix = f".{target.name}-building-"
            for leftover in target.parent.glob(f"{prefix}*"):  # of a process that was killed: the lock is ours now
                shutil.rmtree(leftover, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix, ignore_cleanup_errors=True) as scratch:
                folder = Path(scratch) / target.name
                folder.mkdir()
                build(folder)
                _sync(folder)
                folder.rename(target)
                _sync(target.parent)
    except PrefoldError:
        raise
    except OSError as error:
        raise ModelError(
            f"The converted model cannot be written to {target}: {error.strerror or error}.",
            hint="Free some disk space, or choose another cache folder with --cache-dir.",
        ) from error
    return target


@contextmanager
def _lock(path: Path, name: str, progress: Progress) -> Iterator[None]:
    """Hold an exclusive lock that ends with the process, however it ends."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"Waiting for another process to prepare {name}", 0, 0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync(path: Path) -> None:
    """Make a folder's files and its own entries durable, so that a rename never shows incomplete content."""
    for entry in [*(item for item in path.iterdir() if item.is_file()), path]:
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _hub_folder(hub_id: str, progress: Progress) -> Path:
    progress(f"Fetching {hub_id} from the hub", 0, 0)
    # The small file first: a model that cannot be served should not cost gigabytes to find out.
    _require_servable(ModelConfig.from_folder(_hub_snapshot(hub_id, ["config.json"])))
    return _hub_snapshot(hub_id, _HUB_FILES)


def _hub_snapshot(hub_id: str, patterns: list[str]) -> Path:
    """The folder with the hub's files that match, from the hub's own cache where they are there.

    Raises:
        ModelError: if the hub has no such model, refuses it, or cannot be reached.
    """
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - heavy, and seldom needed
    except ImportError:
        raise MissingExtra(
            "Models from the Hugging Face hub need the package huggingface_hub.", hint='pip install "prefold[engine]"'
        ) from None
    repository, _, revision = hub_id.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=patterns))
    except (OSError, ValueError) as error:  # the hub's own errors are kinds of these two
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"The model {hub_id} cannot be fetched from the Hugging Face hub: {reason}",
            hint="Check the name and the network, or give the path of a local folder or .gguf file instead.",
        ) from error
