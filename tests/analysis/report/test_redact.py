"""Redaction: no text of the log is left, and what tells equal texts apart is."""

import json
import re

import pytest

from prefold.analysis.report.redact import redacted, shape

KEY = b"a key of this test"
SECRETS = [
    "Quarterly figures of Zephyr Holdings: 4,711,003 EUR, confidential until Thursday.",
    'Ring Mr. Okonkwo (+44 20 7946 0018) about "Bluebird", Inc!',
    "患者王小明的病历号是 8823-17，请保密。",
    "Zeile eins\nZeile zwei\t\teingerückt: Tabs, \u200b sonst nichts",
    '{"iban":"DE89 3704 0044 0532 0130 00","pin":1234}',
]


def with_secrets(analysis):
    """The analysis with secrets wherever texts of a log can be."""
    analysis["flame"]["labels"] = [
        SECRETS[number % len(SECRETS)] for number, _ in enumerate(analysis["flame"]["labels"])
    ]
    analysis["flame"]["paths"] = [f'tools[0].parameters.properties["{SECRETS[0][:30]}"].description']
    analysis["flame"]["nodes"]["path"] = [0 for _ in analysis["flame"]["nodes"]["path"]]
    for number, entry in enumerate(analysis["breaks"]):
        entry["before"], entry["after"] = SECRETS[number], SECRETS[number + 1]
        entry["explanation"] = f"It says {SECRETS[1]!r}."
        entry["fix"] = f"Do not say {SECRETS[1]!r}."
        entry["path"] = "messages[0].content[1].text.zephyr_holdings"
        entry["miss_reasons"] = {SECRETS[2]: 1, "system_changed": 2}
    analysis["attribution"][4]["path"] = f"input[0].{SECRETS[3]}"
    analysis["order"]["moves"][0].update(text=SECRETS[3], to='messages[0]["Bluebird-Fusion"]')
    analysis["advice"][0]["text"] = f'Take "{SECRETS[0]}" out. {analysis["breaks"][0]["fix"]}'
    analysis["advice"][1]["title"] = f"Mend the prefix: clock at {analysis['breaks'][0]['path']}"
    analysis["reported"]["miss_reasons"] = {SECRETS[4]: 3}
    analysis["over_time"][0]["tenant"] = "Okonkwo & Söhne"
    return analysis


def test_no_five_characters_of_a_text_survive(analysis_of):
    shown = json.dumps(redacted(with_secrets(analysis_of("full")), key=KEY), ensure_ascii=False)
    shown = re.sub(r'"(tokens|hit|time|requests|\w+_tokens)": [^"]*', "", shown)  # figures, which may be like any other
    for secret in [*SECRETS, "Bluebird-Fusion", "Okonkwo & Söhne", "zephyr_holdings"]:
        windows = {secret[at : at + 5] for at in range(len(secret) - 4)}
        assert [] == [window for window in windows if window in shown]


def test_figures_and_what_prefold_says_stay(analysis_of):
    before, after = analysis_of("full"), redacted(analysis_of("full"), key=KEY)
    assert after["redacted"] is True
    assert before["caches"] == after["caches"]
    assert before["flame"]["nodes"] == after["flame"]["nodes"]
    assert before["breaks"][0]["fix"] == after["breaks"][0]["fix"]
    assert "messages[1].content" == after["breaks"][0]["path"]
    assert "Take the clock out of the system message" == after["advice"][0]["title"]


def test_equal_texts_stay_equal_and_others_different(analysis_of):
    labels = redacted(with_secrets(analysis_of("full")), key=KEY)["flame"]["labels"]
    assert labels[0] == labels[len(SECRETS)]
    assert len(SECRETS) == len(set(labels))


def test_hashes_depend_on_the_key(analysis_of):
    one, other = (redacted(analysis_of("full"), key=key)["breaks"][0]["before"] for key in (KEY, b"another"))
    assert one != other
    assert one.split(" #")[0] == other.split(" #")[0]


def test_names_of_tenants_can_be_kept(analysis_of):
    assert "acme" == redacted(analysis_of("full"), key=KEY, keep_names=True)["over_time"][0]["tenant"]
    assert "acme" not in redacted(analysis_of("full"), key=KEY)["over_time"][0]["tenant"]


def test_an_analysis_of_nothing_is_redacted_to_nothing(analysis_of):
    assert {**analysis_of("empty"), "redacted": True} == redacted(analysis_of("empty"), key=KEY)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Room 12-34", "Aaaa 99-99"),
        ("", ""),
        ("你好, world", "xx, aaaa"),
        ("ABCDEFGH", "AAAA"),
        ("a -- -- b", "a -a"),
        ("word " * 40, "aaaa " * 9 + "aaa…"),
    ],
)
def test_shapes(text, expected):
    assert expected == shape(text)
