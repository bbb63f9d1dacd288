"""How much an image may ask of this machine. A hostile one is small to download and endless to unpack."""

import msgspec

MAX_BYTES = 64 << 30
"""Of all files, holes included: the largest images with CUDA and a model have some 30 GB."""
MAX_ENTRIES = 1_000_000
"""Files of all layers: images of whole distributions have 200,000. Each costs memory while its layer is read."""
MAX_NAME_BYTES = 256 << 20
"""Of all paths together, which are kept in memory while an image is read."""
MAX_RATIO = 200
"""Unpacked over packed bytes: programs and text reach 10, zeros 1,000."""
FREE_BYTES = 1 << 30
"""Unpacked bytes of a layer before the ratio counts: small layers of zeros are common and harmless."""
MAX_LAYERS = 512
"""Docker itself stops at 127."""
MAX_DOCUMENT = 4 << 20
"""Bytes of a manifest, an index or a configuration: what registries accept."""
MAX_DOCUMENTS = 256
"""Manifests and indexes that are read to find this machine's."""
MAX_NESTING = 4
"""Indexes within indexes."""
MAX_DEPTH = 128
"""Folders above a file: each is an open descriptor while the layer is read. `node_modules` reach some 40."""
MAX_HEADER = 1 << 20
"""Bytes of one extended header: a path has at most 4,096, all extended attributes of a file 64 KiB."""
MAX_EXTENTS = 1 << 16
"""Pieces of one sparse file."""


class ImportLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that callers may change."""

    bytes: int = MAX_BYTES
    entries: int = MAX_ENTRIES
    ratio: int = MAX_RATIO
    free_bytes: int = FREE_BYTES
