"""Run commands of `repro` in this process."""

from typer.testing import CliRunner

from repro.cli.main import app


def run_command(*words: str) -> str:
    """Return what a command prints. Its exception is raised here."""
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None:
        raise done.exception
    return done.stdout


def ignore(line: str) -> None:
    """Take a line of progress, and print nothing."""
