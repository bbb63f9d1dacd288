"""Questions over open documentation, each with the documents that answer it: made for this project, in our own words.

`docs` is the documentation of Ferrule, `python` the topics of Python's language reference (`pydoc_data`), `packages`
what packages of the tests' environment say of themselves.
"""

from typing import NamedTuple


class Question(NamedTuple):
    """A question, and the names of the documents that answer it: one of them is enough."""

    text: str
    answers: tuple[str, ...]


def _asked(pairs: dict[str, str]) -> tuple[Question, ...]:
    return tuple(Question(text, tuple(names.split())) for text, names in pairs.items())


DOCS = _asked(
    {
        "Which commands may run without asking me first?": "approvals.md",
        "Can the model delete files outside my project?": "security.md approvals.md",
        "How do I take back what the agent changed?": "sessions.md",
        "What happens to a long conversation that no longer fits the window?": "sessions.md models.md configuration.md",
        "use a model that runs on my own computer": "local_models.md models.md configuration.md",
        "my local model writes its tool calls as plain text": "local_models.md",
        "write a test for an agent without paying for a real model": "testing.md",
        "simulate a connection that breaks off in the middle of an answer": "testing.md",
        "start the server that speaks the Responses API": "gateway.md cli.md",
        "how long are stored answers kept by the server": "gateway.md configuration.md",
        "give the key of a website to a container without showing it to the code inside": "network.md",
        "which hosts may a container reach": "network.md containers.md",
        "run commands in another Linux distribution's root without Docker": "containers.md cli.md",
        "is pandas there when the model runs Python in a container": "containers.md",
        "connect a server of the Model Context Protocol that needs a login": "mcp.md",
        "what a remote server asks of the user while its tool runs": "mcp.md",
        "run my own script before each tool call": "hooks.md",
        "traces in Grafana or Jaeger of what an agent did": "observability.md",
        "how many tokens did a request take, as a metric": "observability.md",
        "format of a patch that adds a file": "apply_patch.md",
        "a hunk whose context is not found in the file": "apply_patch.md",
        "a JSON schema that a provider refuses": "schemas.md models.md",
        "make all properties required for structured outputs": "schemas.md",
        "teach the agent a procedure with a SKILL.md": "skills.md",
        "set the price of a million tokens": "configuration.md",
        "what a repository's own settings are allowed to change": "configuration.md",
        "which folder does a module belong to, and what may it import": "architecture.md",
        "how fast is a tool call beside the least that is possible": "benchmarks.md",
        "search engine for models that cannot search the web": "web.md gateway.md",
        "find passages in my notes": "file_search.md vector_stores.md",
        "embedding server for vectors": "file_search.md configuration.md vector_stores.md",
        "exit codes of the command line": "cli.md",
        "JSON lines of a run without a person": "cli.md",
        "a program that waits for input in a terminal": "processes.md",
        "kill everything that a command has started": "processes.md",
        "define a tool from a Python function": "python.md",
        "evaluate JavaScript and keep variables between calls": "js_repl.md",
        "read part of a large file with line numbers": "files.md",
        "hide rarely used tools until they are looked for": "tool_search.md",
        "endurance run that throws random faults at everything": "soak.md",
    }
)

PYTHON = _asked(
    {
        "how to check a condition while debugging and stop if it is false": "assert",
        "add a number to a variable in place with one operator": "augassign",
        "wait for a coroutine to finish": "await async",
        "shift the bits of a number": "shifting bitwise binary",
        "leave a loop early": "break",
        "skip the rest of this round of a loop": "continue",
        "pass arguments by keyword or with a star": "calls",
        "how are values ordered, is one less than another": "comparisons",
        "make an object usable with the with statement": "context-managers with",
        "define how an object is printed or compared": "customization specialnames",
        "step through a program line by line": "debugger",
        "remove a name or an item of a list": "del",
        "map from keys to values": "dict typesmapping",
        "catch an error and clean up afterwards": "try exceptions",
        "numbers with a decimal point": "floating numbers",
        "pad a value to a width or print it with two decimals": "formatstrings",
        "anonymous function in one expression": "lambda",
        "assign to a variable of the enclosing function": "nonlocal",
        "assign to a variable of the module from inside a function": "global",
        "load another module": "import",
        "which operator binds tighter": "operator-summary",
        "do nothing in a block": "pass",
        "raise to a power": "power",
        "signal an error": "raise",
        "give a value back to the caller": "return",
        "take every second item of a sequence": "slicings subscriptions typesseq",
        "split text at commas, upper case, strip blanks": "string-methods",
        "escape sequences and raw literals": "strings",
        "what counts as false": "truth booleans",
        "produce values one at a time from a generator": "yield",
        "repeat while something holds": "while",
        "go over the items of a list": "for",
        "names that begin with two underscores are mangled": "atom-identifiers identifiers id-classes",
        "append, insert and sort a list": "typesseq-mutable lists",
        "attributes such as __dict__ and __bases__": "specialattrs",
        "scopes and how names are resolved": "naming execmodel",
        "complex numbers": "imaginary numbers",
        "base classes and inheritance": "class",
    }
)

PACKAGES = _asked(
    {
        "validate data by type annotations": "pydantic",
        "fail a test that hangs": "pytest-timeout",
        "progress bar for a loop": "tqdm",
        "coloured text and tables in the terminal": "rich",
        "guess the charset of bytes": "charset-normalizer",
        "extract the main text of a web page": "trafilatura jusText",
        "read and merge PDF files": "pypdf",
        "match paths against gitignore patterns": "pathspec",
        "parse dates written in human language": "dateparser",
        "lint and format Python code": "ruff",
        "search files by regular expression from the command line": "ripgrep",
        "internationalised domain names": "idna",
        "server-sent events from a web application": "sse-starlette",
        "official client of a model provider": "openai",
        "time zones of the Olson database": "pytz",
        "lists and sets that stay sorted": "sortedcontainers",
        "fuzzy matching and Unicode properties in regular expressions": "regex",
        "constrain what a language model may write to a grammar": "llguidance",
        "validate documents against JSON Schema quickly": "jsonschema_rs jsonschema",
        "incremental parser for source code in editors": "tree-sitter",
    }
)
