import json

from prefold.analysis.record import Body, Place, Record
from prefold.analysis.request import Request
from prefold.analysis.routes import Routes, Saving
from prefold.core.tokens import pack


def request(question: str, *, run: range = range(10), ends=(6, 10), tenant: str = "", output: int = 100, **body):
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": question}]
    content = Body(json.dumps({"model": "gpt-4o", "messages": messages, **body}).encode())
    record = Record(content, Place("log", 1), model="gpt-4o", tenant=tenant)
    return Request(pack(run), 1, len(run), 0.0, record, ends=ends, system_end=6, output_tokens=output)


def test_a_repeated_request_is_an_exact_repeat_only():
    routes = Routes()
    for _ in range(3):
        routes.add(request("What is it?"), 4)
    assert Saving(2, 20, 8, 200) == routes.exact_repeat
    assert Saving() == routes.semantic


def test_another_setting_or_tenant_is_no_repeat():
    routes = Routes()
    routes.add(request("What is it?"), 0)
    routes.add(request("What is it?", tenant="acme"), 0)
    routes.add(request("What is it?", temperature=1), 0)
    assert Saving() == routes.exact_repeat


def test_words_alone_decide_on_the_same_question():
    routes = Routes()
    routes.add(request("What is it?", run=range(10)), 0)
    routes.add(request("what  is it", run=range(12), ends=(6, 12)), 6)
    routes.add(request("what is not it", run=range(13), ends=(6, 13)), 6)
    assert Saving(1, 12, 6, 100) == routes.semantic


def test_another_context_is_another_question():
    routes = Routes()
    routes.add(request("What is it?", run=range(10)), 0)
    routes.add(request("What is it!", run=range(1, 11)), 0)
    assert Saving() == routes.semantic


def test_compaction_concerns_what_lies_before_the_last_blocks():
    routes = Routes()
    routes.add(request("q", run=range(60), ends=tuple(range(6, 61, 2))), 40)
    # 28 blocks: the twenty last ones begin at 20; of the 14 tokens behind the system prompt all were hits.
    assert Saving(1, 14, 14) == routes.compaction


def test_short_answers():
    routes = Routes()
    routes.add(request("a", output=1), 0)
    routes.add(request("b", output=65), 0)
    routes.add(request("c", output=0), 0)
    assert Saving(1, 10, 0, 1) == routes.smaller_model
