"""The tree behind the flame graph against counting every token by itself."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.record import Body, Place, Record
from prefold.analysis.report.flame import MERGED, FlameTree
from prefold.analysis.request import Request
from prefold.core.tokens import pack

Traffic = list[tuple[list[int], int, str]]


def bare(run, *, model="", number=0):
    """A request whose body cannot be read, so that its frames have no label."""
    return Request(pack(run), 1, len(run), 0.0, Record(Body(b"?!{", None), Place("f", number), model=model))


def frames(flame):
    nodes = flame["nodes"]
    return list(zip(nodes["depth"], nodes["tokens"], nodes["hit"], nodes["label"], nodes["path"], strict=True))


def frame(flame, text):
    """Tokens, hit and path of the only frame with a text."""
    found = [entry for entry in frames(flame) if entry[3] >= 0 and flame["labels"][entry[3]] == text]
    assert 1 == len(found), flame["labels"]
    _, tokens, hit, _, path = found[0]
    return tokens, hit, "" if path < 0 else flame["paths"][path]


def own(flame):
    """Tokens and hits of each frame's own text, from the root on."""
    rows = frames(flame)
    result = []
    for index, (depth, tokens, hit, _, _) in enumerate(rows):
        own_tokens, own_hit = tokens, hit
        for below_depth, below_tokens, below_hit, _, _ in rows[index + 1 :]:
            if below_depth <= depth:
                break
            if below_depth == depth + 1:
                own_tokens -= below_tokens
                own_hit -= below_hit
        result.append((own_tokens, own_hit))
    return result


def test_an_empty_tree_is_its_root():
    assert {
        "nodes": {"depth": [0], "tokens": [0], "hit": [0], "label": [0], "path": [-1]},
        "labels": [""],
        "paths": [],
        "merged": 0,
    } == FlameTree().as_json()


def test_frames_part_where_prompts_do(make_request):
    tree = FlameTree()
    first = [{"role": "system", "content": "Today is Monday. Be brief."}, {"role": "user", "content": "Hello"}]
    second = [{"role": "system", "content": "Today is Friday. Be brief."}, {"role": "user", "content": "Hello"}]
    tree.add(make_request(first), 0)
    tree.add(make_request(second), 9)
    flame = tree.as_json()
    assert (62, 9, "messages[0]") == frame(flame, "Today is …")
    assert (22, 0, "messages[0]") == frame(flame, "…Monday. Be brief.")
    assert (22, 0, "messages[0]") == frame(flame, "…Friday. Be brief.")
    assert [0, 1, 2, 2] == flame["nodes"]["depth"]


def test_turns_of_a_conversation_lie_below_each_other(make_request):
    tree = FlameTree()
    turns = [{"role": "user", "content": text} for text in ("one", "two", "three")]
    tree.add(make_request(turns[:1]), 0)
    tree.add(make_request(turns), 3)
    flame = tree.as_json()
    assert (14, 3, "messages[0]") == frame(flame, "one")
    assert (8, 0, "messages[1]") == frame(flame, "two")


def test_a_hit_that_ends_within_a_frame_is_divided_with_it(make_request):
    tree = FlameTree()
    tree.add(make_request([{"role": "user", "content": "abcdefgh"}]), 0)
    tree.add(make_request([{"role": "user", "content": "abcdefgh"}]), 6)
    tree.add(make_request([{"role": "user", "content": "abcdxyz"}]), 2)
    flame = tree.as_json()
    assert [(12, 6), (8, 2), (3, 0)] == own(flame)[1:]


def test_models_and_salts_share_nothing(make_request):
    tree = FlameTree()
    for model, salt in [("gpt-4o", None), ("gpt-4o", "acme"), ("o3", None)]:
        tree.add(make_request([{"role": "user", "content": "Hello"}], model=model, salt=salt), 0)
    flame = tree.as_json()
    assert {"gpt-4o", "gpt-4o · acme", "o3"} < set(flame["labels"])
    assert [0, 1, 2, 1, 2, 1, 2] == flame["nodes"]["depth"]
    assert 15 == flame["nodes"]["tokens"][0]


