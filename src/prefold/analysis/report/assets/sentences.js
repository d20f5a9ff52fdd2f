// Sentences of prefold's analysis in other languages: causes and fixes, advice, routes, and places in an order.
// What stands in braces is taken over: a count, a share, a cause or any text, by the name before its underscore.

/** @type {Record<string, Record<string, string>>} */
export const SENTENCES = {
  zh: {
    "The request continues what was sent before, or shares with it all that it can.":
      "该请求接续了之前发送的内容，或已共享了所有可共享的部分。",
    "Nothing needs to be done.": "无需处理。",
    "A date or time stands in a part that should stay the same.": "日期或时间出现在本应保持不变的部分。",
    "Move it to the end of the newest message, and leave those of earlier turns as they were sent.":
      "把它移到最新消息的末尾，早先各轮的日期时间保持发送时的样子。",
    "An id, address or random value stands in a part that should stay the same.":
      "标识符、地址或随机值出现在本应保持不变的部分。",
    "Take it out of the prompt: send it as request metadata, or at the end of the newest message.":
      "把它移出提示：作为请求元数据发送，或放在最新消息的末尾。",
    "The same tools come in another order.": "同样的工具以不同的顺序出现。",
    "Sort the tools by name before they are sent.": "发送前按名称对工具排序。",
    "A tool was added, removed or renamed; tools come first, so all that follows them is read again.":
      "增加、删除或重命名了工具；工具位于最前，其后的内容都要重新读取。",
    "Send the same tools in every request and forbid those that must not be called, for example by tool_choice.":
      "每个请求都发送同样的工具，用 tool_choice 等方式禁止不该调用的工具。",
    "The same JSON value was written with its keys in another order.": "同一个 JSON 值以不同的键顺序写出。",
    "Write it once and send the same text, or sort its keys; where order carries meaning, as in the properties of a schema, decide on one order.":
      "只序列化一次并发送同样的文本，或对键排序；若顺序有含义（如模式的 properties），请固定一种顺序。",
    "The same blocks come in another order, as retrieved documents do when they are sorted by score.":
      "同样的块以不同的顺序出现，例如按得分排序的检索文档。",
    "Put them in an order that does not depend on the request, such as by id.":
      "采用不依赖请求的顺序，例如按编号排序。",
    "A block that was in the history is elsewhere now, as with a reminder that is kept at the end.":
      "历史中的一个块换了位置，例如始终放在末尾的提醒。",
    "Leave what was sent where it was, and only add behind it.": "已发送的内容留在原处，只在其后添加。",
    "The words are the same; only white space, escapes or characters that cannot be seen differ.":
      "文字相同，只有空白、转义或不可见字符不同。",
    "Write the text in one place only; let one serialiser with fixed separators write all JSON.":
      "文本只在一处书写；所有 JSON 由同一个分隔符固定的序列化器写出。",
    "The same number was written in another way.": "同一个数字以不同的方式写出。",
    "Keep numbers in one type and write them with one function.": "数字保持一种类型，并用同一个函数写出。",
    "The words differ.": "文字不同。",
    "Keep what was sent as it was, and put what is new behind it.": "已发送的内容保持原样，新内容放在其后。",
    "Earlier messages, or parts of them, were left out.": "较早的消息或其中一部分被省略。",
    "Shorten the history seldom and by much, at the same place each time, instead of a little in every turn.":
      "少截断、一次截断得多，且每次在同一位置，不要每轮截一点。",
    "Earlier messages were replaced by a summary.": "较早的消息被摘要替代。",
    "Summarise seldom, when the window is nearly full, and keep the summary from then on.":
      "尽量少做摘要，在窗口快满时进行，之后保留该摘要。",
    "Another model was asked: caches are kept for each model.": "请求了另一个模型：缓存按模型分别保存。",
    "Stay with one model within a conversation; hand side tasks to the other model as requests of their own.":
      "一个会话内使用同一模型；把旁支任务作为单独请求交给另一模型。",
    "A setting that changes the rendered prompt was changed.": "改变了会影响渲染后提示的设置。",
    "Keep it the same within a conversation.": "在一个会话内保持不变。",
    "The chat template put a default system message into one of the two.":
      "聊天模板在其中一个请求里加入了默认系统消息。",
    "Always send a system message of your own.": "始终发送自己的系统消息。",
    "The token that begins a text is there twice in one of the two.": "文本起始符在其中一个请求里出现了两次。",
    "Let either the chat template or the tokenizer add it, not both.": "由聊天模板或分词器之一添加，不要两者都加。",
    "More blocks were added in one turn than the provider looks back for an earlier breakpoint.":
      "一轮中新增的块超过了供应商向前查找断点的范围。",
    "Set an extra breakpoint before that many blocks have been added.": "在新增这么多块之前再设一个断点。",
    "More time went by than the entry lives.": "间隔时间超过了缓存项的寿命。",
    "Ask for the longer lifetime where pauses are long, or send a small request in between.":
      "间隔较长时请求更长的寿命，或在其间发送一个小请求。",
    "The common prefix is shorter than the least that the provider caches.": "公共前缀短于供应商的最小缓存长度。",
    "Put more of what stays the same in front of what changes, or do without a cache here.":
      "把更多不变的内容放在变化的内容之前，或在此不使用缓存。",
    "No cache marker stands at the end of a part that repeats.": "重复部分的末尾没有缓存标记。",
    "Set one at the end of the part that stays the same.": "在不变部分的末尾设一个标记。",
    "Everything matches, yet the provider or server no longer had the entry.":
      "内容全部匹配，但供应商或服务器已不再持有该缓存项。",
    "Give the cache more memory, pin the prefix, or send requests with the same prefix closer together.":
      "给缓存更多内存、固定该前缀，或让相同前缀的请求更集中。",
    "The request was sent to another machine than the one that holds the prefix.": "请求被发送到了不持有该前缀的机器。",
    "Send the same prompt_cache_key with all requests that share a prefix.":
      "共享前缀的所有请求使用同一个 prompt_cache_key。",
    "The two requests have different cache salts, so they must not share.": "两个请求的缓存盐不同，因此不得共享。",
    "Give requests of one tenant one salt; what all may share can lie before the salted part.":
      "同一租户的请求使用同一个盐；可供所有人共享的内容放在加盐部分之前。",
    "Input that was sent before and is computed again, and need not be: the same answers, for less.":
      "曾发送过却又被计算、本可避免的输入：同样的答案，更低的费用。",
    "Requests that an earlier one equals byte for byte: its answer can be kept.":
      "与先前请求逐字节相同的请求：其答案可以保留。",
    "First questions that differ from an earlier one in case, spacing or punctuation only. A cache that goes by meaning finds more, and can be wrong.":
      "与先前问题只在大小写、空白或标点上不同的首个问题。按语义的缓存能找到更多，但可能出错。",
    "History before the last 20 blocks of a conversation. Each time it is summarised, what follows is computed once more, and something is forgotten.":
      "会话最后 20 个块之前的历史。每次摘要后，其后的内容要再计算一次，并且会遗忘一些内容。",
    "Requests with answers of 64 tokens at most, which a smaller model may do as well; what it would cost depends on that model.":
      "答案不超过 64 个 token 的请求，更小的模型也许同样能完成；费用取决于该模型。",
    "{count} requests. {text}": "{count} 个请求。{text}",
    "Blocks that were sent before come behind other ones; the trace does not say why.":
      "曾发送过的块出现在其他块之后；该记录未说明原因。",
    "to its place by name": "到按名称排序的位置",
    "behind the other tools": "到其他工具之后",
    "behind the newest user message": "到最新的用户消息之后",
    "to the end of the system text": "到系统文本的末尾",
    "before the last paragraph": "到最后一段之前",
    "ids of the log": "日志中的编号",
    estimate: "估算",
    "estimate ({text})": "估算（{text}）",
    "Standard input": "标准输入",
    "Mend the prefix: {cause} at {text}": "修复前缀：{text} 处的{cause}",
    "Mend the prefix: {cause}": "修复前缀：{cause}",
    "{share_lost} of input is read again for it, in {count} requests; replayed with the fix, {share_gained} more is read from the cache. {text}":
      "因此有 {share_lost} 的输入在 {count} 个请求中重新读取；按修复后的内容重放，可多从缓存读取 {share_gained}。{text}",
    "{share} of input repeats, but no marker ends there.": "{share} 的输入是重复的，但没有标记在那里结束。",
  "{share} of input is cached, but ends further back than is looked.": "{share} 的输入在缓存里，但结束的位置超出了回看范围。",
    "{share} of input repeats in prefixes that are too short to be cached: put rules, tools and examples into one prefix, or ask a model with a lower minimum.":
      "{share} 的输入在过短而不能缓存的前缀中重复：请把规则、工具和示例放入同一前缀，或改用最小长度更低的模型。",
    "The cacheable share rises from {share_before} to {share_after}.":
      "可缓存的比例从 {share_before} 升至 {share_after}。",
    "{share} of input had been cached and was gone when it was asked for again: ask for the longer lifetime, or send a small request in between.":
      "{share} 的输入曾在缓存中，再次请求时已不在：请要求更长的寿命，或在其间发送一个小请求。",
    "{share} of input had been cached and was gone when it was asked for again: send a small request in between.":
      "{share} 的输入曾在缓存中，再次请求时已不在：请在其间发送一个小请求。",
    "{share} of input had been evicted when it was asked for again.": "{share} 的输入在再次请求时已被淘汰。",
    "At {count} tokens least recently used reads {share_used} from the cache, and no policy could read more than {share_most}: see how far prefold's own gets.":
      "容量为 {count} 个 token 时，最近最少使用策略从缓存读取 {share_used}，任何策略都不可能超过 {share_most}：看看 prefold 自己的策略能达到多少。",
    "{share} of input was cached on another replica than the one that was asked.":
      "{share} 的输入缓存在另一个副本上，而不在被请求的副本上。",
    "{share} of input was cached under another tenant's salt: let the salt begin behind the common part.":
      "{share} 的输入缓存在另一租户的盐之下：让盐从共同部分之后开始。",
    "One tree for all requests reads {share} more of the input from the cache than separate slots.":
      "所有请求共用一棵树，比各自独立的槽位多从缓存读取 {share} 的输入。",
    "Leave it as it is": "保持现状",
    "No step would bring one input token in a hundred.": "没有一步能带来百分之一的输入 token。",
    "Set cache markers where prefixes end": "在前缀末尾设置缓存标记",
  "Set a further cache marker in long turns": "在较长的轮次里再设一个缓存标记",
    "Bring what repeats above the minimum": "让重复部分超过最小长度",
    "Put what never changes first": "把不变的内容放在最前",
    "Keep entries longer": "延长缓存项的寿命",
    "Give the cache more room, or a tier below it": "给缓存更多空间，或增加下一级缓存",
    "Evict by what is likely to come back": "按再次使用的可能性淘汰",
    "Send requests where their prefix is": "把请求发往持有其前缀的副本",
    "Share what all tenants have in common": "共享所有租户的共同部分",
    "Share prefixes between slots": "在槽位之间共享前缀",
  },
};
