"""Draws picture.npy: a lit ball on a checked floor, 192 x 256 pixels of RGB bytes."""

from pathlib import Path

import numpy as np

HEIGHT, WIDTH = 192, 256


def picture() -> np.ndarray:
    """The picture as uint8 (HEIGHT, WIDTH, 3)."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(float)
    sky = np.stack([90 + 0.5 * y, 130 + 0.4 * y, 230 - 0.1 * y], -1)
    depth = np.maximum(y - 110, 1)
    checks = ((x - WIDTH / 2) * 40 / depth // 24 + 4000 / depth // 8) % 2
    floor = (
        np.where(checks[..., None] > 0, (226, 218, 200), (92, 72, 60))
        * (0.5 + depth / 160)[..., None]
    )
    image = np.where((y < 112)[..., None], sky, floor)
    u, v = (x - 118) / 62, (y - 96) / 62
    inside = u * u + v * v < 1
    w = np.sqrt(np.maximum(1 - u * u - v * v, 0))
    light = np.clip(-0.5 * u - 0.6 * v + 0.62 * w, 0, 1)
    ball = (0.15 + 0.85 * light)[..., None] * (214, 62, 48) + 255 * (light**24)[..., None]
    image = np.where(inside[..., None], ball, image)
    grain = np.random.default_rng(7).normal(0, 2, image.shape)
    return np.clip(image + grain, 0, 255).astype(np.uint8)


if __name__ == "__main__":
    np.save(Path(__file__).with_name("picture.npy"), picture())
