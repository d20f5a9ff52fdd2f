# snippet: 客服机器人把时间写进系统提示
from datetime import datetime

from openai import OpenAI

客户端 = OpenAI(base_url="https://api.deepseek.com")


def 回答(问题: str) -> str:
    系统提示 = f"你是一名客服人员。当前时间：{datetime.now():%Y-%m-%d %H:%M}。请用简体中文回答。"  # expect: PF301
    结果 = 客户端.chat.completions.create(
        model="deepseek-chat",
        messages=[{"role": "system", "content": 系统提示}, {"role": "user", "content": 问题}],
    )
    return 结果.choices[0].message.content


# snippet: 模板开头带有会话编号
import uuid

import dashscope

模板 = "会话编号：{编号}\n你是一位中医药知识助手，回答时请引用典籍，并提醒用户遵医嘱。"


def ask(question):
    系统 = 模板.format(编号=str(uuid.uuid4()))  # expect: PF302
    return dashscope.Generation.call(
        model="qwen-max", messages=[{"role": "system", "content": 系统}, {"role": "user", "content": question}]
    )


# snippet: 占位符由调用方填写
from openai import OpenAI

client = OpenAI(base_url="https://dashscope.aliyuncs.com/compatible-mode/v1")

SYSTEM_TEMPLATE = """当前时间：{当前时间}  # expect: PF308
你是某电商平台的售后助手。请先确认订单号，再说明退换货的条件、期限和运费由谁承担；涉及质量问题时请安抚客户情绪，并引导客户上传照片。不要承诺平台规则之外的赔偿，也不要透露内部流程。
"""


def ask(问题, 时间):
    return client.chat.completions.create(
        model="qwen-plus",
        messages=[
            {"role": "system", "content": SYSTEM_TEMPLATE.format(当前时间=时间)},
            {"role": "user", "content": 问题},
        ],
    )


# snippet: 集合转成列表
from zhipuai import ZhipuAI

client = ZhipuAI()
技能 = {"翻译", "润色", "摘要"}


def ask(问题):
    说明 = "你会：" + "、".join(技能)  # expect: PF303
    return client.chat.completions.create(
        model="glm-4-plus", messages=[{"role": "system", "content": 说明}, {"role": "user", "content": 问题}]
    )


# snippet: 知识库目录
import os

from openai import OpenAI

client = OpenAI()


def 读取知识库(目录: str) -> str:
    return "\n".join(open(os.path.join(目录, 名), encoding="utf-8").read() for 名 in os.listdir(目录))  # expect: PF304


def ask(问题):
    return client.responses.create(model="gpt-5", instructions="资料：\n" + 读取知识库("资料"), input=问题)


# snippet: 时间放在最后一条用户消息里
from datetime import datetime

from openai import OpenAI

client = OpenAI()
系统提示词 = "你是一名法律咨询助手，回答前先说明适用的法条。"


def ask(问题):
    return client.chat.completions.create(
        model="qwen-max",
        messages=[
            {"role": "system", "content": 系统提示词},
            {"role": "user", "content": f"{问题}\n（现在是 {datetime.now()}）"},
        ],
    )


# snippet: 排序后的集合
from zhipuai import ZhipuAI

client = ZhipuAI()
技能 = {"翻译", "润色", "摘要"}


def ask(问题):
    说明 = "你会：" + "、".join(sorted(技能))
    return client.chat.completions.create(
        model="glm-4-plus", messages=[{"role": "system", "content": 说明}, {"role": "user", "content": 问题}]
    )


# snippet: 日志里的时间
import logging
from datetime import datetime

from openai import OpenAI

日志 = logging.getLogger(__name__)
client = OpenAI()


def ask(问题):
    日志.info("请求时间 %s", datetime.now())
    return client.responses.create(model="gpt-5", instructions="你是一名导游。", input=问题)
