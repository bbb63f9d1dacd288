"""OCI images without a daemon: read, unpack, list and remove them. Usable alone."""

from ferrule.containers.images.errors import ImageError, UnknownImage
from ferrule.containers.images.limits import ImportLimits
from ferrule.containers.images.owners import Owner, read_owners
from ferrule.containers.images.source import ImageConfig, ImageSource, read_image
from ferrule.containers.images.store import Image, Images
from ferrule.containers.images.writable import Way, copy_root

__all__ = [
    "Image",
    "ImageConfig",
    "ImageError",
    "ImageSource",
    "Images",
    "ImportLimits",
    "Owner",
    "UnknownImage",
    "Way",
    "copy_root",
    "read_image",
    "read_owners",
]
