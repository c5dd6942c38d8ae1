"""Command lines of the benchmarks."""


def split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What comes before `--`, which is for us, and what comes after it, which is for the program that we run."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1:]
