import anthropic
import openai
import pytest
from google import genai

from .support import Provider


@pytest.fixture
def provider():
    made = Provider()
    yield made
    made.close()


@pytest.fixture
def openai_client(provider):
    with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="sk-secret", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(provider):
    with anthropic.Anthropic(base_url=provider.url, api_key="sk-secret", max_retries=0) as client:
        yield client


@pytest.fixture
def genai_client(provider):
    with genai.Client(api_key="sk-secret", http_options={"base_url": provider.url}) as client:
        yield client