def test_blocks_are_named_by_number_and_keep_the_rest_of_their_prompt(make_blocks):
    tree = FlameTree()
    tree.add(make_blocks([1, 2, 3], tokens=50), 0)
    tree.add(make_blocks([1, 2, 4]), 32)
    flame = tree.as_json()
    assert (98, 32, "") == frame(flame, "blocks 1, 2")
    assert (18, 0, "") == frame(flame, "block 3")
    assert (16, 0, "") == frame(flame, "block 4")


def test_an_empty_prompt_counts_for_nothing():
    tree = FlameTree()
    tree.add(bare([]), 0)
    assert 0 == tree.as_json()["nodes"]["tokens"][0]


def test_bodies_that_are_let_go_are_labelled_before(make_request):
    tree = FlameTree(max_held_bytes=1)
    tree.add(make_request([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]), 0)
    tree.add(make_request([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Goodbye"}]), 9)
    flame = tree.as_json()
    assert (30, 9, "messages[0]") == frame(flame, "Be brief.")
    assert (7, 0, "messages[1]") == frame(flame, "Goodbye")


def test_a_frame_whose_only_continuation_was_merged_keeps_its_text(make_request):
    tree = FlameTree(max_nodes=5)
    rules = {"role": "system", "content": "Be brief."}
    tree.add(make_request([rules]), 0)
    tree.add(make_request([rules, {"role": "user", "content": "Hi"}]), 9)
    for text in ("Sum up what follows.", "Name all the cities.", "Write a short poem."):
        tree.add(make_request([{"role": "user", "content": text}]), 0)
    flame = tree.as_json()
    assert 0 < flame["merged"]
    assert (20, 9, "messages[0]") == frame(flame, "Be brief.")


traffic = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=8), st.integers(0, 9), st.sampled_from(["a", "b"])), max_size=30
)


@given(traffic)
def test_every_token_is_in_exactly_one_frame(requests: Traffic):
    tree = FlameTree()
    widths: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for number, (run, hit, model) in enumerate(requests):
        tree.add(bare(run, model=model, number=number), min(hit, len(run)))
        for stop in range(1, len(run) + 1):
            count = widths.setdefault((model, tuple(run[:stop])), [0, 0])
            count[0] += 1
            count[1] += stop <= hit
    flame = tree.as_json()
    assert sum(count[0] for count in widths.values()) == flame["nodes"]["tokens"][0]
    assert sum(count[1] for count in widths.values()) == flame["nodes"]["hit"][0]
    assert all(0 <= hit <= tokens for tokens, hit in own(flame))
    assert all(after <= before + 1 for before, after in pairwise(flame["nodes"]["depth"]))
    assert 0 == flame["merged"]


@given(traffic, st.integers(1, 6), st.integers(1, 12))
def test_what_is_merged_still_counts(requests: Traffic, max_nodes: int, max_units: int):
    tree = FlameTree(max_nodes=max_nodes, max_units=max_units)
    for number, (run, hit, model) in enumerate(requests):
        tree.add(bare(run, model=model, number=number), min(hit, len(run)))
    flame = tree.as_json()
    assert sum(len(run) for run, _, _ in requests) == flame["nodes"]["tokens"][0]
    assert sum(min(hit, len(run)) for run, hit, _ in requests) == flame["nodes"]["hit"][0]
    assert all(0 <= hit <= tokens for tokens, hit in own(flame))
    kept = sum(label != MERGED for label in flame["nodes"]["label"])
    assert max_nodes + 1 >= kept  # and that of the whole log


def test_memory_is_bounded_by_nodes_and_not_by_the_log():
    tree = FlameTree(max_nodes=100)
    for number in range(2_000):
        tree.add(bare([1, 2, 3, number, number], number=number), 3)
    flame = tree.as_json()
    assert 102 >= len(flame["nodes"]["depth"])
    assert 1_800 < flame["merged"]
    assert (10_000, 6_000) == (flame["nodes"]["tokens"][0], flame["nodes"]["hit"][0])


def test_a_message_without_text_is_still_a_place(make_request):
    tree = FlameTree()
    tree.add(make_request([{"role": "user", "content": text} for text in ("one", "", "three")]), 0)
    tree.add(make_request([{"role": "user", "content": text} for text in ("one", "", "four")]), 0)
    flame = tree.as_json()
    assert (5, 0, "messages[2]") == frame(flame, "three")
    assert (4, 0, "messages[2]") == frame(flame, "four")
