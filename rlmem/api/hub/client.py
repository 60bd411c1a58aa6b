"""The client of the Hub, quiet, and its failures in one line."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlmem import __version__
from rlmem.errors import UserError, brief, extra, first_line

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def client() -> HfApi:
    """The client, for the server that HF_ENDPOINT names or huggingface.co. Raises UserError without the extra `hub`."""
    try:
        import safetensors.torch  # noqa: F401 - the weights' format
        from huggingface_hub import HfApi
    except ImportError as error:
        raise UserError(f"{error.name} is not installed; e.g. {extra('hub')}") from error
    return HfApi(library_name="rlmem", library_version=__version__)


@contextmanager
def answered(hub: HfApi, repo: str) -> Iterator[None]:
    """Within, whatever the client fails by is a UserError about `repo`, and it prints nothing.

    An error of this machine's disk stays an OSError.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    shows, verbosity = not are_progress_bars_disabled(), logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        disable_progress_bars()
        logging.set_verbosity_error()
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # of many kinds, also of the packages below the client
            if _of_disk(error):
                raise
            raise UserError(f"{brief(repo) or repr(repo)}: {_why(error, hub)}") from error
        finally:
            logging.set_verbosity(verbosity)
            if shows:
                enable_progress_bars()


def _of_disk(error: Exception) -> bool:
    """Whether the system refused to read or write a file; the client's own errors are OSErrors without a number."""
    return isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError)


def _why(error: Exception, hub: HfApi) -> str:
    """What is wrong and what to do, after the name of the repository."""
    from huggingface_hub import errors

    login = "hf auth login, or set HF_TOKEN"
    caused = error.__cause__
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(caused, Exception):
        error = caused  # the client looks for a copy on this machine first
    if isinstance(error, errors.LocalTokenNotFoundError):
        return f"nobody is logged in at {hub.endpoint}; e.g. {login}"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "the network is not to be used (HF_HUB_OFFLINE); e.g. HF_HUB_OFFLINE=0"
    if isinstance(error, errors.HFValidationError):
        return f"is no name of a repository ({first_line(error)[:200]}); e.g. OWNER/NAME"
    if isinstance(error, errors.GatedRepoError):
        return f"is open only to those whom its owner lets in; e.g. ask for access on its page at {hub.endpoint}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no such repository at {hub.endpoint}, or it is private; e.g. its whole name, or {login}"
    if isinstance(error, errors.RevisionNotFoundError):
        return "has no such revision; e.g. --revision main"
    if isinstance(error, errors.HfHubHTTPError):
        status, said = error.response.status_code, first_line(error)
        said = error.server_message or said
        if status == 401:
            return f"{hub.endpoint} does not accept the token; e.g. {login}"
        if status == 403:
            return f"this login may not do that ({said[:200]}); e.g. a token that may write, or another owner"
        return f"{hub.endpoint} refused with status {status} ({said[:200]}); e.g. the same again later"
    if isinstance(error, ValueError):
        example = "--license mit" if "README.md" in str(error) else "another name"  # of the card, all else is rlmem's
        return f"is not accepted ({' '.join(str(error).split())[:200]}); e.g. {example}"
    proxy = " or proxy" if os.environ.get("HTTPS_PROXY") else ""
    reason = f"{type(error).__name__}: {first_line(error)[:200]}"
    return f"{hub.endpoint} cannot be reached, or broke off ({reason}); e.g. check the network{proxy} and try again"
