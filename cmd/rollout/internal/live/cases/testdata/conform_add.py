def conform_add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a (int): the first number
        b (int): the second number
    """
    return a + b
