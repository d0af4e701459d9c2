"""The agent's error tree. Each error says what happened, what it concerns and what to do next."""


class AgentError(Exception):
    """Base of what the agent raises."""


class SettingsError(AgentError):
    """Settings that cannot be used; every problem is named at once."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ChromeStartError(AgentError):
    """Chrome did not start; the message carries the end of what it said."""


class ChromeLostError(AgentError):
    """Chrome exited or froze while it was needed."""
