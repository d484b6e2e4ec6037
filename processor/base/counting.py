"""Write counts with their nouns."""


def counted(count: int, word: str) -> str:
    """Write a count with its noun in singular or plural.

    >>> counted(1, "pass"), counted(2, "batch"), counted(3, "key"), counted(0, "entry")
    ('1 pass', '2 batches', '3 keys', '0 entries')
    """
    if word.endswith(("s", "ch")):
        plural = word + "es"
    elif word.endswith("y") and word[-2] not in "aeiou":
        plural = word[:-1] + "ies"
    else:
        plural = word + "s"
    return f"{count:,} {word if count == 1 else plural}"
