# SPDX-License-Identifier: Apache-2.0
"""Seeds for the layers of a network, all from one."""

import keras


def seed_sequence(seed):
    """Yields whole numbers: the same ones for the same seed.

    Example:

    >>> one, two = seed_sequence(7), seed_sequence(7)
    >>> [next(one), next(one)] == [next(two), next(two)]
    True
    """
    generator = keras.random.SeedGenerator(seed)
    while True:
        number = keras.random.randint((), 0, 2**31 - 1, seed=generator)
        yield int(keras.ops.convert_to_numpy(number))
