"""DeiT's augmentation of one image, on Pillow: random crop and flip, RandAugment, and random erasing."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from lrpe.errors import require

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's channels
_BICUBIC = Image.Resampling.BICUBIC


@dataclass(frozen=True)
class Augment:
    """Random variations of a training image; the defaults are DeiT's (rand-m9-mstd0.5-inc1, erasing 0.25)."""

    scale: tuple[float, float] = (0.08, 1.0)  # the share of the area that a crop keeps
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # a crop's width over its height
    flip: float = 0.5
    operations: int = 2
    magnitude: float = 9.0
    spread: float = 0.5
    erasing: float = 0.25

    def __call__(self, image: Image.Image, size: int, generator: np.random.Generator) -> np.ndarray:
        """Return the varied image as (channels, size, size), float32, normalised."""
        left, top, width, height = draw_crop(image.size, self.scale, self.ratio, generator)
        image = image.resize((size, size), _BICUBIC, (left, top, left + width, top + height))
        if generator.random() < self.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = randaugment(image, self.operations, self.magnitude, self.spread, generator)
        pixels = normalize(image)
        return erase(pixels, generator) if generator.random() < self.erasing else pixels


def draw_crop(
    size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float], generator: np.random.Generator
) -> tuple[int, int, int, int]:
    """Draw left, top, width and height of a crop of random area and shape; take the middle if ten tries do not fit."""
    width, height = size
    for _ in range(10):
        area = width * height * generator.uniform(*scale)
        shape = np.exp(generator.uniform(*np.log(ratio)))
        w, h = round(np.sqrt(area * shape)), round(np.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            return int(generator.integers(width - w + 1)), int(generator.integers(height - h + 1)), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def center_crop(image: Image.Image, size: int, share: float = 0.875) -> np.ndarray:
    """Resize the shorter side to size / share and keep the middle, as for evaluation."""
    factor = round(size / share) / min(image.size)
    width, height = (max(size, round(side * factor)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    return normalize(image.resize((width, height), _BICUBIC).crop((left, top, left + size, top + size)))


def normalize(image: Image.Image) -> np.ndarray:
    """Return an RGB image as (3, height, width), float32, normalised by ImageNet's means and deviations."""
    pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255
    mean, deviation = (np.array(values, dtype=np.float32)[:, None, None] for values in (_MEAN, _DEVIATION))
    return (pixels - mean) / deviation


def erase(pixels: np.ndarray, generator: np.random.Generator, area: tuple[float, float] = (0.02, 1 / 3)) -> np.ndarray:
    """Replace a random rectangle of the image by noise (Zhong et al., 2020)."""
    channels, height, width = pixels.shape
    _, _, w, h = draw_crop((width, height), area, (0.3, 1 / 0.3), generator)
    left, top = int(generator.integers(width - w + 1)), int(generator.integers(height - h + 1))
    erased = pixels.copy()
    erased[:, top : top + h, left : left + w] = generator.standard_normal((channels, h, w), dtype=np.float32)
    return erased


_LARGEST = 10.0
_FILL = (124, 116, 104)  # ImageNet's mean, for the area that a shifted image leaves empty
_BILINEAR, _AFFINE = Image.Resampling.BILINEAR, Image.Transform.AFFINE

_Operation = Callable[[Image.Image, float, int], Image.Image]  # takes an image, a strength in [0, 1] and a sign


def randaugment(
    image: Image.Image, operations: int, magnitude: float, spread: float, generator: np.random.Generator
) -> Image.Image:
    """Draw operations and apply each with probability ½, at a magnitude in [0, 10] drawn around ``magnitude``."""
    require(0 <= magnitude <= _LARGEST, f"magnitude must lie between 0 and {_LARGEST:g}; got magnitude={magnitude}.")
    for choice in generator.integers(len(OPERATIONS), size=operations):
        if generator.random() < 0.5:
            strength = np.clip(generator.normal(magnitude, spread), 0, _LARGEST) / _LARGEST
            sign = 1 if generator.random() < 0.5 else -1
            image = list(OPERATIONS.values())[choice](image, float(strength), sign)
    return image


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> _Operation:
    return lambda image, strength, sign: kind(image).enhance(max(0.1, 1 + 0.9 * strength * sign))


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, _AFFINE, matrix, _BILINEAR, fillcolor=_FILL)


def _add_to_dark(image: Image.Image, strength: float, sign: int) -> Image.Image:
    """Raise the values below 128."""
    added = int(110 * strength)
    table = [min(255, value + added) if value < 128 else value for value in range(256)]
    return image.point(table * len(image.getbands()))


OPERATIONS: dict[str, _Operation] = {
    "autocontrast": lambda image, strength, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, strength, sign: ImageOps.equalize(image),
    "invert": lambda image, strength, sign: ImageOps.invert(image),
    "rotate": lambda image, strength, sign: image.rotate(30 * strength * sign, _BILINEAR, fillcolor=_FILL),
    "posterize": lambda image, strength, sign: ImageOps.posterize(image, max(1, 4 - int(4 * strength))),
    "solarize": lambda image, strength, sign: ImageOps.solarize(image, 256 - int(256 * strength)),
    "solarize-add": _add_to_dark,
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear-x": lambda image, strength, sign: _affine(image, 1, 0.3 * strength * sign, 0, 0, 1, 0),
    "shear-y": lambda image, strength, sign: _affine(image, 1, 0, 0, 0.3 * strength * sign, 1, 0),
    "translate-x": lambda image, strength, sign: _affine(image, 1, 0, 0.45 * strength * sign * image.width, 0, 1, 0),
    "translate-y": lambda image, strength, sign: _affine(image, 1, 0, 0, 0, 1, 0.45 * strength * sign * image.height),
}
