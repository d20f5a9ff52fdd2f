"""Text to token ids and back, for one model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import tokenizers

from prefold.engine.model_config import ModelConfig, read_json_object
from prefold.errors import InvalidRequest, InvalidTokens, ModelError
from prefold.prompts.templates.chat_template import ChatTemplate, Clock

_REPLACEMENT = "\ufffd"
# A UTF-8 character is at most four bytes, so at most three bytes at the end of a text can be the start of one.
_LONGEST_UNFINISHED = 3


def local_time() -> datetime:
    """The wall clock as chat templates expect it: local, without a zone."""
    return datetime.now().astimezone().replace(tzinfo=None)


class Tokenizer:
    """A model's tokenizer and chat template. Immutable, so threads may share it.

    Args:
        folder: a Hugging Face folder.
        clock: the time now, for chat templates that write the date.

    Raises:
        ModelError: if a file is missing or damaged, naming it.
    """

    def __init__(self, folder: Path, *, clock: Clock = local_time) -> None:
        path = folder / "tokenizer.json"
        read_json_object(path)  # its faults are named better than the library's
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            raise ModelError(f"{path} is not a tokenizer: {error}.", hint="Download the model again.") from error
        # Some files were saved with what training needed; prompts are neither cut nor filled up.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = ModelConfig.from_folder(folder)
        self.eos_ids = frozenset(config.eos_token_ids)
        self._bos_text = "" if config.bos_token_id is None else self._tokenizer.id_to_token(config.bos_token_id) or ""
        self._added_texts = {
            token: added.content for token, added in self._tokenizer.get_added_tokens_decoder().items()
        }
        self._bytes_of_letters = _byte_alphabet() if _is_byte_level(self._tokenizer) else {}
        self._template = ChatTemplate.from_folder(folder, clock=clock)

    @property
    def vocab_size(self) -> int:
        """Number of tokens known, added ones included; the model's embedding table may have more rows."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def added_texts(self) -> frozenset[str]:
        """Texts of tokens that were added to the vocabulary, special ones among them: each is always one token."""
        return frozenset(self._added_texts.values())

    @property
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template."""
        return self._template is not None

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of a text; the texts of special tokens in it become those tokens.

        Args:
            text: any text.
            add_special: whether to add the tokens that the model expects around a text, such as BOS; never a second
                one to a text that begins with it. False for a rendered chat template, which writes its own.

        Raises:
            InvalidRequest: if the text holds a lone surrogate, which is not valid Unicode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"The text is not valid Unicode: a lone surrogate U+{ord(text[error.start]):04X} "
                f"at character {error.start}.",
                hint=r"Send a character outside the basic plane as both halves of its \uXXXX\uXXXX pair, or as itself.",
            ) from None
        # Unlike `encode`, this lets go of Python's lock, so that a server that tokenises in a thread goes on meanwhile;
        # and it counts no offsets, which nobody here reads.
        is_added = add_special and not self.begins_itself(text)
        (encoded,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=is_added)
        ids: list[int] = encoded.ids
        return ids

    def begins_itself(self, text: str) -> bool:
        """Whether a text begins with the token that the model expects before a text, so that `encode` adds none."""
        return bool(self._bos_text) and text.startswith(self._bos_text)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of token ids; bytes that are not valid UTF-8 become U+FFFD, and unknown ids nothing.

        Raises:
            InvalidTokens: for an id that is not a whole number from 0 to 2**32 - 1.
        """
        try:
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))
        except (TypeError, OverflowError) as error:
            raise InvalidTokens(f"Not a list of token ids: {error}", hint="token ids are whole numbers >= 0") from None

    def token_text(self, token: int) -> str:
        """One token's text, special tokens included; U+FFFD where the token is a part of a character."""
        return self.decode([token], skip_special=False)

    def token_bytes(self, token: int) -> bytes:
        """One token's exact bytes, which for a part of a character are not valid UTF-8; none for an unknown id."""
        if token in self._added_texts:
            return self._added_texts[token].encode()
        piece: str = self._tokenizer.id_to_token(token) or ""
        if self._bytes_of_letters:
            return bytes(self._bytes_of_letters[letter] for letter in piece)
        # SentencePiece spells a byte as <0xE4> and a space as a low line of its own.
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes.fromhex(piece[3:5])
        return piece.replace("\u2581", " ").encode()

    def stream(self) -> TextStream:
        """A decoder for one answer, to be given its tokens as they are generated."""
        return TextStream(self)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """A conversation as the text the model was trained on; encode it with `add_special=False`.

        Raises:
            InvalidRequest: if the model has no chat template, or the template refuses the messages.
        """
        if self._template is None:
            raise InvalidRequest(
                "This model has no chat template.",
                hint="Use /v1/completions, or a model tuned for chat.",
                param="messages",
            )
        return self._template.render(messages, tools, add_generation_prompt, **kwargs)


class TextStream:
    """Text of a growing list of tokens, given out as soon as no later token can change it.

    All pieces together equal `Tokenizer.decode` of all tokens. Only a short window of tokens is decoded at each step:
    those of the piece given out last, because some decoders treat the first token of a text differently, and those
    after it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = 0  # characters of the window's text given out
        self._settled = 0  # tokens of the window whose text has been given out completely

    def push(self, token: int) -> str:
        """Take a token; return the text that has become certain, which is empty amid a character."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        # U+FFFD at the end may be the bytes so far of a character that the next token completes.
        unfinished = min(len(text) - len(text.rstrip(_REPLACEMENT)), _LONGEST_UNFINISHED)
        piece = text[self._given : len(text) - unfinished]
        self._given += len(piece)
        if not piece and not unfinished and self._given == len(text):
            self._window.pop()  # a token without text, such as a special one, changes nothing that follows
        elif piece and not unfinished:
            del self._window[: self._settled]
            self._settled = len(self._window)
            self._given = len(self._tokenizer.decode(self._window))
        return piece

    def flush(self) -> str:
        """The rest of the text at the end of the answer: U+FFFD for a character that was never completed."""
        text = self._tokenizer.decode(self._window)
        piece = text[self._given :]
        self._given = len(text)
        return piece


def _is_byte_level(tokenizer: tokenizers.Tokenizer) -> bool:
    decoder = tokenizer.decoder
    if decoder is None:
        return False
    state = json.loads(decoder.__getstate__())
    return any(part["type"] == "ByteLevel" for part in state.get("decoders", [state]))


def _byte_alphabet() -> dict[str, int]:
    """The letter that byte-level tokenizers write for each byte, reversed.

    Printable Latin-1 characters stand for themselves; the other bytes, in order, for the letters from U+0100 on.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(others)}
