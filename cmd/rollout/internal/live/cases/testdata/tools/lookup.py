def lookup(key: str) -> dict:
    """
    Look a key up.

    Args:
        key (str): what to look up

    Returns:
        dict: what is known of it
    """
    return {"key": key, "values": [1, 2.5, None, "é"], "found": True}
