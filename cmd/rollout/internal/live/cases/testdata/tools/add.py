def add(a: int, b: int) -> int:
    """
    Add two numbers.

    Args:
        a (int): the first number
        b (int): the second number

    Returns:
        int: their sum
    """
    return int(a) + int(b)
