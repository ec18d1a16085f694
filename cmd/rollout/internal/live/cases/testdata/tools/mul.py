def mul(a: int, b: int) -> int:
    """
    Multiply two numbers.

    Args:
        a (int): the first number
        b (int): the second number

    Returns:
        int: their product
    """
    return int(a) * int(b)
