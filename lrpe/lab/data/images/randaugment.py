"""RandAugment (Cubuk et al., 2020) in the form that DeiT uses: strengths grow with the magnitude, signs are random."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from lrpe.errors import require

LARGEST = 10.0
FILL = (124, 116, 104)  # ImageNet's mean, where a shifted image shows nothing
BILINEAR, AFFINE = Image.Resampling.BILINEAR, Image.Transform.AFFINE

Operation = Callable[[Image.Image, float, int], Image.Image]  # of an image, a strength in [0, 1] and a sign


def randaugment(
    image: Image.Image, operations: int, magnitude: float, spread: float, generator: np.random.Generator
) -> Image.Image:
    """So many operations, each done with probability ½, of a magnitude drawn about the given one, in [0, 10]."""
    require(0 <= magnitude <= LARGEST, f"A magnitude lies between 0 and {LARGEST:g}; got {magnitude}.")
    for choice in generator.integers(len(OPERATIONS), size=operations):
        if generator.random() < 0.5:
            strength = np.clip(generator.normal(magnitude, spread), 0, LARGEST) / LARGEST
            sign = 1 if generator.random() < 0.5 else -1
            image = list(OPERATIONS.values())[choice](image, float(strength), sign)
    return image


def enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    return lambda image, strength, sign: kind(image).enhance(max(0.1, 1 + 0.9 * strength * sign))


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, AFFINE, matrix, BILINEAR, fillcolor=FILL)


def add_to_dark(image: Image.Image, strength: float, sign: int) -> Image.Image:
    """Values below 128 are raised."""
    added = int(110 * strength)
    table = [min(255, value + added) if value < 128 else value for value in range(256)]
    return image.point(table * len(image.getbands()))


OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda image, strength, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, strength, sign: ImageOps.equalize(image),
    "invert": lambda image, strength, sign: ImageOps.invert(image),
    "rotate": lambda image, strength, sign: image.rotate(30 * strength * sign, BILINEAR, fillcolor=FILL),
    "posterize": lambda image, strength, sign: ImageOps.posterize(image, max(1, 4 - int(4 * strength))),
    "solarize": lambda image, strength, sign: ImageOps.solarize(image, 256 - int(256 * strength)),
    "solarize-add": add_to_dark,
    "color": enhance(ImageEnhance.Color),
    "contrast": enhance(ImageEnhance.Contrast),
    "brightness": enhance(ImageEnhance.Brightness),
    "sharpness": enhance(ImageEnhance.Sharpness),
    "shear-x": lambda image, strength, sign: affine(image, 1, 0.3 * strength * sign, 0, 0, 1, 0),
    "shear-y": lambda image, strength, sign: affine(image, 1, 0, 0, 0.3 * strength * sign, 1, 0),
    "translate-x": lambda image, strength, sign: affine(image, 1, 0, 0.45 * strength * sign * image.width, 0, 1, 0),
    "translate-y": lambda image, strength, sign: affine(image, 1, 0, 0, 0, 1, 0.45 * strength * sign * image.height),
}
