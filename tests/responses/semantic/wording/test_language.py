"""Languages of short texts."""

import pytest

from prefold.responses.semantic.wording.language import language_of


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "How do I block my card?"),
        ("en", "block card"),
        ("en", "las vegas weather"),
        ("en", "is there a no-code tool for a café"),
        ("de", "Wie kann ich meine Karte sperren?"),
        ("es", "¿Cómo puedo cambiar mi contraseña?"),
        ("fr", "Comment changer mon mot de passe ?"),
        ("it", "come posso cambiare la mia password"),
        ("nl", "Hoe kan ik mijn wachtwoord wijzigen"),
        ("zh", "如何重置 Kubernetes Pod?"),
        ("ja", "パスワードを変更する方法"),
        ("ko", "비밀번호 변경 방법"),
        ("cyrillic", "как заблокировать карту"),
        ("devanagari", "कार्ड कैसे ब्लॉक करें"),
        ("", "10-4"),
        ("", ""),
    ],
)
def test_language(language, text):
    assert language == language_of(text)


def test_only_the_beginning_of_a_long_text_is_read():
    assert language_of("how do I " * 100 + "как " * 10_000) == "en"
