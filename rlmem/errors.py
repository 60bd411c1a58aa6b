"""A user's mistake, as opposed to a fault of the program."""


class UserError(Exception):
    """One or more mistakes, each said in one line: where, what, what is accepted, an example.

    The command line prints them without a traceback and exits with 2.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
