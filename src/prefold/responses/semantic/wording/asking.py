"""What kind of thing a question asks for, and the words that only say that it is one."""

from __future__ import annotations

import re
from enum import StrEnum


class Asked(StrEnum):
    """What the answer has to be."""

    HOW = "how"
    CAN = "can"
    PRICE = "price"
    LONG = "long"
    MANY = "many"
    OFTEN = "often"
    OLD = "old"
    FAR = "far"
    WHEN = "when"
    WHERE = "where"
    WHO = "who"
    WHY = "why"
    WHICH = "which"
    WHAT = "what"
    WHETHER = "whether"
    DO = "do"


_I = r"(?:i|we|you|one|u|he|she|they|people|someone|somebody|my|our)"
_OPENING = r"how|what|where|when|why|who|can|could|do|does|is|are|i"
_BEST = r"best|right|correct|easiest|quickest|fastest|proper|simplest|good|easy|quick|simple"
_WAY = r"way|ways|steps|process|procedure|method|instructions"

_FRAMES: tuple[tuple[Asked | None, str], ...] = (
    # Said around a question
    (None, rf"(?:good )?(?:morning|afternoon|evening) (?=(?:{_OPENING})\b)"),
    (None, r"(?:many )?thanks(?: in advance| a lot| so much)?"),
    (None, r"thank you(?: very much| so much| in advance)?|in advance"),
    (None, r"(?:sorry to (?:bother|trouble) you|(?:sorry )?silly question)(?: but)?"),
    (None, r"(?:quick (?:question|one)|just wondering)(?: but)?"),
    (None, r"i (?:have|had|have got) a (?:quick )?question(?: about| regarding)?"),
    (None, r"(?:can|could|would|will) you (?:please )?(?:tell|show|advise|let|explain to|help) (?:me|us)(?: know)?"),
    (None, r"(?:can|could|may|would) (?:i|you) (?:please )?(?=(?:ask|explain|clarify|describe)\b)"),
    (None, r"(?:please )?(?:tell|show|give|let|help) (?:me|us)(?: know)?"),
    (None, r"(?:do you|does anyone|would you) (?:happen to )?know"),
    (None, r"(?:i am |i was |am )?(?:just )?trying to (?:find out|figure out|understand|work out)(?: about)?"),
    (None, r"(?:i am |i was |am )?(?:just )?(?:wondering|curious)(?: about)?"),
    (None, r"i (?:would like|want|need|wish|would love) to (?:know|find out|understand|learn|ask)(?: about)?"),
    (None, r"i do not (?:know|understand)|i am not sure|not sure|any idea|any chance|is there any chance|if possible"),
    # What is asked for
    (Asked.PRICE, (r"(?:what|how much) (?:does it|is it going to|will it|would it|do i have to pay)(?: to)?"
     r"(?: cost| pay)?(?: me)?")),
    (Asked.PRICE, r"(?:what|how much) (?:am i charged|will i be charged)"),
    (Asked.PRICE, (r"how much (?:is|are|does|do|will|would|can|should)(?: i| we| you| it)?"
     r"(?: cost| pay| charge| be charged)?")),
    (Asked.PRICE, (r"(?:what|which) (?:is|are|would be|will be)? ?(?:the|your|my)? ?"
     r"(?=(?:cost|price|fee|charge|fare|rate)s?\b)")),
    (Asked.PRICE, r"how (?:much|expensive)"),
    (Asked.LONG, (r"how (?:long|many (?:days|weeks|months|minutes|hours|years))"
     r" (?:does|do|will|would|should|is|are|can)(?: it| i| we)?(?: take)?")),
    (Asked.LONG, r"how long"),
    (Asked.MANY, r"how many|what (?:is the )?number of"),
    (Asked.OFTEN, r"how (?:often|frequently|regularly)|how many times"),
    (Asked.OLD, r"how old|what age"),
    (Asked.FAR, r"how far"),
    (Asked.WHEN, r"(?:at |by |from |until )?what (?:time|date|day|year|hour)s?"),
    (Asked.WHEN, r"when|how (?:soon|late|early)"),
    (Asked.WHERE, r"where(?:abouts)?|in (?:what|which) (?:place|location)|what (?:place|location)"),
    (Asked.WHO, r"who|whom|whose|(?:what|which) person"),
    (Asked.WHY, r"why|how come|what (?:is the reason|causes?|caused|makes?)(?: for| that)?"),
    (Asked.WHY, r"for what reason|what are the reasons"),
    (Asked.HOW, (rf"how (?:do|does|did|can|could|would|should|might|shall|to)(?: {_I}\b)?"
     r"(?: (?:go about|manage to|best|actually)\b)?(?: (?:do|get) (?:that|this|it|so)\b)?")),
    (Asked.HOW, (r"(?:(?:what is|what are|is there|are there|what would be|do you have|show me|i need) )?"
     rf"(?:(?:the|a|an|any|some) )?(?:(?:{_BEST}) )?(?:{_WAY}) (?:to|of|for|i can|that i can)"
     r"(?: (?:do|go about)\b)?(?: (?:i|we|you)\b)?")),
    (Asked.HOW, r"what (?:do i need|do i have|should i do|must i do|can i do|do i do)(?: to| for)?"),
    (Asked.HOW, r"what steps (?:do|should) i (?:need to )?take(?: to| for)?"),
    (Asked.HOW, rf"(?:the )?(?:(?:{_BEST}) )?way (?:to|of)|steps (?:to|for)|guide (?:to|for)"),
    (Asked.HOW, r"instructions (?:to|for|on)"),
    (Asked.HOW, r"how"),
    (Asked.CAN, rf"(?:can|could|may) {_I}(?: still| also| please| just)*"),
    (Asked.CAN, (r"(?:is it|would it be|it is) (?:possible|allowed|permitted|ok|okay|alright|fine|legal)"
     r"(?: for (?:me|us))?(?: to| if i| for)?")),
    (Asked.CAN, r"(?:am|are|is) (?:i|we|you) (?:able|allowed|permitted|entitled|supposed) to"),
    (Asked.CAN, r"(?:is|are) there (?:an? )?(?:option|possibility) to"),
    (Asked.WHICH, r"which"),
    (Asked.WHAT, (r"what(?: (?:is|are|was|were|does|do|did|will|would|should|can))?"
     r"(?: (?:the|a|an|i|we|you|my|your|it)\b)*")),
    (Asked.DO, r"i (?:would like|want|need|wish|would love|have) to"),
    (Asked.WHETHER, r"(?:is|are|was|were) (?:there|it|this|that|these|those)(?: (?:any|a|an)\b)?"),
    (Asked.WHETHER, (r"^(?:do|does|did|is|are|was|were|will|would|should|has|have|had|am)\b"
     r"(?: (?:i|we|you|it|they|he|she)\b)?")),
)  # fmt: skip
"""Patterns of words, the first that fits counts, and what a question with them asks for; None for mere politeness."""

_STARTS = (
    rf"how|wh|can|could|may|wo?ul?d|will|do|did|is|are|was|were|am|i|any|not|if|please|tell|show|give|let|help|good|morn|"
    rf"aft|eve|many|thank|in|sorry|silly|quick|just|cur|try|the|some|an?\b|at|by|from|until|for|should|ha[sd]|have|step|"
    rf"guide|instr|{_BEST}|{_WAY}"
)
"""How the patterns begin: most words of a question need not be tried against each."""

_FRAME = re.compile(
    rf"\b(?={_STARTS})(?:"
    + "|".join(rf"(?P<f{number}>(?:{pattern})\b)" for number, (_, pattern) in enumerate(_FRAMES))
    + ")"
)


def asked_for(tokens: list[str]) -> tuple[frozenset[Asked], list[str]]:
    """The kinds of question in a row of tokens, and the tokens without the words that only say so."""
    found: set[Asked] = set()

    def read(match: re.Match[str]) -> str:
        asked, _ = _FRAMES[int((match.lastgroup or "f0")[1:])]
        if asked is not None:
            found.add(asked)
        return " "

    kept = _FRAME.sub(read, " ".join(tokens)).split()
    return frozenset(found or {Asked.DO}), kept
