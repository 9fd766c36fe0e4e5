"""Text that leaves piece by piece is the text of the whole, up to the first stop string."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from core.text.detokenizer import TextStream
from core.tools.call_spans import AnswerForm
from core.tools.markers import MARKS
from tests.core.toy_tokenizer import EOS, byte_char, byte_fallback, byte_level, one_byte

BYTE_LEVEL = byte_level()
BYTE_FALLBACK = byte_fallback()
WORDS = ["the end", " END", "stop", "中文", "🙂", " é", "st", "op", "。", "\ufffd", "a"]
BYTE_LEVEL_TOKENS = st.lists(
    st.sampled_from(WORDS).map(lambda word: BYTE_LEVEL.encode(word).ids)
    | st.integers(0, BYTE_LEVEL.get_vocab_size() - 1).map(lambda token: [token]),
    max_size=12,
).map(lambda parts: [token for part in parts for token in part])


def stream(tokenizer: Tokenizer, tokens: list[int], *stop: str) -> tuple[list[str], TextStream]:
    text = TextStream(tokenizer, stop)
    return [text.push(token) for token in tokens], text


def whole(tokenizer: Tokenizer, tokens: list[int], *stop: str) -> str:
    pieces, text = stream(tokenizer, tokens, *stop)
    return "".join(pieces) + text.flush()


@settings(max_examples=300)
@given(BYTE_LEVEL_TOKENS)
def test_pieces_of_any_tokens_join_to_their_decoding(tokens: list[int]) -> None:
    assert whole(BYTE_LEVEL, tokens) == BYTE_LEVEL.decode(tokens)


@settings(max_examples=300)
@given(BYTE_LEVEL_TOKENS, st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), min_size=1, max_size=3))
def test_the_text_ends_before_the_first_stop_string_at_the_token_that_completes_it(
    tokens: list[int], cuts: list[tuple[int, int]]
) -> None:
    stop = {BYTE_LEVEL.decode(tokens)[at : at + length] for at, length in cuts} | {"END"}
    assume(all(string and "\ufffd" not in string for string in stop))
    expected, ended = BYTE_LEVEL.decode(tokens), None
    for count in range(1, len(tokens) + 1):
        text = BYTE_LEVEL.decode(tokens[:count])
        starts = [text.find(string) for string in stop if string in text]
        if starts:
            expected, ended = text[: min(starts)], count
            break
    text_stream, given_out = TextStream(BYTE_LEVEL, tuple(stop)), ""
    for count, token in enumerate(tokens, start=1):
        given_out += text_stream.push(token)
        assert expected.startswith(given_out)
        assert text_stream.stopped == (ended is not None and count >= ended)
    assert given_out + text_stream.flush() == expected


@settings(max_examples=200)
@given(st.lists(st.sampled_from([*range(256, 263), 0x41, 0xC3, 0xA9]), max_size=10))
def test_byte_fallback_joins_to_its_decoding_where_bytes_are_valid(tokens: list[int]) -> None:
    text = BYTE_FALLBACK.decode(tokens)
    assume("\ufffd" not in text)
    assert whole(BYTE_FALLBACK, tokens) == text


def test_byte_fallback_keeps_a_finished_character_when_invalid_bytes_follow() -> None:
    tokens = [*"中".encode(), 0xE4, BYTE_FALLBACK.token_to_id("▁a"), BYTE_FALLBACK.token_to_id("b")]
    assert BYTE_FALLBACK.decode(tokens) == "\ufffd\ufffd\ufffd\ufffd ab"
    assert stream(BYTE_FALLBACK, tokens)[0] == ["", "", "中", "", "\ufffd a", "b"]


def test_byte_fallback_ends_inside_a_character_after_a_finished_one() -> None:
    assert whole(BYTE_FALLBACK, [*"中".encode(), 0xE4, 0xB8]) == "中\ufffd\ufffd"


def test_leading_spaces_of_words_survive() -> None:
    a, stop, space = (BYTE_FALLBACK.token_to_id(piece) for piece in ("▁a", "▁stop", "▁"))
    assert stream(BYTE_FALLBACK, [a, a, space, space, stop])[0] == ["a", " a", " ", " ", " stop"]


def test_a_character_across_three_tokens_comes_out_whole() -> None:
    assert stream(BYTE_LEVEL, [one_byte(byte) for byte in "字".encode()])[0] == ["", "", "字"]


def test_an_unfinished_character_at_the_end_becomes_the_replacement_character() -> None:
    pieces, text = stream(BYTE_LEVEL, [*BYTE_LEVEL.encode("stop").ids, one_byte(0xE4)])
    assert "".join(pieces) == "stop"
    assert text.flush() == "\ufffd"
    assert text.flush() == ""


def test_text_before_an_unfinished_character_does_not_wait_for_it() -> None:
    tokens = [*BYTE_LEVEL.encode("a").ids, one_byte(0xE4), one_byte(0xB8), one_byte(0xAD)]
    assert stream(BYTE_LEVEL, tokens)[0] == ["a", "", "", "中"]


def test_special_tokens_leave_no_text() -> None:
    eos = BYTE_LEVEL.token_to_id(EOS)
    assert whole(BYTE_LEVEL, [eos, *BYTE_LEVEL.encode("the end").ids, eos]) == "the end"
    assert TextStream(BYTE_LEVEL, skip_special_tokens=False).push(eos) == EOS


def test_a_possible_beginning_of_a_stop_string_waits_and_comes_out_when_it_was_none() -> None:
    tokens = [one_byte(byte) for byte in b"xaabaaz"]
    pieces, text = stream(BYTE_LEVEL, tokens, "aabaac")
    assert pieces == ["x", "", "", "", "", "", "aabaaz"]
    assert not text.stopped


def test_an_overlapping_beginning_is_not_lost() -> None:
    pieces, text = stream(BYTE_LEVEL, [one_byte(byte) for byte in b"aaab!"], "aab")
    assert text.stopped
    assert "".join(pieces) + text.flush() == "a"


def test_a_stop_string_held_back_at_the_end_comes_out_with_flush() -> None:
    pieces, text = stream(BYTE_LEVEL, [one_byte(byte) for byte in b"the EN"], "END")
    assert "".join(pieces) == "the "
    assert text.flush() == "EN"


def test_of_two_stop_strings_in_one_token_the_earlier_wins() -> None:
    stop = BYTE_FALLBACK.token_to_id("▁stop")
    assert whole(BYTE_FALLBACK, [257, stop, 257], "op", "to") == "a s"


def test_a_stop_string_is_seen_at_its_token_even_when_a_character_begins_behind_it() -> None:
    tokenizer = Tokenizer.from_str(BYTE_LEVEL.to_str())
    tokenizer.add_tokens(["END" + byte_char(0xE4)])
    joined = tokenizer.token_to_id("END" + byte_char(0xE4))
    pieces, text = stream(tokenizer, [*tokenizer.encode("a").ids, joined], "END")
    assert (pieces, text.stopped) == (["a", ""], True)


def test_the_stop_string_can_be_kept_as_far_as_it_is_one() -> None:
    tokens = BYTE_LEVEL.encode("and again the END of it").ids
    for stop, expected in (
        (("END of",), "and again the END of"),
        (("END o", "END"), "and again the END"),
        (("the END", "END"), "and again the END"),
    ):
        text = TextStream(BYTE_LEVEL, stop, include_stop=True)
        assert "".join(map(text.push, tokens)) + text.flush() == expected
        assert text.stopped


@given(BYTE_LEVEL_TOKENS, BYTE_LEVEL_TOKENS)
def test_a_marked_token_stands_in_the_text_as_its_mark_and_no_stop_string_goes_across(
    before: list[int], after: list[int]
) -> None:
    end = BYTE_LEVEL.token_to_id(EOS)
    assume(end not in before + after)
    marked, mark = AnswerForm({end: "<think>"}), MARKS["<think>"]
    text = TextStream(BYTE_LEVEL, ("\ufffe\ufffe",), form=marked)
    given_text = "".join(map(text.push, [*before, end, *after])) + text.flush()
    assert given_text == BYTE_LEVEL.decode(before) + mark + BYTE_LEVEL.decode(after)
    across = TextStream(BYTE_LEVEL, ("ab",), form=marked)
    tokens = [one_byte(ord("a")), end, one_byte(ord("b"))]
    assert "".join(map(across.push, tokens)) + across.flush() == f"a{mark}b"
