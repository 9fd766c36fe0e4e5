"""One run of `taskspec bench`: finds the model, warms up, and measures the levels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from core.errors import ConfigError
from core.text.prompts import Prompt
from serve_app.client import BadAnswer, Client, Unreachable, own_names
from serve_app.load.sending import Level, Load, Measured, Mode, NumberedPrompt, Streams, warm_up_size
from serve_app.terminal.progress import Bar

LEAST_REQUESTS = 32
REQUESTS_PER_STREAM = 4
SECONDS_OF_ARRIVALS = 20
MODES: dict[str, tuple[Mode, ...]] = {"on": ("on",), "off": ("off",), "both": ("on", "off")}
UNAUTHORISED, NOT_FOUND, REFUSED = (401, 403), 404, (400, 405, 413, 415, 422)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run; `requests` is per level and mode, None for a number that suits the level."""

    levels: tuple[Level, ...]
    requests: int | None
    temperature: float
    seed: int
    max_tokens: int
    speculation: Literal["on", "off", "both"]

    @property
    def modes(self) -> tuple[Mode, ...]:
        return MODES[self.speculation]

    def number(self, level: Level) -> int:
        """The number of questions at a level."""
        if self.requests is not None:
            return self.requests
        if isinstance(level, Streams):
            return max(LEAST_REQUESTS, REQUESTS_PER_STREAM * level.streams)
        return max(LEAST_REQUESTS, math.ceil(SECONDS_OF_ARRIVALS * level.arrivals_per_s))

    @property
    def questions(self) -> int:
        """The number of questions of all levels, warm-ups included."""
        return sum(warm_up_size(level) + self.number(level) for level in self.levels)

    @property
    def requests_sent(self) -> int:
        return sum(warm_up_size(level) + self.number(level) * len(self.modes) for level in self.levels)


class LoadRun:
    """One run. `measured`, and `card`, the server's description of its model, are filled as it proceeds."""

    def __init__(
        self, url: str, model: str | None, key: str | None, prompts: Sequence[Prompt], settings: Settings
    ) -> None:
        self.model = model
        self.card: dict[str, Any] = {}
        self.measured: list[Measured] = []
        self.url = url
        self.prompts = prompts
        self.settings = settings
        self._key = key
        self._listed: list[str] = []

    async def go(self, bar: Bar) -> None:
        """Run all levels.

        Raises `ConfigError` if the server refuses the requests, and `BadAnswer` if it fails before a level begins.
        """
        async with Client(self.url, self._key) as client:
            try:
                self.model = await self._find_model(client)
                await self._levels(client, bar)
            except BadAnswer as error:
                raise self._advised(error) from error

    async def _levels(self, client: Client, bar: Bar) -> None:
        settings = self.settings
        fields = {"model": self.model, "temperature": settings.temperature, "max_tokens": settings.max_tokens}
        load = Load(client, fields, settings.seed, bar.advance)
        self.measured = load.measured
        questions = itertools.starmap(NumberedPrompt, enumerate(itertools.cycle(self.prompts)))
        for level in settings.levels:
            bar.label(f"{level}: warming up")
            warm = await load.warm_up(list(itertools.islice(questions, warm_up_size(level))))
            if settings.speculation != "on" and not any("speculation" in answer.usage for answer in warm):
                raise _no_speculation(self.url)
            bar.label(str(level))
            await load.measure(level, list(itertools.islice(questions, settings.number(level))), settings.modes)

    async def _find_model(self, client: Client) -> str:
        """The requested model, or else the only one that the server lists."""
        try:
            cards = {str(card.get("id")): card for card in await client.models()}
        except BadAnswer as error:
            if error.status != NOT_FOUND or self.model is None:  # some servers list no models, but answer
                raise
            return self.model
        self._listed = list(cards)
        own = own_names(cards.values())
        if self.model is None and len(own) != 1:
            raise ConfigError(f"{self.url} serves {self._models}; choose one with --model")
        model = self.model or own[0]
        self.card = cards.get(model, {})
        return model

    @property
    def _models(self) -> str:
        return ", ".join(self._listed) or "no model in its list"

    def _advised(self, error: BadAnswer) -> Exception:
        if isinstance(error, Unreachable):
            return ConfigError(
                f"nothing answers at {self.url} ({error}).\n"
                "Start a service (`taskspec serve`), or give the base URL of one that runs: http://HOST:PORT/v1"
            )
        if error.status in UNAUTHORISED:
            wrong = "does not accept the API key in" if self._key else "requires an API key: put it in"
            return ConfigError(f"{self.url} {wrong} the environment variable OPENAI_API_KEY ({error.status})")
        if error.status == NOT_FOUND:
            return ConfigError(
                f"{self.url}: {error}\nIt serves {self._models}. Choose one with --model, or give another base URL; "
                "most end in /v1."
            )
        if error.status in REFUSED:
            return ConfigError(f"{self.url} refuses the requests: {error}\nChange that option, or the prompts.")
        return error


def _no_speculation(url: str) -> ConfigError:
    return ConfigError(
        f"{url} reports no speculation, so this command cannot turn it off.\n"
        "Omit --speculation, and measure two services, one with it and one without."
    )
