"""How two texts differ at the first place where they do.

Only the neighbourhood of that place is looked at, so that the cost does not grow with what follows it; the exception is
the order of lines, which needs all of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable

from prefold.prompts.sequences import common_length
from prefold.prompts.volatile import Kind, Volatile, find_volatile

_NEIGHBOURHOOD = 400  # characters on either side in which a date or an id is looked for
_RESYNC = 24  # visible characters that must agree again behind a difference in white space
_WINDOW = 32  # characters of a sample that is looked for in the other text
_SAMPLES = 24
_CLOCK = (Kind.DATE, Kind.TIME, Kind.EPOCH)
_NUMBER = re.compile(r"[-+]?(?:(?:\d{1,3}(?:[,_]\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_LONGEST_WORD = 24  # characters of a time in words
_TIME_IN_WORDS = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october"
    r"|november|december)\b"
    r"|(?:上午|下午|凌晨|中午|早上|晚上|傍晚)?[零〇一二三四五六七八九十两]{1,3}[点时](?:[零〇一二三四五六七八九十]{1,3}分|半|整)?"
    r"|(?:星期|周|礼拜)[一二三四五六日天]",
    re.IGNORECASE,
)
_WORD = re.compile(r"[0-9A-Za-z]+")
_WORD_BEFORE = re.compile(r"[0-9A-Za-z]*\Z")
_SHORTEST_CODE = 6  # characters of a word that is taken for an id
_DIGITS_BEFORE = re.compile(r"[-+\d.,_eE]*\Z")
# What no reader sees: white space, zero-width characters, joiners, direction marks, byte order marks.
_INVISIBLE = re.compile(r"[\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe0f]+")
# How templates spell the beginning of a text and of a system turn.
_BEGINNINGS = ("<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "<|endoftext|>", "<｜begin▁of▁sentence｜>")
_SYSTEM_TURN = re.compile(
    r"(?:<s>|<\|begin_of_text\|>|<bos>)?\s*(?P<turn>"
    r"<\|im_start\|>\s*system.*?<\|im_end\|>\s*"
    r"|<\|start_header_id\|>\s*system.*?<\|eot_id\|>\s*"
    r"|<\|system\|>.*?(?=<\|user\|>)"
    r"|<\|im_system\|>.*?<\|im_end\|>\s*"
    r"|(?:\[INST\]\s*)?<<SYS>>.*?<</SYS>>\s*"
    r"|\[SYSTEM_PROMPT\].*?\[/SYSTEM_PROMPT\]\s*"
    r"|<\|start\|>\s*system.*?<\|end\|>\s*)",
    re.DOTALL,
)
_LATEST_TURN = 64  # characters from the start of a text in which its system turn begins
_CUT_SIGN = re.compile(r"\.\.\.|…|truncat|omitted|elided|cleared|removed|\bcut\b|省略|截断|略去|已清除", re.IGNORECASE)
_LONGEST_CUT_SIGN = 200
_THOUGHTS = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


def common_suffix(first: str, second: str, limit: int) -> int:
    """Number of characters at the end that two texts share, `limit` at the most."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        if first[len(first) - middle :] == second[len(second) - middle :]:
            low = middle
        else:
            high = middle
    return low


def text_cause(before: str, after: str) -> str:
    """The cause of the first difference of two texts that differ: one of the names in `causes.CAUSES`."""
    position = common_length(before, after)
    checks: tuple[tuple[str, Callable[[str, str, int], bool]], ...] = (
        ("bos", _has_doubled_beginning),
        ("template_default", _has_another_system_turn),
        ("number_format", is_number_format),
        ("whitespace", _is_invisible),
    )
    for cause, applies in checks:
        if applies(before, after, position):
            return cause
    if changing := changing_value(before, after, position):
        return changing
    if _is_reordered(before, after):
        return "block_order"
    return "truncation" if _is_shortened(before, after, position) else "text_edit"


def changing_value(before: str, after: str, position: int) -> str | None:
    """What stands at the place where two texts part, if it is a value that changes by nature: `clock`, `identifier`."""
    if cause := _volatile_cause(before, after, position):
        return cause
    if _is_in_words(before, after, position):
        return "clock"
    return "identifier" if _is_another_code(before, after, position) else None


def _volatile_at(text: str, position: int) -> Volatile | None:
    """The value at a place in a text, covering or touching it, if it is one that changes from request to request."""
    start = max(0, position - _NEIGHBOURHOOD)
    window = text[start : position + _NEIGHBOURHOOD]
    touching = [
        found
        for found in find_volatile(window)
        if found.start <= position - start <= found.end and found.start < found.end
    ]
    if not touching:
        return None
    # Of two that meet at the place, the one that begins there or covers it.
    best = max(touching, key=lambda found: found.end)
    return Volatile(best.kind, best.start + start, best.end + start)


def masked(text: str) -> str:
    """A text with each value that changes from request to request replaced by its kind."""
    written: list[str] = []
    position = 0
    for found in find_volatile(text):
        written += (text[position : found.start], f"<{found.kind}>")
        position = found.end
    return "".join([*written, text[position:]])


def are_alike(before: str, after: str) -> bool:
    """Whether one text is the other with changes, rather than another text: half of it is at its two ends."""
    shorter = min(len(before), len(after))
    prefix = common_length(before, after)
    return 2 * (prefix + common_suffix(before, after, shorter - prefix)) >= max(len(before), len(after))


