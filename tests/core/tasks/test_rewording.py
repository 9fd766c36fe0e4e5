"""Rewording: equal for equal seeds, other words around the same request, two disjoint sets of rules."""

from __future__ import annotations

import re

import pytest

from core.tasks.rewording import reword
from core.tasks.rewording_rules import AUGMENTING, VALIDATING, LanguageRules, Rules
from tests.family.corpora import TASKS, items

PROMPTS = [item.prompt for task in TASKS for item in items(task, 40, seed=5)]
SEEDS = range(60)


def all_of(text: str, rules: Rules) -> set[str]:
    return {reword(text, seed, rules) for seed in SEEDS}


@pytest.mark.parametrize("rules", [AUGMENTING, VALIDATING])
def test_a_seed_gives_one_rewording_and_seeds_give_many(rules: Rules) -> None:
    for prompt in PROMPTS[::20]:
        assert reword(prompt, 3, rules) == reword(prompt, 3, rules)
        assert len(all_of(prompt, rules)) > 20


@pytest.mark.parametrize("rules", [AUGMENTING, VALIDATING])
def test_every_prompt_comes_out_another_one_with_its_numbers(rules: Rules) -> None:
    for seed, prompt in enumerate(PROMPTS):
        said = reword(prompt, seed, rules)
        assert said != prompt
        assert sorted(re.findall(r"\d+", said)) == sorted(re.findall(r"\d+", prompt))


def phrases(language: LanguageRules) -> set[str]:
    said = {template for _, templates in (*language.question_forms, *language.synonyms) for template in templates}
    return {phrase.strip().lower() for phrase in {*language.openings, *language.closings, *said}} - {""}


def test_the_two_sets_share_no_phrase_and_no_rule() -> None:
    assert not phrases(AUGMENTING.english) & phrases(VALIDATING.english)
    assert not phrases(AUGMENTING.chinese) & phrases(VALIDATING.chinese)
    assert not set(AUGMENTING.layouts) & set(VALIDATING.layouts)
    assert AUGMENTING.typo is not VALIDATING.typo


def test_a_question_is_asked_another_way() -> None:
    said = "\n".join(all_of("What is the molar mass of water?", AUGMENTING)).lower()
    assert "tell me the molar mass" in said
    assert "what would be the molar mass" in said
    assert "compute the molar mass" in "\n".join(all_of("What is the molar mass of water?", VALIDATING)).lower()


def test_an_order_becomes_a_request_and_a_statement_does_not() -> None:
    assert any("can you write a poem" in said.lower() for said in all_of("Write a poem about rain.", AUGMENTING))
    assert not any("can you all foxes" in said.lower() for said in all_of("All foxes are red. Is Leo?", AUGMENTING))


def test_chinese_is_polite_in_chinese() -> None:
    found = all_of("苹果的反义词是什么？", AUGMENTING)
    assert any(said.startswith("请问，") for said in found)
    assert any("是啥" in said for said in found)
    assert not any(re.search(r"[a-z]", said) for said in found)


def test_other_scripts_keep_their_words() -> None:
    for rules in (AUGMENTING, VALIDATING):
        for said in all_of("Привет, как твои дела? Что нового?", rules):
            assert re.findall(r"\w+", said.lower()) == re.findall(r"\w+", "привет, как твои дела? что нового?")


def test_sentences_change_places_and_lines() -> None:
    prompt = "Sam has 3 pens. He buys 4. How many are there?"
    assert any("\n" in said for said in all_of(prompt, AUGMENTING))
    assert any(said.find("Sam") > said.find("many") for said in all_of(prompt, VALIDATING))


def test_what_no_rule_touches_stays() -> None:
    assert all_of("ا", AUGMENTING) == all_of("ا", VALIDATING) == {"ا"}
