import asyncio
import http.server
import json
import re
import shutil
import socket
import subprocess
import sysconfig
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from prefold.cli.serve import serve
from prefold.gateway.assembly import Gateway
from prefold.gateway.call import Api
from prefold.gateway.config import GatewayConfig, Kind, ReplicaTable
from prefold.gateway.gauges import MeaningReading, Reading, ReplicaReading
from prefold.gateway.handed import Handing
from prefold.gateway.meter import Metering
from prefold.providers.prices import Prices

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
CHART = DEPLOY / "helm" / "prefold"
METRIC = re.compile(r"\b(?:llm|prefold)_[a-z_]+\b")
HALVES = re.compile(r"_(?:bucket|sum|count|total|created)$")
NO_METRICS = {"prefold_log", "prefold_lock"}  # names of a field and of a fixture
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


class Silent:
    name = "request_log"
    lost = 0

    def __call__(self, record):
        pass


def busy_metering():
    """Metering in which each metric has a series, and something that makes it busier: hits are few, and no faster."""
    config = GatewayConfig(replica=(ReplicaTable(name="a", url="http://a", kind=Kind.OPENAI, models=("m",)),))
    moments = iter(range(1, 10**9))
    scrapes = iter(range(1, 10**6))
    prices = Prices.load(given="miss=2,hit=0.5,write=2.5,output=10", now=datetime(2026, 11, 30, tzinfo=UTC))

    def reading(scrape):
        bound = 0.004 if scrape == 1 else 0.02
        meaning = MeaningReading({"hit": scrape, "unsure": scrape}, 0.005, 7, 9, bound, 0.95)
        replica = ReplicaReading("a", "up", "exact", 1, 5, 1_000 * scrape)
        return Reading([replica], 5, 10, 3, {"budgets": scrape}, meaning)

    metering = Metering(
        config,
        prices,
        lambda: next(moments) / 4,
        lambda: 0.0,
        gauges=lambda: reading(next(scrapes)),
        sinks=[Silent()],
    )
    read = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}}
    computed = {"prompt_tokens": 200, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}}

    def one(usage, **end):
        meter = metering.call(Api.CHAT, "m", "t")
        if end.get("cache") != "hit":
            meter.hand_over("a", Handing.DONE, 0.5, cached=100)
            meter.sent("a", 50)
        meter.first_byte()
        meter.chunk(b"data: " + json.dumps({"usage": usage}).encode() + b"\n\n")
        meter.end(200, **end)

    def busier():
        for _ in range(200):
            one(read)
            one(computed)
        one(read, cache="hit")
        one(None)

    return metering, busier


def names_of(text):
    return {HALVES.sub("", name) for name in METRIC.findall(text)} - NO_METRICS


@pytest.fixture(scope="module")
def known_names():
    """Metrics that the gateway has, without the endings of their samples."""
    metering, busier = busy_metering()
    busier()
    return names_of(metering.render().decode())


def expressions_of_dashboard():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(
                target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*"),
                id=f"{panel['title']} {target['refId']}",
            )


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


# Names


def test_rules_and_dashboard_name_only_metrics_that_exist(known_names):
    expressions = " ".join([rule["expr"] for rule in rules()] + [each.values[0] for each in expressions_of_dashboard()])
    assert set() == names_of(expressions) - known_names


def test_the_dashboard_shows_each_metric(known_names):
    shown = names_of(" ".join(each.values[0] for each in expressions_of_dashboard()))
    assert set() == known_names - shown


def test_docs_name_only_metrics_that_exist(known_names):
    # of the engine's metrics, and fields of its API
    engine = names_of("".join(path.read_text() for path in (ROOT / "src/prefold/server").glob("*.py")))
    docs = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = {name for doc in docs for name in names_of(doc.read_text())}
    assert set() == named - known_names - engine


def test_rules_pass_over_what_engines_count_too():
    for rule in rules():
        selectors = re.findall(r"(llm_\w+|prefold_evicted_tokens_total)(\{[^}]*\})?", rule["expr"])
        assert all('replica!=""' in labels for _, labels in selectors), rule["expr"]


# Rules and dashboard


