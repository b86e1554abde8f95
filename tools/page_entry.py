"""An entry of a reference page: a list can be read on a narrow screen, where a table of sentences is a wall."""


def entry(name: str, about: str, *sentences: str) -> str:
    """One item: the name that messages use, in brackets what kind it is, then sentences, each on a line of its own."""
    lines = [
        f"- **`{name}`**{f' ({about})' if about else ''}",
        *(f"  {each}" for each in sentences),
    ]
    return "<br>\n".join(lines)
