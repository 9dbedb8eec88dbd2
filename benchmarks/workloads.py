"""The 26 splits that the CUDA engine is judged by: what models do, and what is hard.

Sizes are those of real models where there are such (QKV and MLA projections, gated MLPs,
YOLO heads, FSDP gathers), and the worst shapes known for every peer elsewhere: rows of one
byte, odd phases, thousands of outputs, permuted inputs.
"""

from __future__ import annotations

from benchmarks.cases import CASES, Case


def _case(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    axis: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> Case:
    return Case(name, CASES, shape, dtype, axis, sizes, strides=strides)


def _parameters(count: int = 290, total: int = 53_000_000) -> tuple[int, ...]:
    """Return uneven sizes like those of a model's parameters: many small, few large."""
    kinds = (4096, 4096, 131_072, 524_288, 16_384, 262_144)
    sizes = [kinds[index % len(kinds)] + 64 * (index % 7) for index in range(count - 1)]
    return (*sizes, total - sum(sizes))


# bfloat16 and float16 travel as 2-byte integers: a split moves bytes.
WORKLOADS: tuple[Case, ...] = (
    _case("1 QKV grouped, prefill", (8192, 10240), "i2", 1, (8192, 1024, 1024)),
    _case("2 QKV grouped, decode", (64, 10240), "i2", 1, (8192, 1024, 1024)),
    _case("3 QKV full", (4, 2048, 36864), "i2", 2, (12288,) * 3),
    _case("4 SwiGLU halves", (16384, 28672), "i2", 1, (14336,) * 2),
    _case("5 gated delta projection", (4096, 13952), "i2", 1, (12288, 512, 512, 640)),
    _case("6 latent KV 512+64", (16384, 576), "i2", 1, (512, 64)),
    _case("7 rotary halves", (16384, 64, 128), "i2", 2, (64, 64)),
    _case("8 LSTM gates", (512, 4096), "f4", 1, (1024,) * 4),
    _case("9 FSDP, 290 parameters", (8, 53_000_000), "f4", 1, _parameters()),
    _case("10 256 x 4 MiB", (256, 1 << 20), "f4", 0, (1,) * 256),
    _case("11 4096 x 64 KiB", (4096, 1 << 14), "f4", 0, (1,) * 4096),
    _case("12 C2f channel halves", (32, 128, 80, 80), "i2", 1, (64, 64)),
    _case("13 ShuffleNet halves", (64, 116, 28, 28), "i2", 1, (58, 58)),
    _case("14 7x7 inner", (64, 1536, 7, 7), "i2", 1, (384, 384, 768)),
    _case("15 YOLO head of 85", (32, 25200, 85), "i2", 2, (2, 2, 1, 80)),
    _case("16 YOLO head 64+80", (32, 8400, 144), "i2", 2, (64, 80)),
    _case("17 RGB planes", (32, 2160, 3840, 3), "u1", 3, (1, 1, 1)),
    _case("18 RGBA planes", (32, 2160, 3840, 4), "u1", 3, (1,) * 4),
    _case("19 complex64 parts", (1 << 28, 2), "f4", 1, (1, 1)),
    _case("20 complex128 parts", (1 << 27, 2), "f8", 1, (1, 1)),
    _case("21 32 columns", (1 << 22, 32), "f4", 1, (1,) * 32),
    _case("22 odd vocabulary", (4096, 50257), "i2", 1, (25129, 25128)),
    _case("23 odd bytes", (65536, 4099), "u1", 1, (1000, 3099)),
    _case("24 1000 x 8 columns", (65536, 8000), "f4", 1, (8,) * 1000),
    _case("25 rank 8", (4, 3, 8, 5, 6, 7, 16, 33), "i2", 4, (2, 2, 2)),
    _case("26 transposed input", (8192, 8192), "f4", 1, (2730, 2731, 2731), (4, 32768)),
)
