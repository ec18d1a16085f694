def echo(text: str) -> str:
    """
    Say a text again.

    Args:
        text (str): what to say

    Returns:
        str: the same
    """
    return text
