"""The rules of the lint on Python source, with all that `prefold explain` says about them."""

from __future__ import annotations

from prefold.lint.findings import Rule, Scope
from prefold.lint.source import catalog

SOURCE_RULES: tuple[Rule, ...] = (
    Rule(
        id=catalog.CLOCK,
        name="clock-in-prompt",
        scope=Scope.SOURCE,
        summary="A value from a clock flows into the stable part of a prompt.",
        why=(
            "A cached prefix ends at the first token that differs. A clock in the system prompt or in a tool "
            "differs in every request, so that everything behind it is read, and paid for, again. A date costs "
            "one miss a day, which may be worth it. A clock in the last user message costs nothing: no later "
            "request shares what follows it."
        ),
        before='system = f"Now: {datetime.now()}\\n{RULES}"\nmessages = [{"role": "user", "content": question}]',
        after='system = RULES\nmessages = [{"role": "user", "content": f"{question}\\n\\nNow: {datetime.now()}"}]',
    ),
    Rule(
        id=catalog.IDENTIFIER,
        name="random-value-in-prompt",
        scope=Scope.SOURCE,
        summary="A random value or an id of one request or session flows into the stable part of a prompt.",
        why=(
            "UUIDs, request ids, random choices, memory addresses and hashes of strings never repeat, so that no "
            "two requests, or no two processes, share what stands behind them. Ids for tracing belong in metadata"
            " or headers, where no model reads them. A random generator with a fixed seed is no problem."
        ),
        before='system = f"[{uuid.uuid4()}] {RULES}"',
        after='system = RULES\nmetadata = {"request_id": str(uuid.uuid4())}',
    ),
    Rule(
        id=catalog.SET_ORDER,
        name="set-order-in-prompt",
        scope=Scope.SOURCE,
        summary="The order of a set flows into the stable part of a prompt.",
        why=(
            "Python hashes strings with another seed in every process, so that a set of the same strings is "
            "iterated in another order after each restart, and in each replica. Within one process the order "
            "stays, which is why tests do not see it."
        ),
        before='TOPICS = {"tax", "pension"}\nsystem = "Topics: " + ", ".join(TOPICS)',
        after='TOPICS = {"tax", "pension"}\nsystem = "Topics: " + ", ".join(sorted(TOPICS))',
        is_fixable=True,
    ),
    Rule(
        id=catalog.FILE_ORDER,
        name="listing-order-in-prompt",
        scope=Scope.SOURCE,
        summary="A folder's listing, which has no fixed order, flows into the stable part of a prompt.",
        why=(
            "`os.listdir`, `glob` and `Path.iterdir` return names as the file system stores them: in another "
            "order on another machine, in another container image, or after a file was written anew."
        ),
        before='skills = [file.read_text() for file in folder.glob("*.md")]\nsystem = "\\n".join(skills)',
        after='skills = [file.read_text() for file in sorted(folder.glob("*.md"))]\nsystem = "\\n".join(skills)',
        is_fixable=True,
    ),
    Rule(
        id=catalog.UNSORTED_JSON,
        name="unsorted-json-in-prompt",
        scope=Scope.SOURCE,
        summary="`json.dumps` without sorted keys flows into the stable part of a prompt.",
        why=(
            "A dict keeps its keys in the order in which they were put in. Two dicts that are equal but were "
            "built, merged or received in another way give different text. Literals, and schemas that a class "
            "defines, have a fixed order and are not reported. Where the order of properties means something, as "
            "in a schema for structured output, fix it where the dict is built instead: `--fix` leaves alone what "
            "is named like a schema or a tool."
        ),
        before='system = "User: " + json.dumps(profile)',
        after='system = "User: " + json.dumps(profile, sort_keys=True)',
        is_fixable=True,
    ),
    Rule(
        id=catalog.QUERY_ORDER,
        name="unordered-query-in-prompt",
        scope=Scope.SOURCE,
        summary="Rows of a query without an order flow into the stable part of a prompt.",
        why=(
            "Without ORDER BY a database returns rows in the order that its plan yields, which changes after an "
            "update, a vacuum, or with another worker. Order by a column without duplicates."
        ),
        before='rows = connection.execute("SELECT name FROM tools").fetchall()',
        after='rows = connection.execute("SELECT name FROM tools ORDER BY name").fetchall()',
    ),
    Rule(
        id=catalog.MACHINE,
        name="machine-value-in-prompt",
        scope=Scope.SOURCE,
        summary="A value of the machine, the user or the process flows into the stable part of a prompt.",
        why=(
            "A host name, a process id, a working folder or a user name splits what a fleet could share: each "
            "replica and each user has a prefix of their own. A tool for one person on one machine can live with "
            "that. The output of a command such as `git status` changes with every edit: put it into a message."
        ),
        before='system = f"{RULES}\\nHost: {socket.gethostname()}"',
        after="system = RULES",
    ),
    Rule(
        id=catalog.TEMPLATE,
        name="volatile-template-head",
        scope=Scope.SOURCE,
        summary="A template has values of one request in its first lines, before long fixed text.",
        why=(
            "The classic bad template opens with the time, the request id or the user, and goes on with pages "
            "that never change. No request shares a single block with another one. The same parts in the opposite"
            " order are cached up to the last fixed word: what never changes first, then what changes per day, "
            "per session, per request."
        ),
        before='TEMPLATE = """Time: {timestamp}\nRequest: {request_id}\n\nYou are a support agent. ..."""',
        after='TEMPLATE = """You are a support agent. ...\n\nTime: {timestamp}\nRequest: {request_id}"""',
    ),
    Rule(
        id=catalog.SCORE_ORDER,
        name="score-order-in-prompt",
        scope=Scope.SOURCE,
        summary="Documents in the order of their score flow into the stable part of a prompt.",
        why=(
            "The same documents come back in another order for another question, and other questions bring other "
            "documents. In the system prompt they part every request from the next. Put them behind the fixed "
            "text, into the user message; sorted by id they are shared between questions that find the same ones."
        ),
        before='system = RULES + "\\n".join(store.similarity_search(question))',
        after="documents = sorted(store.similarity_search(question), key=lambda document: document.id)\n"
        'messages = [{"role": "user", "content": "\\n".join(document.text for document in documents) + question}]',
    ),
)
"""In order of id."""
