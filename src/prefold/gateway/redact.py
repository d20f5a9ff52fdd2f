"""Request bodies without their texts, in which what began alike still begins alike.

Each text keeps its length. Its pieces of 32 characters become eight short words that a keyed hash of the text up to
there chooses, so that two texts agree as far as they did before, in steps of 32 characters, and tokens can still be
estimated from lengths. Names become hashes. What is left is what the APIs themselves prescribe: their keys, roles and
types, numbers, and the model.

Without the key nobody can test a guess; with it anybody can, so it belongs with the other secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

_PIECE = 32  # characters
_WORDS = tuple(
    """
    act add age ago aid aim air all and any are arm art ask bad bag bar bed big bit box boy bus but buy can car cat
    cup cut day did die dog dry due ear eat egg end era eye far few fig fit fly for fun gas get hat her his hot how
    ice ink its job key law leg let
    """.split()  # noqa: SIM905 - one word a line would take a page
)
_WORDS_PER_PIECE = _PIECE // 4  # three letters and a space each
_BITS = 6  # that choose a word

_PRESCRIBED = frozenset(
    """
    additionalProperties allOf anyOf arguments audio best_of budget_tokens cache_control cache_salt cache_salt_from
    call_id content data default defs description detail disable_parallel_tool_use echo effort encrypted_content
    enum exclude file file_data file_id filename format frequency_penalty function function_call generate
    guided_json id image image_url include include_usage input input_audio input_schema input_text instructions
    is_error items json_schema logit_bias logprobs max_completion_tokens max_output_tokens max_tokens maximum
    media_type messages metadata min_p minimum modalities model n name oneOf output output_text parallel_tool_calls
    parameters parts patternProperties prediction presence_penalty previous_response_id prompt prompt_cache_key
    prompt_cache_retention prompt_token_ids properties reasoning reasoning_content reasoning_effort refusal
    repetition_penalty required response_format role safety_identifier schema seed service_tier signature source
    stop stop_sequences store stream stream_options strict suffix summary system temperature text thinking title
    tool_call_id tool_calls tool_choice tool_use_id tools top_k top_logprobs top_p truncation ttl type url user
    verbosity
    """.split()  # noqa: SIM905 - one word a line would take a page
)
"""Keys that an API prescribes; all others may be a user's own."""

_SETTINGS = frozenset(
    {"detail", "effort", "format", "media_type", "model", "reasoning_effort", "role", "service_tier", "tool_choice"}
    | {"ttl", "type", "truncation", "verbosity", "prompt_cache_retention"}
)
"""Keys whose texts are one of a few words, which stay."""

_SETTING = re.compile(r"[\w./:-]{1,100}", re.ASCII)
_SALT = "cache_salt"
_OF_TOKENS = frozenset({"prompt", "prompt_token_ids", "input"})
"""Keys of lists of token ids, if whole numbers are in them."""
_OWN = frozenset({"arguments", "input", "metadata", "logit_bias", "default", "chat_template_kwargs"})
"""Keys of objects that users make up, with all that is in them."""
_OF_NAMES = frozenset({"properties", "defs", "$defs", "definitions", "patternProperties"})
"""Keys of objects whose keys are names, and whose values are an API's again."""
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "cache_salt": "salt",
        "id": "id",
        "call_id": "id",
        "tool_call_id": "id",
        "tool_use_id": "id",
        "name": "name",
        "user": "user",
    }
    | {"prompt_cache_key": "key", "safety_identifier": "user", "previous_response_id": "id", "file_id": "id"}
)
"""Keys whose texts are names: equal ones stay equal, wherever they stand."""


class Redactor:
    """Takes texts out of bodies.

    Args:
        key: up to 64 secret bytes. Bodies that were redacted under one key can be compared with each other.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def body(self, body: Any) -> Any:
        """A body without its texts.

        Raises:
            RecursionError: if it is nested too deeply.
        """
        return self._value(body, "")

    def without_salt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A body whose client's salt is a hash, and which is whole in all else."""
        return {key: self._value(value, key) if key == _SALT else value for key, value in body.items()}

    def text(self, text: str) -> str:
        """Words in place of a text, as long as it was."""
        state = blake2b(key=self._key, digest_size=_WORDS_PER_PIECE * _BITS // 8, person=b"text")
        made: list[str] = []
        for start in range(0, len(text), _PIECE):
            state.update(text[start : start + _PIECE].encode(errors="surrogatepass"))
            number = int.from_bytes(state.digest())
            for _ in range(_WORDS_PER_PIECE):
                made.append(_WORDS[number & 63])
                number >>= _BITS
        return (" ".join(made) + " ")[: len(text)] if made else ""

    def tokens(self, tokens: Sequence[int]) -> list[int]:
        """Other token ids, which agree as far as these do."""
        state = blake2b(key=self._key, digest_size=4, person=b"tokens")
        made: list[int] = []
        for token in tokens:
            state.update(b"%d " % token)
            made.append(int.from_bytes(state.digest()) >> 1)
        return made

    def _value(self, value: Any, key: str, *, is_own: bool = False) -> Any:
        """A value without its texts.

        Args:
            value: of JSON.
            key: under which it stands; empty in a list of objects.
            is_own: whether it is a part of what a user made up, so that its keys are none of an API's.
        """
        if isinstance(value, dict):
            return self._object(value, key, is_own=is_own)
        if isinstance(value, list):
            if key in _OF_TOKENS and value and all(type(each) is int for each in value):
                return self.tokens(value)
            return [self._value(each, "" if isinstance(each, dict) else key, is_own=is_own) for each in value]
        return self._text_under(key, value) if isinstance(value, str) else value

    def _object(self, value: Mapping[str, Any], key: str, *, is_own: bool) -> dict[str, Any]:
        is_own = is_own or key in _OWN
        are_names = is_own or key in _OF_NAMES
        made: dict[str, Any] = {}
        for name, inner in value.items():
            if are_names:
                made[self._name(name, "key")] = self._value(inner, "", is_own=is_own)
            elif name in _PRESCRIBED:
                made[name] = self._value(inner, name)
            else:
                made[self._name(name, "key")] = self._value(inner, "", is_own=True)
        return made

    def _text_under(self, key: str, text: str) -> str:
        if key in _SETTINGS and _SETTING.fullmatch(text):
            return text
        kind = _NAMES.get(key)
        return self.text(text) if kind is None else self._name(text, kind)

    def _name(self, name: str, kind: str) -> str:
        digest = blake2b(name.encode(errors="surrogatepass"), key=self._key, digest_size=6, person=b"name")
        return f"{kind}_{digest.hexdigest()}" if name else ""
