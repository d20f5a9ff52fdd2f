"""Which questions are never answered by meaning, whatever the figures say: by their text alone, English and Chinese.

Each rule names what it saw by its reason. A question that is refused wrongly costs a hit; one that passes wrongly may
be given what was true yesterday, or for somebody else. So the rules for words of time and for the asker's own data lean
towards refusing, but for turns of phrase that are known to be harmless: "from now on", "my current account", "how do I
change my password".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from prefold.responses.semantic.types import Reason


@dataclass(frozen=True, slots=True)
class EligibilityOptions:
    """What may be answered by meaning though its text speaks against it.

    Attributes:
        max_characters: of a question. Longer ones carry material of their own, and an embedder reads only their start.
        time_bound: also questions whose answer changes with the day, where entries live only for minutes.
        personal: also questions about the asker, where all who ask may see the same data.
    """

    max_characters: int = 600
    time_bound: bool = False
    personal: bool = False


def ineligible(text: str, options: EligibilityOptions = EligibilityOptions()) -> Reason | None:
    """Why a question may not be answered by meaning; None where nothing in its text speaks against it.

    Returns:
        TOO_LONG, UNREADABLE, NOT_A_QUESTION, TIME_BOUND or PERSONAL, in this order; or None.
    """
    if len(text) > options.max_characters:
        return Reason.TOO_LONG
    if _UNREADABLE.search(text):
        return Reason.UNREADABLE
    if not _WORD.search(text) or _MATERIAL.search(text):
        return Reason.NOT_A_QUESTION
    text = text.translate(_PLAIN)
    if not options.time_bound and _is_time_bound(text):
        return Reason.TIME_BOUND
    if not options.personal and _is_personal(text):
        return Reason.PERSONAL
    return None


_PLAIN = {ord("’"): "'", ord("‘"): "'", ord("\n"): " ", ord("\r"): " ", ord("\t"): " ", 0xA0: " ", 0x3000: " "}


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{alternative})" for alternative in alternatives), re.IGNORECASE)


# Unreadable: what no two readers see alike. Control characters but tab and line ends, halves of surrogate pairs,
# private use, the mark of what could not be decoded, and characters that are not seen yet split or reorder words.
# Joiners stay: emoji and Persian need them.
_UNREADABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufeff\ufff0-\uffff\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_WORD = re.compile(r"[^\W_]")
_SENTENCE_END = re.compile(r"[.?!]+(?=\s|$)|[。？！]")

# Material that came along with the question, in the same text: a fence, an own paragraph, a label before a passage.
_MATERIAL = re.compile(
    r"```|~~~|\n[ \t\r]*\n|<(?:document|context|passage|text|article)\b"
    r"|^[ \t#*]*(?:context|passage|document|article|text|transcript|input|data|材料|文章|原文|上下文|文档)[ \t*]*[:：]",
    re.IGNORECASE | re.MULTILINE,
)


def _sentences(text: str) -> list[str]:
    return _SENTENCE_END.split(text)


# What is true only for a while

_HARMLESS_TIME = _any(
    r"\bfrom now on\b",
    r"\b(?:by|for|until|till|just) now\b",
    r"\bnow that\b",
    r"\b(?:but|and|so) now\b",
    r"\bknow (?:right )?now\b",
    r"\bwhat (?:do|should|can|must|could) (?:i|we) (?:do|try) (?:right )?now\b",
    r"\b(?:how (?:do|can|could|should) (?:i|we)|(?:can|could|may) (?:i|we)) (?!(?:see|watch|go|visit|travel|fly"
    r"|swim)\b)"
    r"[^.?!]{0,60}\bnow\b",
    r"\bcurrent (?:accounts?|address|password|pin|e-?mail|phone|number|card|bank|employer|name|assets|liabilit)",
    r"\b(?:direct|alternating|electric(?:al)?|ocean) currents?\b",
    r"\b(?:daylight|today's) (?:world|youth)\b",
    r"\bat the latest\b",
    r"\bpast (?:present|perfect|tense|participle)\b",
)
_NEWEST = _any(
    r"\b(?:current|presently|latest|newest|up[- ]to[- ]date|up to the minute)\b|\bmost (?:recent|current)(?:ly)?\b",
    r"\bas of\b|\bstill (?:open|alive|raining|president|in office)\b|\bnext (?:holiday|election|game|match|season"
    r"|train|bus|flight|ferry|tram|departure|show|concert|episode|release|update|launch|eclipse|full moon)\b",
)
_UNIT = r"(?:minute|hour|day|week|month|year)s?"
_WEEKDAY = r"(?:sun|mon|tues|wednes|thurs|fri|satur)day"
_THE_DAY = _any(
    r"\b(?:now|nowadays|today|tonight|tomorrow|yesterday|currently|recent|recently|these days|so far|earlier)\b",
    r"\bat (?:the|this) (?:moment|present|point|time)\b",
    r"\b(?:this|coming) (?:week|weekend|month|quarter|year|season|morning|afternoon|evening|spring|summer|autumn"
    rf"|fall|winter|christmas|easter|{_WEEKDAY})\b",
    rf"\b(?:last|past|next) (?:night|week|weekend|month|quarter|year|summer|winter|season|{_WEEKDAY})\b",
    rf"\bin (?:the )?(?:next|coming) (?:few |\w+ )?{_UNIT}\b|\b{_UNIT} ago\b|\bin \d+ days\b",
)
_OFFICE = (
    r"(?:president|prime minister|chancellor|king|queen|monarch|pope|minister|secretary|governor|mayor|senator|speaker"
    r"|ambassador|ceo|cto|cfo|chief executive|chair(?:man|woman|person)?|head of (?:state|government)|leader|owner"
    r"|coach|captain|champion|record holder|richest (?:man|woman|person))"
)
"""What is held by somebody until somebody else holds it."""
_GOODS = r"(?:bitcoins?|btc|ethereum|eth|crypto|gold|silver|oil|gas|petrol|diesel|dollar|euro|pound|yen|yuan)"
"""What has another price every day."""
_FEASTS = r"(?:christmas|easter|ramadan|eid|diwali|hanukkah|passover|lent|thanksgiving|halloween|(?:chinese )?new year)"
_FIRST_PERSON = re.compile(r"\b(?:i|we|i've|we've|i'm|im|we're|i'd|i'll|my|our|me)\b", re.IGNORECASE)
_ASKED = _any(
    r"^\W*(?:(?:please|and|so|hi|hey|hello|ok|okay|can you|could you)\W+)*(?:who|whose|what|when|where|which|is|are"
    r"|was|were|did"
    r"|does|has|will|how (?:much|many|long|is|are|was|did|busy|safe)|do|show|tell|give|list|find|check|any"
    r"|summari[sz]e)\b",
    r"\b(?:to|don't|didn't) (?:know|see|hear|find out)\b|\bwonder|\b(?:who|what's|what is|which|how much|how many)\b",
)
_LIVE = _any(
    r"\bwhat(?:'?s| is| was)? (?:the )?(?:exact )?(?:time|date|day)(?: is it)?(?: (?:in|at)\b.*)?\W*$",
    r"\bwhat (?:time|day|date|month|year) (?:is it|it is|would it|will it|it will)\b|\bhow late is it\b|\b(?:time"
    r"|date|day) (?:is it|it is)\b",
    r"\b(?:tell|give) me (?:what )?(?:the )?(?:time|date|day)\b|\btime is it\b",
    r"\b(?:(?<!between )weather|forecast|temperature (?:outside|in|at)|humidity|chance of (?:rain|snow)|air quality)\b",
    r"\bwill it (?:rain|snow|be (?:hot|cold|sunny|windy|cloudy|warm))|\bis it (?:raining|snowing|(?:hot|cold) (?:out"
    r"|in))\b",
    r"\b(?:stock|share|bitcoin|btc|ethereum|crypto|gold|oil|gas) prices?\b|\bprice of (?:bitcoin|gold|oil|gas"
    r"|\w+ stock)\b",
    r"\bhow (?:is|are|'s) (?:the )?\w+ (?:stocks?|shares?) (?:doing|trading)\b|\btrading at\b",
    r"\b(?:the|any|breaking|top) (?:news|headlines)\b|\bheadlines\b|\btraffic (?:on|in|like|to|jam)\b|\bhow(?:'s"
    r"| is) (?:the )?traffic\b",
    r"\bwhat(?:'s| is| are) (?:the |your )?(?:\w+ ){0,2}exchange rates?\b(?! (?:based|calculated|set|determined|work"
    r"|come))|\bhow (?:many|much) \w+ (?:is|are|for|in|do) .*\bworth\b",
    r"\bwho won the (?:game|match)\b|\b(?:wait|wait time) at\b|\btrending\b|\b(?:sunrise|sunset|(?:high|low) tide)\b",
    r"\bwhat(?:'s| is| was) the score\b|\bscore (?:of|in|for) (?:the )?[^.?!]{0,30}\b(?:game|match|final)\b"
    r"|\bwho(?:'s| is) (?:winning|leading|ahead|playing)\b",
    rf"\bwho(?:'?s| is| are)\b (?:the |our )?(?:[\w'-]+ ){{0,3}}{_OFFICE}s?\b|\bwho (?:runs|leads|heads|chairs|owns)\b",
    rf"\bhow much (?:is|are|does|do) (?:an? |the |one )?(?:\w+ )?{_GOODS}(?: worth| cost| trading)?\W*$",
    r"(?:^|[.?!,])\W*(?:is|are) (?!my\b|our\b)[\w.' -]{1,40} (?:down|offline|delayed|cancell?ed|sold out|on strike"
    r"|(?:in|out of) stock|crowded|busy|running late|up and running)\W*$",
    r"(?:\b(?:is|are) there (?:an?|any)|^\W*any) (?:\w+ )?(?:outages?|delays?|disruptions?|closures?|strikes?|queues?"
    r"|roadworks|vacanc(?:y|ies)|(?:seats?|tickets?) left)\b",
    rf"\bhow many {_UNIT}(?: are there| is it| are left)? (?:(?:until|till|since) (?!(?:my|i|we|it|the|you)\b)"
    rf"|(?:to|before) {_FEASTS}\b)",
    rf"\b(?:when(?:'s| is)|how long (?:is it )?(?:until|till|to|before)) {_FEASTS}\b",
)
_OFFICE_ZH = (
    r"(?:总统|总理|首相|主席|国王|女王|教皇|州长|省长|市长|部长|总裁|董事长|首席执行官|ceo|校长|主教练|队长|首富)"
)
_NOW_ZH = re.compile(
    r"今天|今日|今晚|今早|今夜|今年|明天|明日|明晚|明年|昨天|昨日|昨晚|前天|后天|去年|本周|本月|本年|本季|这周|这个?星期"
    r"|这个?月|上周|上个?月|上个?星期|下周|下个?月|下个?星期|最新|最近|近期|近日|现在|目前|当前|眼下|如今|此刻|此时|刚刚|刚才|截至|截止到"
    r"|这会儿?|这阵子|这几天|今儿|明儿|昨儿|实时|现任|现价|几点[了钟]?(?:[？?]|$)|(?<!第)几号|星期几|周几|天气|气温|下雨|股价|汇率|油价|金价|(?:什么|哪些|今日|头条|看)新闻|头条|热搜|路况"
    rf"|{_OFFICE_ZH}(?:是|叫)(?:谁|哪[位个]|什么名字)|谁是[^，。？！,?!]{{0,12}}{_OFFICE_ZH}"
    r"|[离距][^，。？！,?!]{1,12}(?:几|多少)(?:天|周|个?星期|个?月|年|小时)|还[有剩](?:几|多少)天[^，。？！,?!]{0,8}(?:[？?]|$)"
    r"|下一(?:班|趟|场|届)|堵(?:车|不堵)(?:[吗么没？?]|$)|(?:晚点|延误|停电|停运|停水|有货|缺货|售罄|开门|营业|开着|关门)了?[吗么没]",
    re.IGNORECASE,
)
_HARMLESS_ZH = re.compile(
    r"从现在起|今年\d{1,3}岁|[出体表呈实]现在|从现在开始|从今以后|最近的(?!新|一次)|当前(?:密码|地址|页面|目录)"
)


def _is_time_bound(text: str) -> bool:
    if _NOW_ZH.search(_HARMLESS_ZH.sub("", text)) or _LIVE.search(text):
        return True
    text = _HARMLESS_TIME.sub(" ", text)
    # "I ordered it last week" tells a story; "who won last week" asks for what changes.
    return _NEWEST.search(text) is not None or any(
        _THE_DAY.search(sentence) and (_ASKED.search(sentence) or not _FIRST_PERSON.search(sentence))
        for sentence in _sentences(text)
    )


# What only the asker's data can tell

_IDENTIFIER = _any(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b",  # IBAN
    r"\b(?:\d[ -]?){12,18}\d\b",  # cards, identity cards
    r"\+\d[\d ().-]{7,}\d\b|\(\d{3}\) ?\d{3}[ .-]?\d{4}\b|\b\d{3}[.-]\d{3}[.-]\d{4}\b",  # phones
    r"(?<![\d.,$€£¥])1[3-9]\d{9}(?!\d)|\b\d{3}-\d{2}-\d{4}\b",  # Chinese mobiles, American social security
    r"(?<![\d.,$€£¥])(?!\d0+(?!\d))\d{8,}(?![\d.,]?\d)",
    r"\b(?:order|ticket|case|claim|invoice|booking|tracking|confirmation|reference|ref|account|acct|policy|customer"
    r"|member(?:ship)?|patient|loan|transaction)\b(?: (?:number|no|id|code|ref)\b)?\.?[ :#]*"
    r"(?:is )?#?(?=[\w-]*\d{4})[a-z0-9-]+\b",
    r"(?:订单|单号|账号|卡号|工单|保单|尾号|身份证)[^\d。，？]{0,6}[a-z]*\d{4,}",
)
_MINE = r"(?:my|our|mine|ours)"
_GENERAL = _any(
    # "Why was my payment declined" is asked by many and answered alike: by the reasons that there can be.
    r"\bwhy\b|\bhow (?:do|can|could|should|would|to|(?:i|we) (?:do|can|could|should|would))\b|\b(?:way|steps) to\b",
    r"\b(?:where (?:do|can|could)|can|could|may|should) (?:i|we)\b|\bwhat (?:happens|if)\b|\bin case\b",
    r"如何|怎么(?!样)|怎样|能不能|能否|可以.{0,8}吗|为什么|办法|步骤|流程",
)
_BEGINS = r"(?:^|[,;:]\W*|\b(?:know|tell me|see|check|whether|if|and|please|hi|hello|hey|so|ok|actually)\W+)"
_OWN = _any(
    # "What is my balance", "where's my order": its value is asked for, whatever it is
    r"\b(?:what|where|when|who|how (?:much|high|low|big|old|full|late))(?:'?s| is| are|'re|re| was| were) (?:all )?"
    rf"{_MINE}\b(?! (?:best|options?|rights?|remedies|chances?|next steps?)\b| \w+ (?:accepted|accessible|valid"
    rf"|usable)\b)",
    rf"\bwhat (?:amount|day|month|date|time|year|kind|status|percentage) (?:is|are|was|were) (?:(?:in|on"
    rf"|at) )?{_MINE}\b",
    rf"\bwhat(?:'?s| is| are| was) (?![^.?!]*\b(?:fees?|charges?)\b)[^.?!]{{0,40}}\b(?:in|on|at|from|for) {_MINE} "
    rf"(?:\w+ ){{0,3}}(?:account"
    r"|list|calendar|schedule|agenda|card|bill|statement|balance|insurance|plan|policy|car|loan|order|to-?dos?|cart"
    r"|paycheck)s?\b",
    rf"\b(?:status|whereabouts) (?:of|on) {_MINE}\b",
    # "Did my payment arrive", "is my card on its way", "when will my refund come"
    rf"{_BEGINS}(?:did|has|have|hasn't|haven't|didn't) {_MINE}\b",
    rf"{_BEGINS}(?:is|are|was|were|isn't|wasn't) {_MINE} [\w' ]{{1,40}}\b(?:arriv\w+|processed|approved|shipped"
    rf"|delivered|declined"
    r"|rejected|paid|posted|cleared|refunded|received|late|ready|due|delayed|on (?:its|the) way|overdue|overdrawn"
    r"|expired"
    r"|confirmed|cancell?ed|scheduled|active|pending|completed?|high|low|full|enough|good|clear|free|open)\b",
    rf"\bwhen (?:will|does|do|did) {_MINE}\b|\bwhen (?:will|did|do|can) (?:i|we) (?:\w+ )?(?:get|receive|expect"
    rf"|have) {_MINE}\b",
    r"\b(?:did|has) (?:the|a) (?:payment|refund|transfer|deposit|order|package)\b[^.?!]{0,40}\b(?:arrived?"
    r"|gone? through|clear(?:ed)?"
    r"|post(?:ed)?|come|shipped)\b",
    # "How much do I owe", "what did I spend", "am I overdrawn"
    r"\bhow (?:much|many)\b[^.?!]{0,40}\b(?:do|did|have) (?:i|we) (?:\w+ )?(?:have\b(?! to\b)|had|owe|spend|spent"
    r"|used?|left|got"
    r"|made?|earn(?:ed)?|taken?|paid|saved?|accumulated)",
    rf"\bhow (?:much|many)\b[^.?!]{{0,40}}(?:\b(?<!can )i have\b(?! to\b)|\bi've\b|\bi (?:owe|spent|had)\b"
    rf"|\b(?:left|is|are|there) (?:in|on) {_MINE}\b)",
    r"\bwhat (?:do|did) (?:i|we) (?:owe|spend|buy|order|earn|make|weigh)\b|\bdo (?:i|we) owe\b(?! my)",
    r"(?<!who )(?<!options )(?<!choices )(?<!rights )\bdo (?:i|we) have\b(?! to\b)",
    rf"{_BEGINS}(?:have i|did i) (?:\w+ )?(?:paid|pay|got|get|spent|spend|been (?:paid|charged|approved)|used?"
    rf"|miss(?:ed)?|receive"
    r"|received|order|ordered|buy|earn|taken?)\b",
    r"\bam i (?:overdrawn|eligible|approved|late|behind|registered|enrolled|signed up|covered|insured|scheduled|due"
    r"|in debt|over)\b",
    # "Which plan am I on", "is there anything on my calendar", "what did they say about my results"
    r"\b(?:which|what) [\w' ]{1,30} (?:am|are|was|were) (?:i|we) (?:on|in|with|at|using|paying|enrolled|subscribed"
    r"|registered|assigned)\b",
    rf"\b(?:is|are|was|were) there (?:any\w*|something)\b(?![^.?!]*\b(?:fees?|charges?|costs?|limits?|ways?)\b)"
    rf"[^.?!]{{0,30}}\b(?:on {_MINE}\b|(?:in|for) {_MINE} (?:account|calendar|inbox|cart|basket|list|name|wallet)\b)",
    r"\bwho (?:else )?(?:has(?! to\b)|had|used|opened|changed|viewed|accessed|called|is using|was using)\b"
    rf"[^.?!]{{0,30}}\b{_MINE}\b",
    r"\bwhat (?:did|does|has|have) [^.?!]{1,30}\b(?:say|said|write|written|decided?|find|found|recommend(?:ed)?)\b"
    rf"[^.?!]{{0,20}}\b(?:{_MINE}|me|us)\b",
    # "Show my transactions", "tell me my balance", "I want to know my limit"
    r"^\W*(?:(?:please|can|could|would|will|you|just|hey|hi|hello|ok|so|i|we|need|want|like|i'd|id|wanna|to|let|help"
    r"|for)\W+){0,8}"
    r"(?:show|check|tell|give|list|read|look up|pull up|bring up|view|(?<!i )see|display|know|confirm|look at"
    r"|go over|track)"
    rf" (?:me |us )?(?!back\b)(?:[\w']+ ){{0,4}}{_MINE}\b",
    rf"(?<!can't )(?<!cannot )(?<!lost )\b(?:find|locate|track) (?:down )?{_MINE} (?:phone|package|order|parcel"
    rf"|luggage|delivery|shipment|keys|car)\b",
)
_SAID = _any(
    # What the asker says of the asker
    r"\bmy (?:name|birthday|social security(?: number)?|ssn|address|phone number|e-?mail(?: address)?|password|pin"
    r"|account number"
    r"|card number|diagnosis)(?:'s| is|:) (?!(?:not|wrong|incorrect|blocked|compromised|changed?|expired|stolen"
    r"|locked|displayed"
    r"|invalid|the|still|being|correct)\b)\w",
    r"\bmy (?:age|weight|height|income|salary)(?:'s| is|:) (?:about |around )?[$€£]?\d",
    r"(?<!if )(?<!when )(?<!once )(?<!after )\b(?:i am|i'm|im) (?:a |an )?(?:\d{1,3}(?:[- ]year|[- ]yo\b|[^\w%$£€.]"
    r"|$)|pregnant"
    r"|diabetic|disabled|asthmatic|epileptic|autistic|hiv|unemployed|divorced|widowed|bankrupt|allergic to)",
    r"(?<!if )(?<!when )\bi (?:have|suffer from) (?:\w+ ){0,2}(?:diabetes|asthma|cancer|hiv|epilepsy|depression|adhd"
    r"|arthritis|dementia|(?:high|low) blood pressure|hypertension)\b",
    r"(?<!if )\bi (?:make|earn|weigh) (?:about |around )?[$€£]?\d|\bi (?:was|have been|got|am) diagnosed\b"
    r"|\bcall me (?!(?:an?|by|back|when|if)\b)\w",
)
_OWN_ZH = re.compile(
    r"(?:我|我们|咱)的?(?:[^，。？！,?!]{0,8})(?:余额|订单|快递|包裹|物流|工资|账单|积分|信用分|额度|账户|账号|帐户|帐号|退款|转账|付款|还款"
    r"|欠款|贷款|保单|申请|预约|航班|行程|年假|成绩|密码|卡|合同|体检报告|化验单)(?:[^，。？！,?!]{0,10})"
    r"(?:多少|在哪|到哪|到了|到账|到没|什么时候|何时|查|几|是什么|怎么样|吗|呢|没有|了没|状态|进度|详情|列表)"
    r"|(?:查|看|显示|告诉我)(?:一下|询|看|下)?我的|我(?:们)?(?:还|一共|总共|现有)?(?:有|欠|剩|花|用)了?(?:多少|几)"
    r"|(?:我|我们|咱)的[^，。？！,?!]{1,10}(?:是哪|在哪|到哪|什么时候|何时|哪天|几号|几点|到期|过期)[^，。？！,?!]{0,8}"
    r"|我(?:已经|刚|现在)?(?:怀孕|怀上|确诊|得了|患有|患了|被诊断|查出|失业|离婚|对[^，。？！,?!]{1,6}过敏)"
    r"|我(?:今年|已经)?\d{1,3}岁|我(?:姓|叫|的名字是)\w|我的(?:身份证|手机号|电话|邮箱|地址)(?:号码?)?(?:是|为|[:：])"
)


def _is_personal(text: str) -> bool:
    if _IDENTIFIER.search(text) or _SAID.search(text):
        return True
    return any(
        (_OWN.search(sentence) or _OWN_ZH.search(sentence)) is not None and not _GENERAL.search(sentence)
        for sentence in _sentences(text)
    )
