"""The page's JavaScript modules as one script, for a page that may load nothing.

The modules are plain JavaScript that a browser could also load one by one. Only what they use is understood: named
imports from files beside them, and exported declarations, each beginning a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_IMPORT = re.compile(r'^import (\{[\w,\s]+\}) from "\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:const|class|function) (\w+))", re.MULTILINE)


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """One script that does what the module `entry` does.

    Args:
        entry: name of its file.
        read: the text of a file, by name.
    """
    written: dict[str, str] = {}

    def add(name: str) -> None:
        if name in written:
            return
        source = read(name)
        for _, needed in _IMPORT.findall(source):
            add(needed)
        exported = ", ".join(found for _, found in _EXPORT.findall(source))
        body = _EXPORT.sub(r"\1", _IMPORT.sub(r'const \1 = modules["\2"];', source))
        written[name] = f'modules["{name}"] = (() => {{\n{body}return {{ {exported} }};\n}})();\n'

    add(entry)
    return '"use strict";\nconst modules = {};\n' + "".join(written.values())
