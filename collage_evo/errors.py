"""Every error a person can cause or mend. The message is one line and says what to do."""


class CollageError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line ends with."""

    exit_code = 2


class InputError(CollageError):
    """A model, artifact or run directory that cannot be used as given."""


class DamagedFile(InputError):
    """A file that cannot be read, or that does not hold what it should."""


class NotSearchable(InputError):
    """A model that runs whole, but has no placement other than that."""


class ConfigError(CollageError):
    """A configuration key or value that is not allowed."""


class UnavailableError(CollageError):
    """A backend or device that was asked for and is not on this machine."""

    exit_code = 3


def one_line(error: Exception) -> str:
    """The first line of an error's text."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def shortened(error: Exception, most: int = 600) -> str:
    """All of an error's text in one line of about ``most`` characters, the middle left out where it is longer."""
    text = " ".join(str(error).split())
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


class CannotLoad(InputError):
    """A library raised an exception (the cause of this one) over a compiled piece."""
