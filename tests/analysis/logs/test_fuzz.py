"""Whatever a file holds, reading it gives records, counted bad lines, or an error of prefold."""

import gzip
import json
import random

import pytest

from prefold.analysis.logs.formats import READERS
from prefold.analysis.logs.log import open_log
from prefold.errors import PrefoldError

MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "U"}]}]
USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
RESPONSE = {"id": "r", "choices": [{"message": {"content": "A"}, "finish_reason": "stop"}], "usage": USAGE}
SEEDS = [
    {"model": "m", "messages": MESSAGES, "metadata": {"user_id": "u"}, "tools": [{"name": "f", "input_schema": {}}]},
    {"timestamp": "2026-01-02T03:04:05Z", "user": "u", "ttft_ms": 3, "request": {"input": "x"}, "response": RESPONSE},
    {"model": "m", "prompt_token_ids": [1, 2], "output_token_ids": [3]},
    {"startTime": 1, "endTime": 2, "call_type": "c", "messages": MESSAGES, "metadata": {"usage_object": USAGE}},
    {"id": "o", "traceId": "t", "type": "GENERATION", "input": MESSAGES, "usageDetails": {"input": 5, "output": 1}},
    {"attributes": {"gen_ai.request.model": "m", "gen_ai.input.messages": json.dumps(MESSAGES)}, "events": [{}]},
    {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "gen_ai.request.model", "value": {}}]}]}]}]},
    {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
]
TEXTS = [
    b"INFO 04-12 22:07:44 x] Received request c: prompt: 'a\\nb', params: S, prompt_token_ids: [1, 2], l\n",
    b'time,model,messages,input_tokens,cached_tokens\n1,m,"[{""role"":""user"",""content"":""x""}]",5,3\n',
    b'timestamp,hash_ids,input_length\n1,"[1, 2]",1024\n',
]
STRANGE = [
    *(None, True, -1, 1e308, float("nan"), float("inf"), 10**400, "", "\ud800", "{", "[1", "{}", "[]", "1e999"),
    *([], {}, [[]], [None], {"a": None}, [1, -1], {"type": "text"}, {"role": None}, "2026-13-45", "x\x00"),
]
PIECES = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b"\n",
    b"\\",
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"[" * 3000,
    b"NaN",
    b"9" * 5000,
]


def changed(value, chance):
    """A JSON value with some parts left out or replaced."""
    if chance.random() < 0.15:
        return chance.choice(STRANGE)
    if isinstance(value, dict):
        return {key: changed(part, chance) for key, part in value.items() if chance.random() > 0.04}
    if isinstance(value, list):
        return [changed(part, chance) for part in value]
    return value


def damaged(content, chance):
    """Bytes with some cut out, overwritten, added or cut off."""
    content = bytearray(content)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(content) + 1)
        match chance.randrange(4):
            case 0:
                del content[at : at + chance.randint(1, 30)]
            case 1:
                content[at:at] = chance.choice(PIECES)
            case 2:
                content[at : at + 1] = bytes([chance.randrange(256)])
            case _ if chance.random() < 0.3:
                del content[at:]
    return bytes(content)


def file_of(chance):
    """A file that is almost a log."""
    values = chance.choices(SEEDS, k=3)
    if chance.random() < 0.5:
        values = [changed(value, chance) for value in values]
    lines = [json.dumps(value).encode() + b"\n" for value in values]
    content = json.dumps(values, indent=1).encode() if chance.random() < 0.2 else b"".join(lines)
    if chance.random() < 0.3:
        content = chance.choice(TEXTS)
    if chance.random() < 0.6:
        content = damaged(content, chance)
    if chance.random() < 0.1:
        content = gzip.compress(content)
        content = content if chance.random() < 0.5 else damaged(content, chance)
    return content


@pytest.mark.parametrize("seed", range(8))
def test_no_file_brings_down_the_readers(tmp_path, seed):
    chance = random.Random(seed)
    path = tmp_path / "log"
    for _ in range(100):
        path.write_bytes(file_of(chance))
        named = chance.choice(READERS).name if chance.random() < 0.2 else None
        log = open_log([str(path)], lenient=chance.random() < 0.8, log_format=named)
        try:
            records = list(log)
        except PrefoldError:
            continue
        assert len(records) == log.notes.records == sum(log.notes.formats.values())
        for record in records:
            assert record.time is None or abs(record.time) < float("inf")
            assert record.usage is None or min(record.usage.uncached, record.usage.read, record.usage.output) >= 0
