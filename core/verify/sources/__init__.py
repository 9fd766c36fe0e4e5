"""Sources of proposals beside the draft, each a file named after it.

    grammar      what the grammar of the answer leaves no choice in
    own_text     what followed the last tokens earlier in the session's own text
    answers      what followed them in earlier answers of the same client
    prediction   the answer that the client expects

A source guesses after every pass what a session's next tokens are (`source.ProposalSource`). `choice` compares the
guesses with what the next pass commits, proposed or not, so the chance of a guess is measured without a row of the
target. It proposes the guess of which most tokens are expected to be accepted, as far as they are worth their rows.

To add a source:

1.  Write `core/verify/sources/NAME.py` with a class that has the two methods of `source.ProposalSource`.
2.  Add its line to `SOURCES`. Of guesses with equal prospects, the source that stands first proposes.
3.  Switch it on: `lookup: {NAME: true}` in a service's configuration, or `{NAME: {argument: value}}` with arguments of
    its class. Usage, metrics and traces count it by its name.

tests/core/verify/sources/test_new_source.py adds one in this way, and shows that it changes no token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.errors import ConfigError
from core.verify.sources.answers import EarlierAnswers
from core.verify.sources.grammar import ForcedTokens
from core.verify.sources.own_text import OwnText
from core.verify.sources.prediction import ClientPrediction
from core.verify.sources.source import ProposalSource

SourceOptions = Mapping[str, Mapping[str, Any]]
"""The sources that are switched on, by name, each with the arguments of its class."""

SOURCES: dict[str, Callable[..., ProposalSource]] = {
    "grammar": ForcedTokens,
    "own_text": OwnText,
    "answers": EarlierAnswers,
    "prediction": ClientPrediction,
}
DEFAULT: SourceOptions = {"grammar": {}, "own_text": {}, "answers": {}, "prediction": {}}
DRAFTS_ALONE: SourceOptions = {}


def made(options: SourceOptions) -> dict[str, ProposalSource]:
    """The sources that are switched on, in the order of `SOURCES`. Raises `ConfigError` for one that does not exist."""
    unknown = sorted(options.keys() - SOURCES.keys())
    if unknown:
        raise ConfigError(f"no source of proposals is called {unknown[0]!r}; there are {', '.join(SOURCES)}")
    try:
        return {name: make(**options[name]) for name, make in SOURCES.items() if name in options}
    except TypeError as error:
        raise ConfigError(f"a source of proposals takes no such arguments: {error}") from error
