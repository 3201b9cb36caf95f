"""From rows of a classification head to scores, without a model."""

import numpy as np
import pytest

from corral.engine.scores import Head, choose_label, read_labels
from corral.errors import GGUFError, UsageError
from corral.gguf_header import GGUFHeader


def header(architecture="bert", labels=None):
    metadata = {"general.architecture": architecture}
    if labels:
        metadata[f"{architecture}.classifier.output_labels"] = labels
    return GGUFHeader(metadata, {}, 0)


def rows(*values):
    return np.array(values, dtype=np.float32)


def softmax(values):
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_one_logit_is_the_raw_score_and_its_sigmoid_the_probability():
    head = Head(n_labels=1, label=0, softmaxed=False)
    logits = rows([-2.0], [0.0], [3.0])
    np.testing.assert_array_equal(head.raw(logits), logits[:, 0])
    np.testing.assert_allclose(head.probability(logits), 1 / (1 + np.exp(-logits[:, 0])), rtol=1e-6)


@pytest.mark.parametrize("label", [0, 1])
def test_two_logits_give_log_odds_and_their_softmax(label):
    head = Head(n_labels=2, label=label, softmaxed=False)
    logits = rows([1.0, 2.5], [-3.0, 4.0])
    np.testing.assert_allclose(head.raw(logits), logits[:, label] - logits[:, 1 - label])
    np.testing.assert_allclose(head.probability(logits), softmax(logits)[:, label], rtol=1e-6)


def test_several_logits_give_the_labels_own_and_their_softmax():
    head = Head(n_labels=3, label=2, softmaxed=False)
    logits = rows([1.0, 2.5, 0.5], [-3.0, 4.0, 9.0])
    np.testing.assert_array_equal(head.raw(logits), logits[:, 2])
    np.testing.assert_allclose(head.probability(logits), softmax(logits)[:, 2], rtol=1e-6)


def test_a_softmax_in_the_graph_is_not_taken_again_and_is_undone_for_raw():
    head = Head(n_labels=2, label=0, softmaxed=True)
    logits = np.array([[1.0, 2.5], [-3.0, 4.0], [20.0, 0.0]])
    shares = softmax(logits).astype(np.float32)
    np.testing.assert_array_equal(head.probability(shares), shares[:, 0])
    np.testing.assert_allclose(head.raw(shares), logits[:, 0] - logits[:, 1], rtol=1e-5)


def test_of_several_softmaxed_labels_raw_is_the_log_odds():
    head = Head(n_labels=3, label=1, softmaxed=True)
    np.testing.assert_allclose(head.raw(rows([0.25, 0.5, 0.25])), [0.0], atol=1e-6)
    np.testing.assert_allclose(head.raw(rows([0.1, 0.8, 0.1])), [np.log(4)], rtol=1e-5)


@pytest.mark.parametrize("certain", [[1.0, 0.0], [0.0, 1.0]])
def test_a_certain_answer_has_a_finite_raw_score(certain):
    found = Head(n_labels=2, label=0, softmaxed=True).raw(rows(certain))
    assert np.isfinite(found).all()
    assert np.sign(found[0]) == (1 if certain[0] else -1)


def test_huge_logits_have_a_probability():
    found = Head(n_labels=1, label=0, softmaxed=False).probability(rows([1e30], [-1e30]))
    np.testing.assert_array_equal(found, [1.0, 0.0])


def test_no_rows_give_no_scores():
    head = Head(n_labels=1, label=0, softmaxed=False)
    nothing = np.empty((0, 1), dtype=np.float32)
    assert head.raw(nothing).shape == head.probability(nothing).shape == (0,)


@pytest.mark.parametrize(
    ("labels", "n_labels", "wanted", "index"),
    [
        ([], 1, None, 0),
        (["LABEL_0"], 1, None, 0),
        (["yes", "no"], 2, None, 0),
        (["No", "Yes"], 2, None, 1),
        (["yes", "no"], 2, "NO", 1),
        (["bad", "fair", "good"], 3, "good", 2),
        (["bad", "fair", "good"], 3, 1, 1),
        ([], 2, 1, 1),
    ],
)
def test_the_label_is_the_only_one_or_yes_or_the_named_one(labels, n_labels, wanted, index):
    assert choose_label(labels, n_labels, wanted) == index


@pytest.mark.parametrize(
    ("labels", "n_labels", "wanted", "says"),
    [
        (["bad", "fair", "good"], 3, None, "label=: 'bad', 'fair', 'good'"),
        ([], 2, None, "label=: numbers 0 to 1"),
        (["bad", "good"], 2, "best", "label 'best' is unknown; the model has 'bad', 'good'"),
        (["bad", "good"], 2, 2, "label 2 is unknown"),
        ([], 1, "yes", "label 'yes' is unknown; the model has numbers 0 to 0"),
    ],
)
def test_a_label_that_is_not_there_or_not_plain_is_refused(labels, n_labels, wanted, says):
    with pytest.raises(UsageError, match=says):
        choose_label(labels, n_labels, wanted)


def test_labels_come_from_the_file():
    assert read_labels(header("qwen3", ["yes", "no"])) == ["yes", "no"]
    assert read_labels(header("bert")) == []


def test_qwen3_is_known_to_take_the_softmax_itself():
    assert Head.of(header("qwen3", ["yes", "no"]), 2, None) == Head(2, 0, softmaxed=True)
    assert Head.of(header("bert", ["no", "yes"]), 2, None) == Head(2, 1, softmaxed=False)


def test_a_softmax_over_one_label_is_refused():
    with pytest.raises(GGUFError, match="every score would be 1"):
        Head.of(header("qwen3"), 1, None)