def shared_rest(before: str, after: str, position: int) -> int:
    """About how many bytes behind a place in the first text are somewhere behind it in the second as well."""
    rest, other = before[position:], after[position:]
    step = max(_WINDOW, len(rest) // _SAMPLES)
    samples = (rest[start : start + _WINDOW] for start in range(0, len(rest) - _WINDOW + 1, step))
    found = [sample for sample in samples if sample in other]
    return step * len(found) * len("".join(found).encode(errors="replace")) // max(1, len(found) * _WINDOW)


def _volatile_cause(before: str, after: str, position: int) -> str | None:
    first, second = _volatile_at(before, position), _volatile_at(after, position)
    found = first or second
    if found is None:
        return None
    if first is None or second is None:
        # One side shows a value where the other shows none: it was put in or left out.
        text, span = (before, first) if first is not None else (after, second)
        assert span is not None  # noqa: S101 - for the type checker: found is one of the two
        other = after if text is before else before
        if not other.startswith(text[span.end : span.end + _RESYNC].strip(), _next_visible(other, span.start)):
            return None
    return "clock" if found.kind in _CLOCK else "identifier"


def _is_in_words(before: str, after: str, position: int) -> bool:
    """Whether a weekday, a month or a time in words stands at the place in both."""
    start = max(0, position - _LONGEST_WORD)
    return all(
        any(
            found.start() <= position - start <= found.end()
            for found in _TIME_IN_WORDS.finditer(text[start : position + _LONGEST_WORD])
        )
        for text in (before, after)
    )


def _is_another_code(before: str, after: str, position: int) -> bool:
    """Whether a word of letters and digits stands at the place in both, of the same length and drawn anew."""
    start = position - len(_WORD_BEFORE.search(before[max(0, position - 64) : position]).group())  # type: ignore[union-attr]
    words = [found.group() for text in (before, after) if (found := _WORD.match(text, start))]
    return (
        len(words) == 2
        and len(words[0]) == len(words[1]) >= _SHORTEST_CODE
        and all(re.search(r"\d", word) and re.search(r"[a-z]", word, re.IGNORECASE) for word in words)
        and sum(one != other for one, other in zip(*words, strict=True)) > len(words[0]) // 2
    )


def _next_visible(text: str, position: int) -> int:
    match = _INVISIBLE.match(text, position)
    return match.end() if match else position


def is_number_format(before: str, after: str, position: int) -> bool:
    """Whether one number stands at a place in both texts, written in two ways."""
    start = position - len(_DIGITS_BEFORE.search(before[max(0, position - 40) : position]).group())  # type: ignore[union-attr]
    while start <= position:
        first, second = _NUMBER.match(before, start), _NUMBER.match(after, start)
        if first and second and max(first.end(), second.end()) > position:
            return first.group() != second.group() and _number(first.group()) == _number(second.group())
        start += 1
    return False


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None


def _is_invisible(before: str, after: str, position: int) -> bool:
    """Whether the texts agree again once white space, and how characters are composed, is left out of sight."""
    start = max(0, position - 1)  # a combining character belongs to the one before it
    first, second = (_visible(text[start : start + 2000]) for text in (before, after))
    length = min(len(first), len(second), _RESYNC)
    both_end = len(before) - start <= 2000 and len(after) - start <= 2000
    if length < _RESYNC and not both_end:
        return False
    return first == second if length < _RESYNC else first[:length] == second[:length]


def _visible(text: str) -> str:
    return _INVISIBLE.sub("", unicodedata.normalize("NFC", text))


def _has_doubled_beginning(before: str, after: str, position: int) -> bool:
    """Whether one text begins with the mark of a beginning once more than the other."""
    for mark in _BEGINNINGS:
        if position <= len(mark) and before.startswith(mark) != after.startswith(mark):
            longer, shorter = (before, after) if before.startswith(mark) else (after, before)
            return _goes_on(longer.removeprefix(mark), shorter)
        if before.startswith(mark + mark) != after.startswith(mark + mark) and before.startswith(mark):
            return after.startswith(mark)
    return False


def _has_another_system_turn(before: str, after: str, position: int) -> bool:
    """Whether one text has a system turn at its start that the other has not, and is the same behind it."""
    if position > _LATEST_TURN:
        return False
    for text, other in ((before, after), (after, before)):
        turn = _SYSTEM_TURN.match(text)
        if turn and not _SYSTEM_TURN.match(other):
            start = turn.start("turn")
            return text[:start] == other[:start] and _goes_on(text[turn.end() :], other[start:])
    return False


def _goes_on(one: str, other: str) -> bool:
    """Whether of two texts one begins with the other."""
    return one.startswith(other) or other.startswith(one)


def _is_reordered(before: str, after: str) -> bool:
    """Whether the lines that first differ both come again elsewhere, among others that nearly all do."""
    first, second = before.splitlines(), after.splitlines()
    pairs = zip(first, second, strict=False)
    index = next((i for i, (old, new) in enumerate(pairs) if old != new), min(len(first), len(second)))
    old_rest, new_rest = Counter(first[index:]), Counter(second[index:])
    if index >= len(first) or index >= len(second) or first[index] not in new_rest or second[index] not in old_rest:
        return False
    return 5 * (old_rest & new_rest).total() >= 4 * old_rest.total()


def _is_shortened(before: str, after: str, position: int) -> bool:
    """Whether the second is the first with its end, or much of its middle, left out; or with its thoughts left out."""
    if "<think>" in before and _goes_on(_THOUGHTS.sub("", before).strip(), after.strip()):
        return True
    if len(after) >= len(before) * 0.75 or position < len(after) * 0.25:
        return False
    rest = len(after) - position
    kept = common_suffix(before, after, rest)
    cut = after[position : len(after) - kept]
    return not re.search(r"\w", cut) or (len(cut) <= _LONGEST_CUT_SIGN and bool(_CUT_SIGN.search(cut)))
