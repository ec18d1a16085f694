def fail(x: int) -> str:
    """
    Fail always.

    Args:
        x (int): a number

    Returns:
        str: nothing ever
    """
    raise ValueError("cannot do that with " + str(x))
