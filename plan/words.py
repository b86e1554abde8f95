"""Numbers in words, for people."""


def counted(number: int, thing: str) -> str:
    """`1 host`, `2,000 hosts`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
