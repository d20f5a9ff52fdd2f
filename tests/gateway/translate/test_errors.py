"""Errors in the words of the API that was called."""

import json

import pydantic
import pytest
from anthropic.types import ErrorResponse

from prefold.gateway.translate import errors

_ERROR = pydantic.TypeAdapter(ErrorResponse)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (418, "invalid_request_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_types_by_status(status, kind):
    body = {"error": {"message": "Why", "type": "x", "param": None, "code": None}}
    made = errors.to_anthropic(status, json.dumps(body).encode())
    assert {"type": "error", "error": {"type": kind, "message": "Why"}} == made
    _ERROR.validate_python(made)
    assert 400 == errors.status_of(errors.to_anthropic(400, b"{}"))


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        ("Why", b'{"object": "error", "message": "Why", "code": 400}'),
        ("Why", b'{"detail": "Why"}'),
        ("Why", b'{"error": "Why"}'),
        ('[{"loc": ["body"]}]', b'{"detail": [{"loc": ["body"]}]}'),
        ("<html>", b"<html>"),
        ("The upstream answered 500", b""),
        ("The upstream answered 500", b"null"),
        ("The upstream answered 500", b"\xff"[:0]),
    ],
)
def test_every_form_of_body(expected, body):
    assert expected == errors.to_anthropic(500, body)["error"]["message"]
    assert expected == errors.to_openai(500, body)["error"]["message"]


def test_a_page_is_cut():
    assert 2_000 == len(errors.to_openai(502, b"x" * 100_000)["error"]["message"])


def test_a_prompt_that_is_too_long_is_known_as_such():
    body = {"error": {"message": "The limit is 8192", "code": "context_length_exceeded"}}
    made = errors.to_anthropic(400, body)
    assert "prompt is too long: The limit is 8192" == made["error"]["message"]
    assert "context_length_exceeded" == errors.to_openai(400, made)["error"]["code"]


def test_for_openai():
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}, "request_id": "req_1"}
    expected = {"message": "Busy (request req_1)", "type": "server_error", "param": None, "code": "overloaded_error"}
    assert {"error": expected} == errors.to_openai(529, body)
    assert "invalid_request_error" == errors.to_openai(429, body)["error"]["type"]
