"""Shows the arguments in docstrings as lists, on the pages of the Python API."""

from typing import Any

from griffe import Extension, Object
from reference.docstrings import parsed
from reference.markdown import prose


class Arguments(Extension):
    """`name: meaning` lines become a list behind the prose of a docstring."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is None:
            return
        found = parsed(obj.docstring.value)
        listed = "\n".join(f"- **`{name}`**: {text}" for name, text in found.arguments.items())
        obj.docstring.value = prose("\n\n".join(part for part in (found.prose, listed) if part), "../../")
