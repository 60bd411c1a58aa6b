"""A user's mistake and a fault that has a name, as opposed to a bug of the program."""


class UserError(Exception):
    """One or more mistakes, each said in one line: where, what, what is accepted, an example.

    The command line prints them without a traceback and exits with 2.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Fault(Exception):
    """Something outside the program broke a run: a full disk, a dead process, no memory, a loss that is not a number.

    One line: at which step, what, what one may do. The command line prints it without a traceback and exits with 1.
    """
