def guarded(x: int) -> str:
    """
    Do what somebody has to allow.

    Args:
        x (int): a number

    Returns:
        str: that it was done
    """
    return "done with " + str(x)
