"""Endless imagined tasks with random names, so that a model must copy names from the header, not remember them."""

from __future__ import annotations

from random import Random

from wmrl_cli.benchmarks.metrics import LABEL, METRICS, NUMBER
from wmrl_cli.prompts.compact import Facts

_WORDS = """
age area balance bed birth blood body brand bulk calories capacity car case center chest city class clean code color
count cover credit crop cycle daily damage data date day debt degree delay density depth diet distance dose drug
duration edge effect engine error event family fiber field fire flag floor flow food fuel garage gas gender grade
ground group growth health heart heat height home hour house income index insurance job kind land last lat leaf
length level light limit load loan lot main mark mass max mean meal mid min model month name nose note number oil
open order owner page part party phone pixel plan plot point pool power price product profit pulse race rain rank
rate ratio region rent report result risk road room salary sale school score season sector segment sensor sex shape
share ship shop side size skin sleep smoke soil sound source speed staff stage star state status step stock stop
street sugar sum temp tenure term test tide time title ton total town track trade train tree trip type unit user
value vendor visit volume wage wall water wave weight wheel width wind wine word work yard year yield zone
""".split()
_SYLLABLES = (
    "ba co di fo gu ha ji ka lo mi na pe qui ra su ta ve wo xi za br cl dr fl gr pl st tr ch sh ck nt rd ng ll".split()
)
_IDS = "id Id ID row_id rowid index key record sample case number no obs entry item unit code ref uid uuid row".split()
_SEPARATORS = ("_", "_", "_", ".", "", " ", "-")
_CAPITALS = (str.lower, str.lower, str.lower, str.capitalize, str.capitalize, str.upper)


def column_name(random: Random) -> str:
    """A name as columns of real tables have them: words, abbreviations, invented words, numbered parts."""
    parts = [_part(random) for _ in range(random.choices((1, 2, 3, 4), (45, 38, 13, 4))[0])]
    capital = random.choice(_CAPITALS)
    name = random.choice(_SEPARATORS).join(capital(part) for part in parts)
    if random.random() < 0.15:
        name += random.choice(("", "_", ".")) + str(
            random.randrange(1, 100) if random.random() < 0.8 else 1900 + random.randrange(130)
        )
    return name[0].lower() + name[1:] if random.random() < 0.1 else name


def _part(random: Random) -> str:
    draw = random.random()
    if draw < 0.55:
        return random.choice(_WORDS)
    if draw < 0.7:
        return random.choice(_WORDS)[: random.randint(2, 4)]
    if draw < 0.95:
        return "".join(random.choice(_SYLLABLES) for _ in range(random.randint(1, 3)))
    return random.choice("abcdefghijklmnopqrstuvwxyz")


def id_name(random: Random) -> str:
    draw = random.random()
    if draw < 0.35:
        return random.choice(_IDS)
    if draw < 0.65:
        return random.choice(_WORDS) + random.choice(("_id", "Id", "_ID", "_no", "_key", "id"))
    return column_name(random)


def imagine(random: Random) -> Facts:
    """The facts of a task that does not exist."""
    category = random.choices(("tabular", "text", "image"), (76, 13, 11))[0]
    metrics = [m for m in METRICS.values() if category != "image" or m.prediction == LABEL]
    metric = random.choice(metrics)
    count = random.randint(2, 16) if category == "tabular" else 0
    strings = min(count, random.choices((0, 1, 2, 3, 4, 5, 7), (25, 20, 20, 15, 10, 5, 5))[0])
    names = _distinct_names(random, count + 2)
    numbers, words = names[: count - strings], names[count - strings : count]
    missing = tuple(
        kind
        for kind, members, share in (("numbers", numbers, 0.6), ("strings", words, 0.25))
        if members and random.random() < share
    )
    return Facts(
        category=category,
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        prediction=metric.prediction,
        rows=random.choice((100, 200, 500, 1000, 1000, 2000, 2000)),
        id_column=_other_than(random, names),
        target=names[-1],
        target_dtype=_target_dtype(random, metric.prediction, category),
        numbers=tuple(numbers),
        strings=tuple(words),
        missing=missing,
        text=names[-2] if category == "text" else None,
        image_shape=random.choice(((8, 8), (12, 12), (14, 14), (16, 16), (25, 25), (28, 28)))
        if category == "image"
        else None,
    )


def _target_dtype(random: Random, prediction: str, category: str) -> str:
    if prediction == NUMBER:
        return random.choice(("float", "float", "int"))
    return random.choice(("string", "string", "int")) if prediction == LABEL and category != "image" else "int"


def _distinct_names(random: Random, count: int) -> list[str]:
    """Some tables number their columns alike, most do not."""
    if random.random() < 0.12:
        stem = column_name(random)
        names = [f"{stem}{random.choice(('_', ''))}{i}" for i in random.sample(range(1, 40), count)]
    else:
        names = [column_name(random) for _ in range(count)]
    return list(dict.fromkeys(names)) if len(set(names)) == count else _distinct_names(random, count)


def _other_than(random: Random, names: list[str]) -> str:
    while (name := id_name(random)) in names:
        pass
    return name
