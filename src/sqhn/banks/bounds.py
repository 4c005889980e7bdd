"""Why decisions are exact: every error bound, with its derivation.

A decision is taken twice. Cheap float32 products rule out every neuron that cannot be best; the rest is evaluated in
float64 from the stored vectors, and that decides. So a bound is never part of a result: one too wide costs time, one
too small would be a wrong result. All of them are here, as plain arithmetic that kernels of both kinds can compile, so
none that they need calls another.

A rounding is wrong by a factor of 1 + delta with |delta| <= U, and n of them in a row by at most gamma(n). y is a
sample and u a neuron, both less the centre; |.| is the length of a vector. The inequality that most of them end in is
that of Cauchy and Schwarz, |<y, u>| <= |y| |u|.

Vectors shorter than SHORT are left to float64. For others, what underflow adds to a product, 2^-150 for each value, is
less than U / 2^40 of |y| |u|, and disappears in what is rounded up below.
"""

from __future__ import annotations

import math

U = 2.0**-24
"""Half the distance of 1 and the next float32."""
U64 = 2.0**-53
"""The same of float64."""
SHORT = 1e-12
"""Length of a short vector, whose float32 products cannot be trusted: they may underflow."""


def gamma(n: float, unit: float = U) -> float:
    """n unit / (1 - n unit), which is at most 2 n unit for n up to 2^23 in float32: the error of n roundings."""
    return 2 * n * unit


def product(d: int, unit: float = U) -> float:
    """The error of <y, u> of d values, by |y| |u|; or of their cosine.

    d products and their sum, in any order: gamma(d) times the sum of |y_i u_i|, which is at most |y| |u|. Both vectors
    were rounded when the centre was taken off, or when they were made unit vectors: 2 more. An inverse length and the
    product with it: 2 more. The remaining 12 are for what is done with the result: a bound is a sum of three, and
    compared with a bar that is itself rounded, and with TIE to spare.
    """
    return 2 * (d + 16) * unit  # gamma(d + 16)


def masked_product(d: int, unit: float = U) -> float:
    """The error of <y, u> / |u| over the observed values, by |y| there.

    The product's; and that of |u|^2, a sum of d squares, of which the root has half.
    """
    return 4 * (d + 16) * unit


def uncentred_product(d: int, centre: float, inverse: float) -> float:
    """The error of <y, m> - centre sum(y), by |y| |u|; 1 / |u| is at most `inverse`.

    It is that of <y, m>, gamma(d) |y| |m|, where |m| <= |u| + centre sqrt(d); of the sum, U centre sqrt(d) |y|; and of
    the difference, U times both: together gamma(d + 3) |y| (|u| + centre sqrt(d)).
    """
    return product(d) * (1 + centre * math.sqrt(d) * inverse)


def half_square(error: float, length: float, square: float) -> float:
    """The error of <x, m> - |m|^2 / 2, of a sample of that length and a neuron of that square.

    |x - m|^2 = |x|^2 - 2 (<x, m> - |m|^2 / 2), so the larger it is, the nearer they are. The product is wrong by error
    |x| |m| (`product`, `masked_product`); the square, a sum that is known as well as the product or better, by no more
    than error |m|^2. The rounding of their sum is within the slack of these bounds.
    """
    return error * (length * math.sqrt(square) + square)


def difference(d: int) -> float:
    """The error of |x - m|^2 from differences of d values in float32, by what it is.

    A difference of two float32 is rounded once, its square twice more, the sum d times: gamma(d + 4). The rest is for
    what is done with it (`product`).
    """
    return 2 * (d + 16) * U  # gamma(d + 16)


def rounded(square: float, most: float) -> float:
    """The error of (|x|^2 - most) / 2 in float32: twice the rounding of both, once as a bar and once as a bound."""
    return 4 * U * (square + most)


def features(blocks: list[int]) -> float:
    """The error of a vector of features, by |y|.

    The centre is taken off, rows are added in pairs and scaled: 4 roundings. Then steps, each of which multiplies
    blocks of n values with k <= n orthonormal columns: a feature is wrong by gamma(n) |z| and by the rounding of the
    columns, U |z|, where z is its block; k features together by (n + 1) sqrt(n) U |z|. As n is small, so is the
    difference of gamma(n) and n U: 12 are left for that.
    """
    return U * (16 + sum((n + 1) * math.sqrt(n) for n in blocks))


def projected_product(size: int, wrong: float) -> float:
    """The error of a product of feature vectors, by |y| |u|, and of the square of one, by its |u|^2.

    `size` features; both vectors are wrong by `wrong` of their lengths: (1 + wrong)^2 - 1 <= 3 wrong.
    """
    return product(size) + 3 * wrong


def outside(square: float, inside: float, scale: float, error: float) -> float:
    """The length of a vector outside the view: |<y, u> - <y_a, u_a>| <= |y_b| |u_b| for parts a inside and b outside.

    The view is orthonormal: |u_b|^2 = |u|^2 - |u_a|^2. The first is known, the second to within `error` of scale^2
    (`projected_product`); the vector was added up from others of mean length `scale`, which is at least its own.
    """
    return math.sqrt(max(square - inside, 0.0) + error * scale * scale)


def drift(moved: float, scale: float, root: float, inverse: float, centre: float) -> float:
    """The error of <y, u> by |y| |u| that rounding has added while a neuron moved and its products followed.

    Move c takes a neuron to (1 - 1/c) u + y/c, and what it was added up from to scale' = (1 - 1/c) scale + |y|/c: so
    |y|/c <= scale', scale <= 2 scale', and whatever was wrong before shrinks as fast as scale does. The prototype is
    rounded three times, the last relative to its own length, at most scale' + centre root (the root of its size), the
    others to |y - u|/c <= 3 scale': 7 scale' + centre root. Features and products follow with the same three and a
    rounded step: 8 scale'. Together less than 16 scale' + centre root for each move.
    """
    return U * moved * (16 * scale + centre * root) * inverse


def rough(error: float, spread: float) -> float:
    """The error of a cosine that was followed while its neuron moved, if cosines were wrong by `error` at first.

    A neuron is a sum of samples and of itself, with weights that add up to spread = scale / |u| >= 1 of its length: so
    is the error of its products. Its squared length is computed from one of them, wrong by error spread^2, of which
    the root has half. spread + spread^2 / 2 <= 1.5 spread^2.
    """
    return 1.5 * error * spread * spread


def lost(turns: float, spread: float, inverse: float, root: float, centre: float, unit: float) -> float:
    """As `drift`, by |y| |u|, where squared lengths are followed too; `drift` with spread = scale inverse.

    A squared length is a sum of three terms that are not more than scale^2, rounded five times in all; its inverse root
    has half of that, 4 spread^2 with the root's own.
    """
    return unit * turns * (16 * spread + 4 * spread * spread + centre * root * inverse)
