"""Tokens and key: read again when they change, last good kept, never shown."""

import hmac
import io

import pytest
from farmproxy.config import tokens
from farmproxy.config.settings import SettingsError
from farmproxy.config.tokens import Tokens
from farmproxy.observe import logs


@pytest.fixture
def lines():
    return io.BytesIO()


@pytest.fixture
def log(lines):
    return logs.configure(lines)


def replace(path, text):
    """As Kubernetes swaps a Secret's files: another inode under the same name."""
    fresh = path.with_name("fresh")
    fresh.write_text(text)
    fresh.rename(path)


def test_no_file_means_no_token_asked(log):
    none = Tokens("", "", log)
    assert not none.required
    assert none.check("anything") is None
    assert none.agent_key is None


def test_tokens_have_names(tmp_path, log):
    file = tmp_path / "tokens"
    file.write_text("# who\n\n ops : s3cret:with:colons \nci:t2\nci:t3\n")
    known = Tokens(str(file), "", log)
    assert known.required
    assert [known.check(token) for token in ("s3cret:with:colons", "t2", "t3")] == ["ops", "ci", "ci"]
    assert [known.check(token) for token in ("", "t", "t22", "ops", "\ud800", "t2 ")] == [None] * 6


def test_every_token_is_compared_whichever_matches(tmp_path, log, monkeypatch):
    file = tmp_path / "tokens"
    file.write_text("a:1\nb:2\nc:3\n")
    known = Tokens(str(file), "", log)
    compared, real = [], hmac.compare_digest

    def counting(one, other):
        compared.append(len(other))
        return real(one, other)

    monkeypatch.setattr(tokens.hmac, "compare_digest", counting)
    for presented in ("1", "3", "wrong", "w" * 10_000):
        compared.clear()
        known.check(presented)
        assert compared == [32, 32, 32]


def test_a_change_is_seen_within_a_second(tmp_path, log, clock):
    file, key = tmp_path / "tokens", tmp_path / "key"
    file.write_text("a:old\n")
    key.write_text("key-1\n")
    known = Tokens(str(file), str(key), log, clock)
    replace(file, "a:new\n")
    replace(key, "key-2\n")
    assert (known.check("old"), known.agent_key) == ("a", "key-1")  # not looked at more than once a second
    clock.now += 1
    assert (known.check("old"), known.check("new"), known.agent_key) == (None, "a", "key-2")


@pytest.mark.parametrize("damage", ["gone", "wrong", "empty", "binary", "directory"])
def test_the_last_good_content_stands_and_is_logged_once(tmp_path, log, lines, clock, damage):
    file = tmp_path / "tokens"
    file.write_text("a:s3cret\n")
    known = Tokens(str(file), "", log, clock)
    file.unlink()
    if damage == "wrong":
        file.write_text("s3cret\n")
    elif damage == "empty":
        file.write_text("")
    elif damage == "binary":
        file.write_bytes(b"\xff\xfe")
    elif damage == "directory":
        file.mkdir()
    for _ in range(5):
        clock.now += 1
        assert known.check("s3cret") == "a"
    text = lines.getvalue().decode()
    assert text.count("file-kept-last-good") == 1
    assert "s3cret" not in text


def test_a_mended_file_is_taken_up(tmp_path, log, clock):
    file = tmp_path / "tokens"
    file.write_text("a:1\n")
    known = Tokens(str(file), "", log, clock)
    file.unlink()
    clock.now += 1
    known.check("1")
    file.write_text("a:2\n")
    clock.now += 1
    assert known.check("2") == "a"


@pytest.mark.parametrize("content", ["", "# only a comment\n", "noname\n", ":t\n", "n:\n", "a:t\nb:t\n"])
def test_a_start_with_a_wrong_file_fails_without_showing_it(tmp_path, log, content):
    file = tmp_path / "tokens"
    file.write_text(content)
    with pytest.raises(SettingsError, match="FARMPROXY_TOKENS_FILE") as caught:
        Tokens(str(file), "", log)
    assert "noname" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "two words\n", "é\n", "a\nb\n"])
def test_a_key_is_one_header_value(tmp_path, log, content):
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(SettingsError, match="FARMPROXY_AGENT_KEY_FILE"):
        Tokens("", str(file), log)


def test_a_missing_file_stops_the_start(tmp_path, log):
    with pytest.raises(SettingsError, match="cannot be read"):
        Tokens(str(tmp_path / "none"), "", log)
