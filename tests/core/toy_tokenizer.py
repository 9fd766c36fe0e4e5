"""Two small tokenizers made on the spot: a trained byte-level BPE, and characters with byte fallback."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

EOS = "<eos>"
END_OF_TURN = "<eot>"
TEXT = (
    "the end. END of the story; stop here, stop there, and again the end! ",
    "中文字符 中文 和 émigré 🙂🙃 naïve ",
) * 20


@cache
def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=[EOS, END_OF_TURN], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


@cache
def byte_fallback() -> Tokenizer:
    """Llama-2's kind: pieces with a leading block for a space, and 256 byte tokens whose ids are the bytes."""
    pieces = ["▁", "a", "b", "▁a", "▁stop", "中", EOS]
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {piece: 256 + at for at, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.add_special_tokens([EOS])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def one_byte(byte: int) -> int:
    """The byte-level token that is this byte alone."""
    return int(byte_level().token_to_id(byte_char(byte)))


def byte_char(byte: int) -> str:
    """How byte-level vocabularies write a byte: printable ones as themselves, the others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [other for other in range(256) if other not in printable]
    return chr(byte) if byte in printable else chr(256 + hidden.index(byte))
