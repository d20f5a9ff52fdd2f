"""A provider on this machine: answers in the forms of OpenAI, Anthropic and Gemini, and keeps what it was sent."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHAT_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 5,
    "total_tokens": 105,
    "prompt_tokens_details": {"cached_tokens": 64},
}
RESPONSES_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 20},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 105,
}
ANTHROPIC_USAGE = {
    "input_tokens": 16,
    "cache_read_input_tokens": 64,
    "cache_creation_input_tokens": 20,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 5,
}
GEMINI_USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 64,
    "candidatesTokenCount": 5,
    "totalTokenCount": 105,
}


def chat(body):
    message = {"role": "assistant", "content": "Blue."}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice],
        "usage": CHAT_USAGE,
    }


def chat_events(body):
    base = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    for text in ("Bl", "ue."):
        yield None, {**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}
    yield None, {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield None, {**base, "choices": [], "usage": CHAT_USAGE}
    yield None, "[DONE]"


def completion(body):
    choice = {"index": 0, "text": "Blue.", "finish_reason": "stop", "logprobs": None}
    base = {"id": "c-1", "object": "text_completion", "created": 1, "model": body["model"]}
    return {**base, "choices": [choice], "usage": CHAT_USAGE}


def response(body):
    text = {"type": "output_text", "text": "Blue.", "annotations": []}
    output = [{"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}]
    base = {"id": "r-1", "object": "response", "created_at": 1, "status": "completed", "model": body["model"]}
    rest = {"output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": RESPONSES_USAGE}
    return {**base, **rest}


def response_events(body):
    whole = response(body)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    part = {"type": "output_text", "text": "", "annotations": []}
    item = {"id": "m", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": part},
        {"type": "response.output_text.delta", **place, "delta": "Blue.", "logprobs": []},
        {"type": "response.completed", "response": whole},
    ]
    for number, event in enumerate(events):
        yield event["type"], {**event, "sequence_number": number}


def message(body):
    base = {"id": "msg-1", "type": "message", "role": "assistant", "model": body["model"]}
    rest = {"content": [{"type": "text", "text": "Blue."}], "stop_reason": "end_turn", "stop_sequence": None}
    return {**base, **rest, "usage": ANTHROPIC_USAGE}


def message_events(body):
    begun = {**message(body), "content": [], "stop_reason": None, "usage": {**ANTHROPIC_USAGE, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": begun}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield "content_block_start", block
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Blue."}}
    yield "content_block_delta", delta
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}
    yield "message_stop", {"type": "message_stop"}


def gemini(_body):
    text = 'It is "usageMetadata": blue.'  # a text that looks like the field
    content = {"role": "model", "parts": [{"text": text}]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": GEMINI_USAGE, "modelVersion": "gemini-2.5-flash"}


def gemini_events(body):
    begun = {"promptTokenCount": 100, "cachedContentTokenCount": 64, "candidatesTokenCount": 1}
    yield None, {**gemini(body), "usageMetadata": begun}
    yield None, gemini(body)


ANSWERS = {
    "/v1/chat/completions": (chat, chat_events),
    "/v1/completions": (completion, None),
    "/v1/responses": (response, response_events),
    "/v1/messages": (message, message_events),
    ":generateContent": (gemini, None),
    ":streamGenerateContent": (gemini, gemini_events),
}


class Provider:
    """The server.

    Attributes:
        url: its address.
        bodies: what it was sent.
        headers: with which headers.
        status: of its answers; other than 200 they are errors.
        delay: seconds before each answer.
        cut: how many events of a stream it sends before it hangs up; None for all.
    """

    def __init__(self):
        self.bodies, self.headers = [], []
        self.status, self.delay, self.cut = 200, 0.0, None
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                provider._answer(self)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.bodies.append(body)
        self.headers.append(dict(handler.headers))
        time.sleep(self.delay)
        path = handler.path.partition("?")[0]
        whole, events = next(answer for end, answer in ANSWERS.items() if path.endswith(end))
        is_stream = body.get("stream") or path.endswith(":streamGenerateContent")
        if self.status != 200:
            error = {"type": "error", "code": self.status, "message": "No.", "status": "FAILED"}
            self._send(handler, {"type": "error", "error": error})
        elif is_stream:
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.send_header("Connection", "close")
            handler.end_headers()
            for number, (name, data) in enumerate(events(body)):
                if number == self.cut:
                    break
                line = f"event: {name}\n" if name else ""
                text = data if isinstance(data, str) else json.dumps(data)
                handler.wfile.write(f"{line}data: {text}\n\n".encode())
                handler.wfile.flush()
            handler.close_connection = True
        else:
            self._send(handler, whole(body))

    def _send(self, handler, payload):
        data = json.dumps(payload).encode()
        handler.send_response(self.status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
