import pytest

from prefold.errors import InvalidRequest
from prefold.server.fields import Fields, read_json, shown


def test_a_body_is_read():
    assert "né" == read_json('{"user": "né"}'.encode()).text("user")


def test_the_last_of_duplicate_keys_counts():
    assert 2 == read_json(b'{"n": 1, "n": 2}').integer("n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body is not valid JSON: Expecting value (line 1, column 1)"),
        (b'{\n  "a": 1,\n}', "line 3, column 1"),
        (b'{"a": 1} {}', "Extra data (line 1, column 10)"),
        (b'{"a": "\xff"}', "not valid UTF-8: byte 7 is 0xff"),
        ("\ufeff{}".encode(), "BOM"),
        (b'{"a": NaN}', "holds NaN"),
        (b'{"a": -Infinity}', "holds -Infinity"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
        (b"[1, 2]", "The body is [1, 2]"),
        (b'"text"', "The body is 'text'"),
        (b'{"a": "\x00"}', "Invalid control character"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_object_is_refused(body, message):
    with pytest.raises(InvalidRequest) as caught:
        read_json(body)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("method", "value", "allowed"),
    [
        ("integer", 1.0, "a whole number"),
        ("integer", True, "a whole number"),
        ("integer", "1", "a whole number"),
        ("boolean", 1, "true or false"),
        ("boolean", "true", "true or false"),
        ("text", 1, "a string"),
        ("objects", {}, "a list of objects"),
        ("objects", [1], "a list of objects"),
        ("part", [], "an object"),
    ],
)
def test_other_types_are_refused_by_name(method, value, allowed):
    with pytest.raises(InvalidRequest) as caught:
        getattr(Fields({"field": value}), method)("field")
    assert f"field is {value!r}" == caught.value.message
    assert f"it must be {allowed}" == caught.value.hint
    assert "field" == caught.value.param


@pytest.mark.parametrize("value", [True, "0.5", [], {}])
def test_a_number_is_neither_text_nor_truth(value):
    with pytest.raises(InvalidRequest, match="a number"):
        Fields({"field": value}).number("field", 1.0)


def test_a_number_too_large_for_a_float_is_infinite():
    assert float("inf") == Fields({"field": 10**400}).number("field", 1.0)


def test_null_is_absent():
    fields = Fields({"field": None})
    assert 1.5 == fields.number("field", 1.5)
    assert fields.boolean("field", default=True)
    assert [None] * 4 == [fields.integer("field"), fields.text("field"), fields.objects("field"), fields.part("field")]


def test_fields_of_a_part_carry_its_name():
    part = Fields({"stream_options": {"include_usage": 1}}).part("stream_options")
    assert part is not None
    with pytest.raises(InvalidRequest, match=r"stream_options\.include_usage is 1"):
        part.boolean("include_usage")


def test_long_values_are_cut():
    assert "'" + "x" * 79 + "..." == shown("x" * 1_000_000)
