"""Why decisions are exact: every error bound, with its derivation.

A decision has two steps. Cheap float32 products rule out every neuron that cannot be best. The others are evaluated in
float64 from the stored vectors, and that decides. So a bound is never part of a result: a bound that is too wide costs
time, and one that is too small would give a wrong result. All bounds are here, in plain arithmetic that both compilers
accept. A bound that kernels use therefore calls no other one.

One rounding changes a number by a factor of 1 + delta with |delta| <= U, and n roundings in a row by at most gamma(n).
y is a sample and u a neuron, both with the centre subtracted; |.| is the length of a vector. Most derivations end with
the inequality of Cauchy and Schwarz, |<y, u>| <= |y| |u|.

Vectors shorter than SHORT are left to float64. For others, underflow adds at most 2^-150 to a product for each value.
That is less than U / 2^40 of |y| |u|, and is covered by the rounding up below.
"""

from __future__ import annotations

import math

U = 2.0**-24
"""Half the distance between 1 and the next float32."""
U64 = 2.0**-53
"""The same of float64."""
SHORT = 1e-12
"""Length of a short vector, whose float32 products cannot be trusted: they may underflow."""


def gamma(n: float, unit: float = U) -> float:
    """n unit / (1 - n unit), which is at most 2 n unit for n up to 2^23 in float32: the error of n roundings."""
    return 2 * n * unit


def product(d: int, unit: float = U) -> float:
    """The error of <y, u> of d values, relative to |y| |u|; or the error of their cosine.

    d products and their sum, in any order: gamma(d) times the sum of |y_i u_i|, which is at most |y| |u|. Both vectors
    were rounded when the centre was subtracted, or when they were made unit vectors: 2 more. An inverse length and the
    product with it: 2 more. The remaining 12 cover later operations: an upper bound is a sum of three terms, and is
    compared with a rounded bar, with TIE to spare.
    """
    return 2 * (d + 16) * unit  # gamma(d + 16)


def masked_product(d: int, unit: float = U) -> float:
    """The error of <y, u> / |u| over the observed values, relative to the length of y there.

    It is the error of the product, plus that of |u|^2, a sum of d squares. The root halves the latter.
    """
    return 4 * (d + 16) * unit


def uncentred_product(d: int, centre: float, inverse: float) -> float:
    """The error of <y, m> - centre sum(y), relative to |y| |u|; 1 / |u| is at most `inverse`.

    The error of <y, m> is gamma(d) |y| |m|, where |m| <= |u| + centre sqrt(d). The sum adds U centre sqrt(d) |y|, and
    the difference U times both: together gamma(d + 3) |y| (|u| + centre sqrt(d)).
    """
    return product(d) * (1 + centre * math.sqrt(d) * inverse)


def half_square(error: float, length: float, square: float) -> float:
    """The error of <x, m> - |m|^2 / 2, for a sample of that length and a neuron of that squared length.

    |x - m|^2 = |x|^2 - 2 (<x, m> - |m|^2 / 2), so the larger this term, the nearer they are. The product is wrong by
    error |x| |m| (`product`, `masked_product`). The square is a sum at least as accurate as the product, and is wrong
    by at most error |m|^2. The slack of these bounds covers the rounding of their sum.
    """
    return error * (length * math.sqrt(square) + square)


def difference(d: int) -> float:
    """The relative error of |x - m|^2, computed from differences of d values in float32.

    A difference of two float32 is rounded once, its square twice more, the sum d times: gamma(d + 4). The rest covers
    later operations, as in `product`.
    """
    return 2 * (d + 16) * U  # gamma(d + 16)


def rounded(square: float, most: float) -> float:
    """The error of (|x|^2 - most) / 2 in float32: twice the rounding of both, for its use as a bar and as a bound."""
    return 4 * U * (square + most)


def features(blocks: list[int]) -> float:
    """The error of a vector of features, relative to |y|.

    The centre is subtracted, and rows are added in pairs and scaled: 4 roundings. Each of the following steps
    multiplies blocks of n values by k <= n orthonormal columns. A feature of a block z is then wrong by gamma(n) |z|,
    and by U |z| from the rounding of the columns; k features together by (n + 1) sqrt(n) U |z|. Since n is small,
    gamma(n) and n U differ little: the remaining 12 cover that.
    """
    return U * (16 + sum((n + 1) * math.sqrt(n) for n in blocks))


def projected_product(size: int, wrong: float) -> float:
    """The error of a product of feature vectors relative to |y| |u|, and of the square of one relative to |u|^2.

    The vectors have `size` features and are wrong by the share `wrong` of their lengths: (1 + wrong)^2 - 1 <= 3 wrong.
    """
    return product(size) + 3 * wrong


def outside(square: float, inside: float, scale: float, error: float) -> float:
    """The length of the part of a vector that the projection does not hold.

    With a the part inside the projection and b the part outside, |<y, u> - <y_a, u_a>| <= |y_b| |u_b|. The projection
    is orthonormal, so |u_b|^2 = |u|^2 - |u_a|^2. The first term is known, and the second to within `error` of scale^2
    (`projected_product`). The vector is an average of vectors with the mean length `scale`, which is at least its own
    length.
    """
    return math.sqrt(max(square - inside, 0.0) + error * scale * scale)


def drift(moved: float, scale: float, root: float, inverse: float, centre: float) -> float:
    """The error of <y, u>, relative to |y| |u|, that rounding adds while a neuron moves and its products are updated.

    Move c takes a neuron to (1 - 1/c) u + y/c, and the mean length of its samples to scale' = (1 - 1/c) scale + |y|/c.
    So |y|/c <= scale' and scale <= 2 scale', and earlier errors shrink as fast as scale does. The prototype is rounded
    three times: once relative to its own length, which is at most scale' + centre root (the root of its size), and
    twice relative to |y - u|/c <= 3 scale': 7 scale' + centre root. Features and products are updated with the same
    three roundings and a rounded step: 8 scale'. Together this is less than 16 scale' + centre root for each move.
    """
    return U * moved * (16 * scale + centre * root) * inverse


def rough(error: float, spread: float) -> float:
    """The error of a cosine that was updated while its neuron moved, if cosines were wrong by `error` at first.

    A neuron is a sum of samples and of its earlier self, with weights that add up to spread = scale / |u| >= 1 times
    its length, and so is the error of its products. Its squared length is computed from one of the products and is
    wrong by error spread^2, which the root halves. spread + spread^2 / 2 <= 1.5 spread^2.
    """
    return 1.5 * error * spread * spread


def lost(turns: float, spread: float, inverse: float, root: float, centre: float, unit: float) -> float:
    """As `drift`, relative to |y| |u|, where squared lengths are updated too; spread is scale times inverse.

    A squared length is a sum of three terms of at most scale^2 each, and is rounded five times in all. Its inverse root
    has half of that error: 4 spread^2, with the rounding of the root.
    """
    return unit * turns * (16 * spread + 4 * spread * spread + centre * root * inverse)
