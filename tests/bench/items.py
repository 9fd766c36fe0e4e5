"""What is asked: held-out prompts of the shipped family's tasks, and the draft the bundle's router gives each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from core.bundle.store import Bundle, open_live
from core.family import BUNDLE_DIR, TARGET_DIR
from core.tasks.classifier import TaskClassifier
from core.text.tokenizer import load_tokenizer
from tests.family.corpora import TASKS, items

GENERAL, BASE, MIXED = "general", "base", "mixed"  # the un-adapted draft; fitted to all tasks; one adapter for all
GENERAL_SLOT = "general slot"  # what is served where the router abstains
SEED = 41  # prompts that nothing was tuned on


class Item(NamedTuple):
    """A prompt as the target's ids, the family task it is of, and the label of the draft that the router chose."""

    number: int
    prompt: str
    tokens: tuple[int, ...]
    task: str
    slot: str


def live_bundle() -> Bundle:
    """The shipped bundle."""
    bundle = open_live(BUNDLE_DIR).bundle
    if bundle is None:
        raise SystemExit("no bundle; make it with: taskspec retrain --config train_jobs/configs/family.yaml")
    return bundle


def held_out(per_task: int) -> Sequence[Item]:
    """`per_task` prompts of each task, tasks taking turns, the same every time."""
    tokenizer = load_tokenizer(TARGET_DIR)
    router = live_bundle().router
    classifier = None if router is None else TaskClassifier.load(router)
    drawn = chain.from_iterable(zip(*(items(task, per_task, SEED, split="held_out") for task in TASKS), strict=True))
    asked = []
    for number, item in enumerate(drawn):
        tokens = tokenizer.encode_chat([{"role": "user", "content": item.prompt}])
        prior = {GENERAL: 1.0} if classifier is None else classifier.predict(tokens)
        slot = max(prior, key=lambda name: prior[name])
        label = GENERAL_SLOT if slot == GENERAL else slot
        asked.append(Item(number, item.prompt, tuple(tokens), item.task, label))
    return asked


def first_held_out(count: int) -> Sequence[Item]:
    """So many of those prompts in all."""
    return held_out(-(-count // len(TASKS)))[:count]


def draft_directories() -> dict[str, str | None]:
    """Label of each draft -> its PEFT or model directory, None for the draft as it is."""
    bundle = live_bundle()
    slots = {GENERAL_SLOT if slot == GENERAL else slot: bundle.directory(slot) for slot in bundle.manifest.slots}
    found = {GENERAL_SLOT: None} | slots | {name: bundle.control(name) for name in (BASE, MIXED)}
    return {GENERAL: None} | {label: str(directory) if directory else None for label, directory in found.items()}
