"""Tells answers that only say why there is none, English and Chinese: by how they begin."""

from __future__ import annotations

import re

_BEGINNING = 240
"""Characters in which an answer that refuses has said so."""

_CANNOT = (
    r"(?:can(?:'t|not| not)|could(?:n't| not)|(?:am|'m) (?:unable|not able)|won't|will not|must decline|do not|don't)"
)
_DO = (
    r"(?:to )?(?:help|assist|provide|answer|comply|fulfil+|do (?:that|this)|discuss|share|give|offer|support|create"
    r"|generate|write"
    r"|produce|engage|participate|continue|complete|process|access|browse|see|view|check|look up|verify|have "
    r"(?:access|the ability"
    r"|real[- ]time|(?:enough )?information|personal|details|any information))"
)
_REFUSES = re.compile(
    # Nothing stands before it but regret: "I cannot recommend it enough" within an answer is none.
    r"\A\W*(?:(?:well|unfortunately|regrettably|oh|thank you[^.,!]{0,40}|thanks[^.,!]{0,40}|as an? (?:ai"
    r"|language model|assistant)"
    r"[^.,]{0,60}|(?:i'm|i am|we're|we are) (?:so |very |really |truly )?(?:sorry|afraid)(?: to [^.,]{0,40})?|"
    r"(?:my )?(?:apologies|sorry)"
    r"|i apologi[sz]e(?: for[^.,]{0,60})?)\b[\s,.;:!—-]*(?:but|that|however)?[\s,]*){0,2}"
    rf"(?:i|we)(?: (?:simply|really|just|currently|also|do))? ?{_CANNOT} (?:currently |directly |really )?{_DO}\b"
    r"|\A\W*(?:i'm|i am) (?:so |very |really )?(?:sorry|afraid)\b[^.!?]{0,120}\b(?:can't|cannot|can not|unable"
    r"|not able|won't)\b"
    r"|\A\W*as an? (?:ai|artificial intelligence|(?:large )?language model)\b[^.!?]{0,120}\b(?:can't|cannot|unable"
    r"|not able|don't|do not)\b"
    r"|\A\W*(?:sorry|unfortunately)\b[^.!?]{0,40}\b(?:i|we) (?:can't|cannot|am unable|'m unable|don't have)\b"
    r"|\A\W*(?:this|that|your) (?:request|question|content) (?:violates|goes against|is against|cannot be)\b",
    re.IGNORECASE,
)
_REFUSES_ZH = re.compile(
    r"\A\W*(?:(?:很|非常|十分|实在)?(?:抱歉|对不起|不好意思|遗憾)[^。！？]{0,40}(?:无法|不能|没办法|没法|不可以|不便(?:回答|提供|透露|讨论|评论)|不会|没有权限|没有足够)"
    r"|(?:作为|身为)一?[个名]?[^，。]{0,12}(?:AI|人工智能|语言模型|助手|助理)[^。！？]{0,40}(?:无法|不能|没办法|没有)"
    r"|(?:我|目前|暂时)[^，。！？]{0,6}(?:无法|不能|没办法|没法)(?:为您|为你|给您|给你)?(?:提供|回答|协助|帮助|帮|满足|完成|访问|查询|查看|讨论))",
    re.IGNORECASE,
)


def refuses(text: str) -> bool:
    """Whether an answer begins by saying that it gives none."""
    beginning = text[:_BEGINNING].replace("’", "'")
    return _REFUSES.search(beginning) is not None or _REFUSES_ZH.search(beginning) is not None
