"""Which calls, attributes and names of Python programs make values that vary, and which take the variation away.

Names are dotted and absolute, as imports make them. What a table does not name is taken for harmless: a linter that
cries wolf is switched off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

CLOCK, IDENTIFIER, SET_ORDER, FILE_ORDER, UNSORTED_JSON, QUERY_ORDER, MACHINE, TEMPLATE, SCORE_ORDER = (
    f"PF{number}" for number in range(301, 310)
)
ORDER_RULES = frozenset({SET_ORDER, FILE_ORDER, QUERY_ORDER, SCORE_ORDER})
"""Rules about an order that varies: sorting mends it, counting ignores it."""


def words(text: str) -> frozenset[str]:
    """The words of a text, which is how the tables here are written."""
    return frozenset(text.split())


# Functions whose result varies.

DAILY_CLOCKS = words(
    """datetime.date.today pendulum.today pendulum.yesterday pendulum.tomorrow django.utils.timezone.localdate"""
)
"""Clocks that show the day only."""

_CALLS = {
    CLOCK: """
        datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today time.time time.time_ns time.strftime
        time.ctime time.asctime time.localtime time.gmtime time.monotonic time.monotonic_ns time.perf_counter
        time.perf_counter_ns time.process_time pendulum.now arrow.now arrow.utcnow arrow.get django.utils.timezone.now
        django.utils.timezone.localtime pandas.Timestamp.now pandas.Timestamp.today pandas.Timestamp.utcnow
        whenever.Instant.now whenever.ZonedDateTime.now email.utils.formatdate
        """,
    IDENTIFIER: """
        uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid.getnode os.urandom builtins.id builtins.hash shortuuid.uuid
        shortuuid.random nanoid.generate ulid.new ulid.ULID bson.ObjectId bson.objectid.ObjectId tempfile.mkdtemp
        tempfile.mkstemp tempfile.mktemp tempfile.NamedTemporaryFile tempfile.TemporaryDirectory threading.get_ident
        threading.get_native_id
        """,
    FILE_ORDER: "os.listdir os.scandir os.walk os.fwalk glob.glob glob.iglob",
    MACHINE: """
        os.getpid os.getppid os.getcwd os.getcwdb os.getlogin os.getuid os.uname os.cpu_count getpass.getuser
        socket.gethostname socket.getfqdn platform.node platform.uname platform.platform platform.version
        platform.release pathlib.Path.cwd pathlib.Path.home psutil.virtual_memory psutil.cpu_percent psutil.Process
        """,
}
_RULE_OF_CALL: Mapping[str, str] = MappingProxyType(
    {name: rule for rule, names in _CALLS.items() for name in names.split()} | dict.fromkeys(DAILY_CLOCKS, CLOCK)
)

_RANDOM_MODULES = ("random.", "secrets.", "numpy.random.")
"""Everything called in these is random, except what `_STEADY_RANDOM` names."""
_STEADY_RANDOM = words("seed getstate setstate compare_digest shuffle")
GENERATORS: Mapping[str, str] = MappingProxyType(
    {
        "random.Random": "random",
        "random.SystemRandom": "random",
        "secrets.SystemRandom": "random",
        "numpy.random.default_rng": "numpy.random",
        "numpy.random.RandomState": "numpy.random",
    }
)
"""Makers of random generators, which are steady with a seed, and the module that their methods are like."""

COMMAND_CALLS = words(
    """subprocess.run subprocess.check_output subprocess.getoutput subprocess.getstatusoutput subprocess.Popen os.popen
    asyncio.create_subprocess_exec asyncio.create_subprocess_shell asyncio.subprocess.create_subprocess_exec
    asyncio.subprocess.create_subprocess_shell"""
)
"""Functions that run a command and hand back its output, or something that has it."""
_LIVE_COMMANDS = words(
    """git hg svn gh date hostname whoami who w id uname pwd ls dir ps df du free uptime top tree find env printenv
    ifconfig ip lsof last systemctl journalctl sysctl sw_vers nproc lscpu nvidia-smi kubectl docker vmstat iostat
    netstat ss tail dmesg"""
)
"""Commands that show the state of a machine, a checkout or a cluster at one moment; others may print fixed text."""
_STEADY_ARGUMENTS = words("show config --version --help ls-files")
"""Arguments with which they print something that hardly varies."""

# Methods, attributes and keys that vary whatever their object is.

DIRECTORY_METHODS = words("iterdir rglob")
"""Methods that only paths have; `glob` is looked at with its receiver."""
MACHINE_VARIABLES = words("USER USERNAME LOGNAME HOME HOSTNAME PWD POD_NAME COMPUTERNAME HOST TMPDIR")
"""Environment variables that differ between machines and users; others are configuration."""
IDENTIFIER_ATTRIBUTES = words(
    """request_id aws_request_id correlation_id trace_id span_id session_id session_key req_id x_request_id
    client_request_id nonce traceparent"""
)
"""Attributes of framework objects that name one request or session."""
IDENTIFIER_HEADERS = re.compile(
    r"x-request-id|x-correlation-id|x-trace-id|traceparent|x-amzn-trace-id|(?:request|trace|session|correlation)[-_]id",
    re.IGNORECASE,
)

# Queries and retrieval.

QUERY_METHODS = words("order_by order sort_by sort_values sort_index orderby")
"""Methods that give rows an order."""
SINGLE_ROW_METHODS = words(
    """first last get one one_or_none scalar scalar_one scalar_one_or_none fetchone count exists aget afirst acount
    latest earliest fetchval fetchrow get_or_404 delete create bulk_create rowcount nunique"""
)
"""Methods after which the order of rows no longer matters."""
SQL_METHODS = words("execute executemany fetch fetch_all fetchall raw read_sql read_sql_query iterate sql")
"""Methods that take SQL text."""
_SELECT = re.compile(r"\bselect\b(?P<columns>.*?)\bfrom\b", re.IGNORECASE | re.DOTALL)
_AGGREGATE = re.compile(r"\s*(?:count|sum|avg|min|max|exists)\s*\([^)]*\)\s*(?:as\s+\w+\s*)?", re.IGNORECASE)
_ORDERED = re.compile(r"\border\s+by\b|\blimit\s+1\b", re.IGNORECASE)
_BY_KEY = re.compile(
    r"\bwhere\s+(?:\w+\.)?(?:id|uuid|pk|\w+_id)\s*=\s*(?:%s|\?|:\w+|\$\d+|\d+)\s*;?\s*$", re.IGNORECASE
)
RETRIEVAL_METHODS = words(
    """similarity_search asimilarity_search similarity_search_with_score similarity_search_with_relevance_scores
    similarity_search_by_vector max_marginal_relevance_search get_relevant_documents aget_relevant_documents
    hybrid_search vector_search semantic_search near_text near_vector query_points rerank"""
)
"""Methods that return documents by score."""
RETRIEVER_METHODS = words("invoke ainvoke retrieve aretrieve search query search_documents batch")
"""The same, of an object whose name says that it retrieves."""
RETRIEVER_NAME = re.compile(
    r"retriev|vector|(?:^|_)index$|embedding|knowledge_base|chroma|qdrant|faiss|milvus|pinecone|(?:^|_)kb$",
    re.IGNORECASE,
)
SCORE_NAME = re.compile(r"score|similarity|distance|relevance|rank\b", re.IGNORECASE)

# The order of keys.

JSON_DUMPS = words("json.dumps simplejson.dumps ujson.dumps orjson.dumps rapidjson.dumps")
FIXED_ORDER_CALLS = words(
    """dataclasses.asdict dataclasses.fields json.load json.loads yaml.safe_load yaml.load tomllib.load tomllib.loads
    builtins.int builtins.float"""
)
"""Functions whose result has its keys in an order that the program or a file fixes."""
FIXED_ORDER_METHODS = words(
    """model_dump model_json_schema model_dump_json schema schema_json json_schema _asdict asdict get_json_schema
    to_json_schema read_text strip lower upper"""
)

# What passes variation on.

_PASSING_BUILTINS = words("round abs bytes bytearray ascii divmod chr bin hex oct int float format pow slice")
_PASSING_MODULES = tuple(
    words(
        """
        textwrap. html. string. copy. json. orjson. ujson. simplejson. yaml. base64. hashlib. binascii. datetime.
        time. calendar. itertools. functools. pprint. inspect.cleandoc os.path. os.fspath pathlib. urllib.parse.
        babel. humanize. jinja2. re.sub toml. tomli_w. pandas. sqlalchemy. zoneinfo. pytz. markdown. operator. uuid.
        collections. email.utils. dateutil. tabulate. asyncio.gather asyncio.wait_for asyncio.to_thread
        django.utils. pendulum. arrow. unicodedata. types. langchain_core.prompts. prettytable.
        """
    )
)
"""Modules whose functions return what varies as their arguments do."""
PASSING_METHODS = words(
    """format format_map format_messages format_prompt substitute safe_substitute render render_async join replace
    partial strftime localize astimezone combine fromtimestamp utcfromtimestamp isoformat from_template from_string
    scalars scalar execute stream sub extend insert union build hexdigest digest all"""
)
"""Methods whose result varies as their arguments do."""
PASSING_NAME = re.compile(
    r"^_?(?:format|render|build|fmt|to_|as_|dump|stringify|join|make|compose|wrap|dedent|escape|concat|assemble|text$)"
)
"""Functions outside the project with such names do the same."""

# What takes it away.

CONTENT_METHODS = words(
    "read_text read_bytes open read readlines exists is_file is_dir stat load load_template get_template bit_length"
)
"""Methods for what lies behind a path or name."""
CONTENT_CALLS = words(
    """builtins.open builtins.hasattr builtins.callable builtins.type builtins.issubclass os.path.exists os.path.isfile
    os.path.isdir os.path.getsize json.load yaml.safe_load tomllib.load subprocess.run subprocess.check_output
    logging.getLogger os.makedirs os.mkdir io.open codecs.open"""
)
"""Functions for the same, and those whose result does not vary as their arguments do."""
STEADY_ATTRIBUTES = words("year month tzinfo tz tzname zone version suffix suffixes utcoffset quarter")
"""Attributes of clocks and paths that hardly vary."""
NAME_ATTRIBUTES = words("name stem parts")
"""Attributes of paths that do not depend on the machine, but on the order of a listing."""
DAILY_ATTRIBUTES = words("day day_of_week day_of_year week")
DAILY_METHODS = words(
    """date weekday isoweekday isocalendar toordinal to_date_string start_of day_name to_formatted_date_string"""
)
_TIME_DIRECTIVE = re.compile(r"%[-#]?[HIMSfpcXTRrsZ]")
_DAY_DIRECTIVE = re.compile(r"%[-#]?[djaAuwUWVxDFe]")


def is_unordered_select(sql: str) -> bool:
    """Whether SQL text returns several rows in an order that the database may change."""
    select = _SELECT.search(sql)
    if select is None or _ORDERED.search(sql) or _BY_KEY.search(sql):
        return False
    return _AGGREGATE.fullmatch(select["columns"]) is None


def is_live_command(arguments: Sequence[str]) -> bool:
    """Whether a command's output is the state of something at one moment."""
    program = arguments[0].rsplit("/", 1)[-1] if arguments else ""
    return program in _LIVE_COMMANDS and _STEADY_ARGUMENTS.isdisjoint(arguments[1:2])


def granularity(pattern: str) -> str:
    """What a `strftime` pattern shows of a clock: "time", "day", or "none" for months and years."""
    if _TIME_DIRECTIVE.search(pattern):
        return "time"
    return "day" if _DAY_DIRECTIVE.search(pattern) else "none"


def call_rule(name: str) -> str | None:
    """The rule about the result of a function, None if it does not vary."""
    is_random = name.startswith(_RANDOM_MODULES) and name.rsplit(".", 1)[-1] not in _STEADY_RANDOM
    return IDENTIFIER if is_random else _RULE_OF_CALL.get(name)


def passes_on(name: str) -> bool:
    """Whether the result of a function outside the project varies as its arguments do."""
    root, _, rest = name.partition(".")
    if root == "builtins":
        return rest in _PASSING_BUILTINS
    return name.startswith(_PASSING_MODULES) or PASSING_NAME.match(name.rsplit(".", 1)[-1]) is not None
