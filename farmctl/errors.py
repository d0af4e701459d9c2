"""farmctl's error tree. Each error carries its exit code and what to do next; ``farmctl.cli`` prints it."""


class FarmctlError(Exception):
    """A failed command (exit 1). ``hint`` is the next step, printed on a line of its own."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(FarmctlError):
    """The command's words are off (exit 2)."""

    exit_code = 2


class StageError(FarmctlError):
    """The testbed or the machine is at fault, or a fault was not staged (exit 3)."""

    exit_code = 3