@needs_promtool
@pytest.mark.parametrize("arguments", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_has_no_complaints(arguments):
    result = subprocess.run(["promtool", *arguments], check=False, cwd=RULES.parent, capture_output=True, text=True)
    assert 0 == result.returncode, result.stdout + result.stderr


@needs_promtool
def test_promtool_has_no_complaints_about_metrics():
    metering, busier = busy_metering()
    busier()
    command = ["promtool", "check", "metrics"]
    result = subprocess.run(command, check=False, input=metering.render(), capture_output=True)
    assert (0, b"") == (result.returncode, result.stderr + result.stdout)


@needs_promtool
def test_the_configuration_of_prometheus_is_right(tmp_path):
    for file in (RULES, DEPLOY / "compose" / "prometheus.yml"):
        shutil.copy(file, tmp_path)
    command = ["promtool", "check", "config", "prometheus.yml"]
    result = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert 0 == result.returncode, result.stdout + result.stderr


def test_thresholds_are_those_of_the_analysis():
    from prefold.analysis.alerts import Thresholds  # noqa: PLC0415 - the one test that looks across

    limits = Thresholds()
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    assert f"< {limits.tenant_hit_rate}" in alerts["PrefoldTenantHitRateLow"]["expr"]
    assert f"< {limits.tenant_healthy}" in alerts["PrefoldTenantHitRateLow"]["expr"]
    assert f"{limits.tenant_minutes:g}m" == alerts["PrefoldTenantHitRateLow"]["for"]
    assert f"< {limits.hit_share}" in alerts["PrefoldHitShareLow"]["expr"]
    assert f"< {limits.hit_share_healthy}" in alerts["PrefoldHitShareLow"]["expr"]
    assert f"< {limits.ttft_gain}" in alerts["PrefoldHitsHardlyFaster"]["expr"]
    assert f"> {limits.eviction_jump:g} *" in alerts["PrefoldEvictionsJumped"]["expr"]


def test_panels_have_ids_and_places_of_their_own():
    panels = DASHBOARD["panels"]
    assert len(panels) == len({panel["id"] for panel in panels})
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert 24 > max(x for x, _ in cells)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Asks a running Prometheus that scrapes the gateway's metrics and has the rules."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs prometheus")
    metering, busier = busy_metering()
    scrapes = 0

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            nonlocal scrapes
            busier()
            body = metering.render()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            scrapes += 1

        def log_message(self, *args):
            pass

    folder = tmp_path_factory.mktemp("prometheus")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(RULES)],
                    "scrape_configs": [
                        {
                            "job_name": "gateway",
                            "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}],
                        }
                    ],
                }
            )
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:

            def ask(path, **query):
                url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
                with urllib.request.urlopen(url, timeout=10) as response:
                    return json.load(response)["data"]

            # Once the last recording rule has a rate, all have what they need.
            deadline = time.monotonic() + 60
            while True:
                try:
                    if ask("query", query="prefold:ttft_seconds:p99_1h{cache='hit'} > 0")["result"]:
                        break
                except (urllib.error.URLError, ConnectionError):
                    pass
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail((folder / "log").read_text()[-2000:])
                time.sleep(0.2)
            yield ask
        finally:
            process.terminate()
            process.wait()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("expression", list(expressions_of_dashboard()))
def test_each_panel_has_something_to_show(prometheus, expression):
    assert prometheus("query", query=expression)["result"]


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.get("alert") or rule["record"]) for rule in rules()])
def test_each_rule_has_something_to_say(prometheus, rule):
    # Five minutes ago there was nothing, so let that have been nothing.
    expression = re.sub(r"([\w:]+) offset 5m", r"(\1 * 0)", rule["expr"])
    assert prometheus("query", query=expression)["result"]


def test_prometheus_takes_the_rules(prometheus):
    assert "m" in prometheus("label/model/values")  # which the dashboard's variable lists
    (group,) = prometheus("rules")["groups"]
    assert len(rules()) == len(group["rules"])
    assert {"ok"} == {rule["health"] for rule in group["rules"]}


# Containers


def built(text, folder):
    """The configuration of a gateway that was built from a file, but not started."""
    path = folder / "gateway.toml"
    path.write_text(text)
    gateway = Gateway(
        path, {}, engine=None, state_folder=folder, prices=None, clock=time.monotonic, now=lambda: 1_800_000_000.0
    )
    asyncio.run(gateway.close())
    return gateway.app.parts.config


