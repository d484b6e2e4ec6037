"""Numbers of things, in words."""


def counted(count: int, word: str) -> str:
    """A number of things.

    >>> counted(1, "pass"), counted(2, "pass"), counted(3, "step")
    ('1 pass', '2 passes', '3 steps')
    """
    plural = word + ("es" if word.endswith("s") else "s")
    return f"{count:,} {word if count == 1 else plural}"
