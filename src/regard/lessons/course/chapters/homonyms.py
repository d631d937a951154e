"""Sentences with words that are nouns in some and verbs in others: a small data set for the chapter on ELMo."""

from __future__ import annotations

from typing import NamedTuple


class Homonym(NamedTuple):
    word: str
    label: str
    text: str


NOUN, VERB = "noun", "verb"

TRAINING = (
    Homonym("train", NOUN, "He took a train."),
    Homonym("train", VERB, "He likes to train in the mornings."),
    Homonym("train", NOUN, "The last train leaves at nine."),
    Homonym("train", VERB, "We train every day."),
    Homonym("train", NOUN, "She missed the train to the city."),
    Homonym("train", VERB, "They train young soldiers here."),
    Homonym("stick", NOUN, "The old man walked with a stick."),
    Homonym("stick", VERB, "They stick to the rules."),
    Homonym("stick", NOUN, "He broke the stick in two."),
    Homonym("stick", VERB, "I will stick to my opinion."),
    Homonym("stick", NOUN, "A boy held the stick in his hand."),
    Homonym("stick", VERB, "You must stick to the road."),
    Homonym("help", NOUN, "She asked for help."),
    Homonym("help", VERB, "Can you help me with this box?"),
    Homonym("help", NOUN, "Your help was very useful."),
    Homonym("help", VERB, "We help our neighbors."),
    Homonym("play", NOUN, "The play was written in London."),
    Homonym("play", VERB, "The children play in the garden."),
    Homonym("play", NOUN, "It was a play in three acts."),
    Homonym("play", VERB, "They play the piano well."),
    Homonym("rest", NOUN, "The rest of the army went home."),
    Homonym("rest", VERB, "We rest after a long walk."),
    Homonym("rest", NOUN, "He spent the rest of the day alone."),
    Homonym("rest", VERB, "You should rest for an hour."),
    Homonym("watch", NOUN, "He looked at his watch."),
    Homonym("watch", VERB, "We watch the birds fly."),
    Homonym("watch", NOUN, "The watch on her arm was gold."),
    Homonym("watch", VERB, "They watch the river rise."),
)
HELD_OUT = (
    Homonym("train", NOUN, "The train was late again."),
    Homonym("train", VERB, "Runners train before a race."),
    Homonym("stick", NOUN, "The dog brought back the stick."),
    Homonym("stick", VERB, "Let us stick to the plan."),
    Homonym("help", NOUN, "They came without any help."),
    Homonym("help", VERB, "I help my father at work."),
    Homonym("play", NOUN, "The king saw the play twice."),
    Homonym("play", VERB, "Girls play there after school."),
    Homonym("rest", NOUN, "She kept the rest of the money."),
    Homonym("rest", VERB, "Travelers rest under the tree."),
    Homonym("watch", NOUN, "My watch has stopped."),
    Homonym("watch", VERB, "Do you watch the games?"),
)