def test_a_gateway_can_be_built_from_its_configuration(tmp_path):
    text = (DEPLOY / "compose" / "gateway.toml").read_text()
    secret = tmp_path / "secret"
    secret.write_text("5" * 64)
    text = text.replace("/run/secrets/salt_secret", str(secret)).replace("/var/log/prefold", str(tmp_path))
    config = built(text, tmp_path)
    assert ["engine-1", "engine-2"] == [replica.name for replica in config.replica]


def compose():
    return yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())


def test_the_compose_file_follows_the_specification():
    specification = pytest.importorskip("compose_spec")
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    services = specification.PyCompose.from_yaml(text)
    services.validate()
    expected = {"gateway", "engine-1", "engine-2", "valkey", "prometheus", "grafana"}
    assert expected == set(services.service_names())


def test_what_the_compose_file_names_is_there():
    file = compose()
    containerfile = (DEPLOY / "Containerfile").read_text()
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", containerfile, re.MULTILINE))
    for service in file["services"].values():
        if "build" in service:
            assert service["build"]["target"] in stages
            assert ROOT == (DEPLOY / "compose" / service["build"]["context"]).resolve()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / "compose" / source).exists() if source.startswith(".") else source in file["volumes"]
        assert set(service["networks"]) <= set(file["networks"])
        assert set(service.get("depends_on", ())) <= set(file["services"])


def test_only_the_api_and_grafana_are_open_and_only_to_this_machine():
    ports = {name: service["ports"] for name, service in compose()["services"].items() if "ports" in service}
    assert {"gateway": ["127.0.0.1:8000:8000"], "grafana": ["127.0.0.1:3000:3000"]} == ports


def test_commands_have_the_options_that_engines_are_started_with():
    options = {name for parameter in serve.params for name in parameter.opts}
    command = compose()["services"]["engine-1"]["command"]
    assert {part.split("=")[0] for part in command if part.startswith("--")} <= options
    assert "serve" == command[0]


def test_addresses_in_configurations_are_those_of_services():
    services = set(compose()["services"])
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in scraped for each in job["static_configs"] for target in each["targets"]}
    assert {target.split(":")[0] for target in targets} <= services
    named = re.findall(r'"\w+://([\w-]+):\d+', (DEPLOY / "compose" / "gateway.toml").read_text())
    assert set(named) <= services


def test_the_container_file_copies_what_is_there():
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert copied
    assert all((ROOT / source).exists() for sources in copied for source in sources.split())


def test_hadolint_has_no_complaints():
    program = shutil.which("hadolint") or shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if program is None:
        pytest.skip("needs hadolint")
    result = subprocess.run([program, DEPLOY / "Containerfile"], check=False, capture_output=True, text=True)
    assert "" == result.stdout


# Kubernetes


@pytest.fixture(scope="module")
def chart():
    """Helm's own template engine, as a library."""
    helm = pytest.importorskip("helm_python")
    with helm.Chart.load(str(CHART)) as loaded:
        yield loaded


def rendered(chart, values=None):
    """All objects that a release has, by kind and name."""
    files = chart.render(values or {}, name="demo", namespace="prod")
    objects = [each for name, text in files.items() if name.endswith(".yaml") for each in yaml.safe_load_all(text)]
    return {(each["kind"], each["metadata"]["name"]): each for each in objects if each}


VALUES = [
    {},
    {"podMonitor": {"enabled": True, "labels": {"release": "x"}}, "networkPolicy": {"enabled": False}},
    {
        "access": {"by": "header", "saltSecret": "salt"},
        "redis": {"urlSecret": "redis"},
        "gateway": {
            "policy": "exact",
            "tokenizer": "/tokenizer",
            "extraVolumes": [{"name": "tokenizer", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "tokenizer", "mountPath": "/tokenizer"}],
            "extraConfig": '[[group]]\nname = "default"\nisolation = "isolated"\n',
        },
        "vllm": {
            "replicas": 3,
            "servedModelName": "qwen",
            "maxModelLen": 8192,
            "extraArgs": ["--dtype=bfloat16"],
            "env": [{"name": "A", "value": "b"}],
            "storage": {"className": "fast"},
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        },
    },
]


