"""Names of container images."""

import re

from fairlead.model.errors import InputError

_IMAGE = re.compile(r"[A-Za-z0-9/.][A-Za-z0-9/._:@+~-]*")


def check_image(image: str) -> None:
    """Raise InputError unless a text can only be an image, and no option of a runtime."""
    if image and not _IMAGE.fullmatch(image):
        raise InputError(
            f"not the name of an image: {image[:100]!r}",
            fix="expected one such as docker://pytorch/pytorch:2.5.1 or /images/train.sif",
            field="container",
        )
