"""The colours of sources: whoever sees few colours tells them apart, and text on them can be read."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.tree import ROOT

Colour = NDArray[np.float64]  # red, green, blue from 0 to 1
CSS = ROOT / "serve_app" / "console" / "static" / "page.css"
KINDS = ("draft", "lookup", "grammar", "own")
DISTANCE = 16.0  # in CIELAB; 2.3 is just noticed when the two lie side by side
CONTRAST = 3.0  # WCAG's for lines and marks
TEXTS = ("ink", "muted", "accent", "bad", "good")

# Machado, Oliveira and Fernandes 2009, at full severity, on linear RGB.
SIGHT = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ.sum(axis=1)


def palette(theme: str) -> dict[str, Colour]:
    pairs = re.findall(r"--(\w+): light-dark\(#(\w{6}), #(\w{6})\)", CSS.read_text())
    return {name: rgb(light if theme == "light" else dark) for name, light, dark in pairs}


def rgb(text: str) -> Colour:
    return np.array([int(text[at : at + 2], 16) / 255 for at in (0, 2, 4)])


def linear(colour: Colour) -> Colour:
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def lab(seen: Colour) -> Colour:
    """Of linear RGB."""
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ np.clip(seen, 0, 1) / WHITE, 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: Colour, other: Colour) -> float:
    dark, light = sorted(float((TO_XYZ @ linear(colour))[1]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_sources_are_told_apart(theme: str, sight: str) -> None:
    seen = {kind: lab(SIGHT[sight] @ linear(palette(theme)[kind])) for kind in KINDS}
    near = {
        pair: round(float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])), 1)
        for pair in combinations(KINDS, 2)
        if np.linalg.norm(seen[pair[0]] - seen[pair[1]]) < DISTANCE
    }
    assert not near


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_stand_out_and_text_is_read(theme: str) -> None:
    colours = palette(theme)
    for ground in ("ground", "surface"):
        assert all(contrast(colours[kind], colours[ground]) >= CONTRAST for kind in KINDS)
        assert all(
            contrast(colours[name], colours[ground]) >= 4.5 for name in ("ink", "muted", "accent", "bad", "good")
        )


def test_each_kind_has_an_underline_of_its_own() -> None:
    text = CSS.with_name("playground.css").read_text()
    styles = {}
    for rule in re.findall(r"^\.run\.(\w+) \{([^}]*)\}", text, re.MULTILINE):
        styles[rule[0]] = re.search(r"underline (\w+)", rule[1])[1]
    assert styles.keys() == {"draft", "lookup", "grammar"}
    assert len(set(styles.values())) == 3
