"""`prefold tenant-key`."""

import json
import tomllib

import pytest
from click.testing import CliRunner

from prefold.cli.tenant_key import tenant_key
from prefold.errors import UsageError
from prefold.gateway.access import Access
from prefold.gateway.load_config import load_config

REPLICA = '[access]\nby = "key"\n[[replica]]\nname = "one"\nurl = "http://127.0.0.1:1"\n'


def test_the_table_lets_the_key_in(tmp_path):
    result = CliRunner().invoke(tenant_key, ["acme"])
    key = result.stderr.split()[-1]
    assert key not in result.stdout
    assert 32 <= len(key)
    path = tmp_path / "gateway.toml"
    path.write_text(REPLICA.rstrip() + "\n" + result.stdout)  # as `>> gateway.toml` does
    access = Access(load_config(path, {}), {})
    assert "acme" == access.tenant_of({b"authorization": f"Bearer {key}".encode()}).name


def test_group_and_json():
    made = [json.loads(CliRunner().invoke(tenant_key, ["acme", "--group", "paying", "--json"]).stdout) for _ in "ab"]
    assert ("acme", "paying") == (made[0]["tenant"], made[0]["group"])
    assert made[0]["key"] != made[1]["key"]


def test_the_group_stands_in_the_table():
    result = CliRunner().invoke(tenant_key, ["a@b.example", "--group", "paying"])
    table = tomllib.loads(result.stdout)["tenant"][0]
    assert ("a@b.example", "paying") == (table["name"], table["group"])


@pytest.mark.parametrize("arguments", [['a"b'], ["a\nb"], ["ok", "--group", ""]])
def test_names_that_cannot_be(arguments):
    result = CliRunner().invoke(tenant_key, arguments)
    assert isinstance(result.exception, UsageError)
    assert "" == result.stdout