def test_helm_has_no_complaints():
    helm = pytest.importorskip("helm_python")
    found = helm.lint(str(CHART))
    assert [] == found["errors"]
    assert [] == [message for message in found["messages"] if message["severity"] > 1]


@pytest.mark.parametrize("values", VALUES)
def test_objects_follow_the_schemas_of_kubernetes(chart, values):
    kubernetes = pytest.importorskip("kubernetes_validate")
    objects = rendered(chart, values)
    own = [each for each in objects.values() if each["apiVersion"] != "monitoring.coreos.com/v1"]
    for each in own:
        kubernetes.validate(each, "1.31", strict=True)
    assert 5 <= len(own)


@pytest.mark.parametrize("values", VALUES)
def test_a_gateway_can_be_built_from_the_configuration_in_the_chart(chart, values, default_checkpoint, tmp_path):
    text = rendered(chart, values)["ConfigMap", "demo-prefold-gateway"]["data"]["gateway.toml"]
    for path, content in (("prefold-salt/salt", "5" * 64), ("prefold-redis/url", "redis://valkey:6379/0")):
        secret = tmp_path / path.replace("/", "-")
        secret.write_text(content)
        text = text.replace(f"/run/secrets/{path}", str(secret))
    config = built(text.replace('"/tokenizer"', json.dumps(str(default_checkpoint.folder))), tmp_path)
    replicas = values.get("vllm", {}).get("replicas", 2)
    assert [f"vllm-{index}" for index in range(replicas)] == [replica.name for replica in config.replica]
    assert {Kind.VLLM} == {replica.kind for replica in config.replica}


def test_the_gateway_asks_for_pods_by_the_names_that_they_have(chart):
    objects = rendered(chart)
    pods = objects["StatefulSet", "demo-prefold-vllm"]
    host = f"{pods['metadata']['name']}-1.{pods['spec']['serviceName']}"
    text = objects["ConfigMap", "demo-prefold-gateway"]["data"]["gateway.toml"]
    assert f'"http://{host}:8000"' in text
    assert f'"tcp://{host}:5557"' in text
    assert ("Service", pods["spec"]["serviceName"]) in objects


def test_selectors_find_the_pods_that_they_are_meant_for(chart):
    objects = rendered(chart, {"podMonitor": {"enabled": True}})
    pods = {
        component: objects[kind, f"demo-prefold-{component}"]["spec"]["template"]["metadata"]["labels"].items()
        for kind, component in (("Deployment", "gateway"), ("StatefulSet", "vllm"))
    }

    def found(selector):
        return [component for component, labels in pods.items() if selector.items() <= labels]

    assert ["gateway"] == found(objects["Service", "demo-prefold"]["spec"]["selector"])
    assert ["vllm"] == found(objects["Service", "demo-prefold-vllm"]["spec"]["selector"])
    policy = objects["NetworkPolicy", "demo-prefold-vllm"]["spec"]
    assert ["vllm"] == found(policy["podSelector"]["matchLabels"])
    assert ["gateway"] == found(policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"])
    for component in pods:
        monitor = objects["PodMonitor", f"demo-prefold-{component}"]["spec"]
        assert [component] == found(monitor["selector"]["matchLabels"])


def test_vllm_is_told_to_cache_and_to_tell_what_it_caches(chart):
    arguments = rendered(chart)["StatefulSet", "demo-prefold-vllm"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {"--enable-prefix-caching", "--enable-prompt-tokens-details"} <= set(arguments)
    events = json.loads(arguments[arguments.index("--kv-events-config") + 1])
    assert ("tcp://*:5557", "tcp://*:5558") == (events["endpoint"], events["replay_endpoint"])


@pytest.mark.parametrize(
    "values",
    [
        {"vllm": {"replicas": 0}},
        {"gateway": {"policy": "best"}},
        {"gatway": {}},
    ],
)
def test_wrong_values_are_refused(chart, values):
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError):
        chart.validate_schema(values)


def test_exact_routing_needs_a_tokenizer(chart):
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=r"needs gateway\.tokenizer"):
        rendered(chart, {"gateway": {"policy": "exact"}})
