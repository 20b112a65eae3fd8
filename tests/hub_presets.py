# SPDX-License-Identifier: Apache-2.0
"""Small presets of KerasHub with random weights."""

import keras


def save_bert(folder, words):
    """Saves one of texts.

    Args:
        folder: where to.
        words: that it tells apart.

    Returns:
        Its preprocessor and its backbone.
    """
    import keras_hub

    keras.utils.set_random_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        keras_hub.models.BertTokenizer(vocabulary=vocabulary, lowercase=True),
        sequence_length=8,
    )
    network = keras_hub.models.BertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=8,
        max_sequence_length=8,
    )
    keras_hub.models.BertTextClassifier(
        backbone=network, preprocessor=preprocessor, num_classes=3
    ).save_to_preset(folder)
    return preprocessor, network
