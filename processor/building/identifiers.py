"""Identifiers made of SQL, as default names of operators."""


def identifier(expression: str) -> str:
    """Make an identifier from the letters and digits of an expression.

    >>> identifier("orders.country || '!'")
    'orders_country'
    """
    return "_".join("".join(c if c.isalnum() else " " for c in expression).split()) or "key"
