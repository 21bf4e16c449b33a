"""Secrets of providers: read from files, afresh at each use, so that a rotated one counts at once."""

from __future__ import annotations

from pathlib import Path

from muster.operate.providers.provider import PermanentProviderError, TransientProviderError

LIMIT = 64 * 1024


def read_secret(path: str, what: str) -> str:
    """The text of the file without the line end. `what` names it in errors; the content never stands in one.

    Raises PermanentProviderError for a file that is empty or no text, TransientProviderError for one that cannot be
    read just now (a mounted Secret is replaced under us).
    """
    try:
        data = Path(path).read_bytes()[:LIMIT]
    except OSError as error:
        raise TransientProviderError(f"Cannot read the {what} in {path}: {error.strerror or error}") from error
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise PermanentProviderError(f"The {what} in {path} is no UTF-8 text.") from error
    if not text or "\n" in text or "\r" in text:
        raise PermanentProviderError(f"The {what} in {path} must be one line of text.")
    return text
