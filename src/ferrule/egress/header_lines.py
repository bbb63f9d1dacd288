"""Let h11 read a header line in time linear to its length.

Its own pattern (0.16) lets blanks belong to either side of an empty value, so that a line of blanks that does not match
takes the square: 60 KB stop the event loop for half a minute. Commands, web pages and servers can send us such a line.
"""

import re

from h11 import _readers

QUADRATIC = (
    rb"(?P<field_name>[-!#$%&'*+.^_`|~0-9a-zA-Z]+):[ \t]*(?P<field_value>([^\x00\s]+(?:[ \t]+[^\x00\s]+)*)?)[ \t]*"
)
"""What h11 0.16 has. Another one is left alone."""
LINEAR = re.compile(QUADRATIC.replace(rb":[ \t]*", rb":[ \t]*+"))
"""Matches the same, but gives no blank back."""


def read_in_linear_time() -> None:
    """See above. For the whole process, as every connection reads by the same pattern."""
    if _readers.header_field_re.pattern == QUADRATIC:
        _readers.header_field_re = LINEAR
