"""Each family is known by the names that its GGUFs carry, and users' own families come first."""

import gguf
import pytest

from corral.errors import UsageError
from corral.gguf_header import GGUFHeader
from corral.models.profiles import (
    builtin_profiles,
    find_profile,
    user_profiles,
    user_profiles_path,
)

WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
REPRESENT = "Represent this sentence for searching relevant passages: "

# The model's id on the hub, its architecture in llama.cpp, and its family.
FAMILIES = [
    ("sentence-transformers/all-MiniLM-L6-v2", "bert", "all-minilm-l6"),
    ("sentence-transformers/all-MiniLM-L12-v2", "bert", "all-minilm-l12"),
    ("sentence-transformers/multi-qa-MiniLM-L6-cos-v1", "bert", "multi-qa-minilm"),
    ("sentence-transformers/paraphrase-MiniLM-L6-v2", "bert", "paraphrase-minilm"),
    ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "bert", "paraphrase-minilm"),
    ("sentence-transformers/all-mpnet-base-v2", "mpnet", "all-mpnet"),
    ("sentence-transformers/paraphrase-multilingual-mpnet-base-v2", "bert", "paraphrase-mpnet"),
    ("intfloat/e5-small-v2", "bert", "e5"),
    ("intfloat/e5-large", "bert", "e5"),
    ("intfloat/multilingual-e5-small", "bert", "multilingual-e5"),
    ("intfloat/multilingual-e5-large", "bert", "multilingual-e5"),
    ("intfloat/multilingual-e5-large-instruct", "bert", "multilingual-e5-instruct"),
    ("intfloat/e5-mistral-7b-instruct", "llama", "e5-mistral-instruct"),
    ("BAAI/bge-small-en-v1.5", "bert", "bge-en"),
    ("BAAI/bge-base-en-v1.5", "bert", "bge-en"),
    ("BAAI/bge-large-en", "bert", "bge-en"),
    ("BAAI/bge-large-zh-v1.5", "bert", "bge-zh"),
    ("BAAI/bge-m3", "bert", "bge-m3"),
    ("BAAI/bge-reranker-base", "bert", "bge-reranker"),
    ("BAAI/bge-reranker-v2-m3", "bert", "bge-reranker-v2-m3"),
    ("nomic-ai/nomic-embed-text-v1", "nomic-bert", "nomic-embed-text-v1"),
    ("nomic-ai/nomic-embed-text-v1.5", "nomic-bert", "nomic-embed-text-v1_5"),
    ("nomic-ai/nomic-embed-text-v2-moe", "nomic-bert-moe", "nomic-embed-text-v2"),
    ("mixedbread-ai/mxbai-embed-large-v1", "bert", "mxbai-embed-large"),
    ("Snowflake/snowflake-arctic-embed-xs", "bert", "snowflake-arctic-embed"),
    ("Snowflake/snowflake-arctic-embed-m-v1.5", "bert", "snowflake-arctic-embed-v1_5"),
    ("Snowflake/snowflake-arctic-embed-m-long", "nomic-bert", "snowflake-arctic-embed-long"),
    ("Snowflake/snowflake-arctic-embed-l-v2.0", "bert", "snowflake-arctic-embed-l-v2"),
    ("Snowflake/snowflake-arctic-embed-m-v2.0", "new", "snowflake-arctic-embed-m-v2"),
    ("thenlper/gte-small", "bert", "gte"),
    ("thenlper/gte-large-zh", "bert", "gte"),
    ("Alibaba-NLP/gte-modernbert-base", "modern-bert", "gte-modernbert"),
    ("Alibaba-NLP/gte-reranker-modernbert-base", "modern-bert", "gte-reranker-modernbert"),
    ("Alibaba-NLP/gte-Qwen2-1.5B-instruct", "qwen2", "gte-qwen2-instruct"),
    ("jinaai/jina-embeddings-v2-base-de", "jina-bert-v2", "jina-embeddings-v2"),
    ("jinaai/jina-embeddings-v3", "jina-bert-v3", "jina-embeddings-v3"),
    ("jinaai/jina-embeddings-v4", "qwen2vl", "jina-embeddings-v4"),
    ("jinaai/jina-embeddings-v4-text-retrieval-GGUF", "qwen2vl", "jina-embeddings-v4"),
    (
        "jinaai/jina-embeddings-v4-text-matching-GGUF",
        "qwen2vl",
        "jina-embeddings-v4-text-matching",
    ),
    ("jinaai/jina-reranker-v1-turbo-en", "jina-bert-v2", "jina-reranker-v1"),
    ("jinaai/jina-reranker-v2-base-multilingual", "bert", "jina-reranker-v2"),
    ("Qwen/Qwen3-Embedding-0.6B", "qwen3", "qwen3-embedding"),
    ("Qwen/Qwen3-Embedding-8B-GGUF", "qwen3", "qwen3-embedding"),
    ("Qwen/Qwen3-Reranker-4B", "qwen3", "qwen3-reranker"),
    ("google/embeddinggemma-300m", "gemma-embedding", "embeddinggemma"),
    ("cross-encoder/ms-marco-MiniLM-L6-v2", "bert", "ms-marco-minilm"),
    ("cross-encoder/ms-marco-MiniLM-L-12-v2", "bert", "ms-marco-minilm"),
]


def header(architecture="bert", **general):
    pairs = {f"general.{key}": value for key, value in general.items()}
    return GGUFHeader({"general.architecture": architecture, **pairs}, {}, 0)


def stock_header(hub_id, architecture):
    """What llama.cpp's converter writes for a model's id."""
    full, _, basename, *_ = gguf.Metadata.get_model_id_components(hub_id, 0)
    names = {"name": gguf.Metadata.id_to_title(full)}
    return header(architecture, **names, **({"basename": basename} if basename else {}))


def profile(name):
    return next(profile for profile in builtin_profiles() if profile.name == name)


@pytest.fixture
def users_file(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    monkeypatch.setenv("CORRAL_PROFILES", str(path))
    return path


# Built-in families


@pytest.mark.parametrize(("hub_id", "architecture", "family"), FAMILIES)
def test_a_gguf_by_the_stock_converter_is_known(hub_id, architecture, family):
    assert find_profile(stock_header(hub_id, architecture)).name == family


@pytest.mark.parametrize(("hub_id", "architecture", "family"), FAMILIES)
def test_a_gguf_named_by_its_id_is_known(hub_id, architecture, family):
    repo = hub_id.partition("/")[2]
    for name in (hub_id, repo, repo.lower(), f"{repo}-Q8_0", f"{repo}-f16"):
        assert find_profile(header(architecture, name=name)).name == family


@pytest.mark.parametrize(("hub_id", "architecture", "family"), FAMILIES)
def test_no_other_family_claims_it(hub_id, architecture, family):
    made = header(architecture, name=hub_id)

    claims = {p.name for p in builtin_profiles() if p.matches(hub_id, made)}

    assert claims == {family}


def test_every_family_is_among_those_tested():
    assert {profile.name for profile in builtin_profiles()} == {family for *_, family in FAMILIES}


def test_a_family_known_by_its_basename_alone_is_found_after_the_name():
    assert find_profile(header("qwen3", name="Model", basename="Qwen3-Embedding")).name == (
        "qwen3-embedding"
    )
    instruct = header(name="Multilingual E5 Large Instruct", basename="multilingual-e5")
    assert find_profile(instruct).name == "multilingual-e5-instruct"


@pytest.mark.parametrize(
    "unknown",
    [
        header(name="My own model"),
        header(),
        header(name=7),
        header("llama", name="all-MiniLM-L6-v2"),
        header(name="not-all-MiniLM-L6-v2"),
        header("qwen3", name="Qwen3 0.6B"),
    ],
)
def test_other_models_have_no_profile(unknown):
    assert find_profile(unknown) is None


def test_every_family_names_its_model_card():
    assert all(p.source.startswith("https://huggingface.co/") for p in builtin_profiles())


@pytest.mark.parametrize(
    ("name", "query", "document"),
    [
        ("all-minilm-l6", "", ""),
        ("e5", "query: ", "passage: "),
        ("multilingual-e5", "query: ", "passage: "),
        ("multilingual-e5-instruct", f"Instruct: {WEB_SEARCH}\nQuery: ", ""),
        ("bge-en", REPRESENT, ""),
        ("bge-zh", "为这个句子生成表示以用于检索相关文章：", ""),  # noqa: RUF001 - the card's own
        ("bge-m3", "", ""),
        ("nomic-embed-text-v1_5", "search_query: ", "search_document: "),
        ("nomic-embed-text-v2", "search_query: ", "search_document: "),
        ("mxbai-embed-large", REPRESENT, ""),
        ("snowflake-arctic-embed", REPRESENT, ""),
        ("snowflake-arctic-embed-l-v2", "query: ", ""),
        ("gte", "", ""),
        (
            "jina-embeddings-v3",
            "Represent the query for retrieving evidence documents: ",
            "Represent the document for retrieval: ",
        ),
        ("jina-embeddings-v4", "Query: ", "Passage: "),
        ("qwen3-embedding", f"Instruct: {WEB_SEARCH}\nQuery:", ""),
        ("embeddinggemma", "task: search result | query: ", "title: none | text: "),
    ],
)
def test_prefixes_are_the_model_cards(name, query, document):
    found = profile(name)

    assert (found.query_prefix, found.document_prefix) == (query, document)


def test_minilm_takes_256_tokens_and_was_trained_for_one_dimension():
    minilm = profile("all-minilm-l6")

    assert (minilm.max_tokens, minilm.trained_dims, minilm.pooling_type) == (256, (), "mean")


def test_nomic_v1_5_has_a_layer_norm_before_its_trained_cuts():
    nomic = profile("nomic-embed-text-v1_5")

    assert nomic.layer_norm
    assert nomic.trained_dims == (64, 128, 256, 512, 768)


def test_rerankers_and_they_alone_say_what_their_scores_are():
    for found in builtin_profiles():
        assert (found.score is not None) == (found.pooling_type == "rank")
    assert profile("qwen3-reranker").score == "probability"
    assert profile("bge-reranker-v2-m3").score == "logit"


def test_jina_v3_says_that_its_adapters_are_not_loaded():
    assert "LoRA" in profile("jina-embeddings-v3").note


# Users' own


def test_a_users_family_wins_over_a_built_in_one(users_file):
    users_file.write_text(
        '[mine]\nsource = "https://example.org"\nmatch = ["all-minilm-.*"]\n'
        'query_prefix = "q: "\ntrained_dims = [128, 384]\nlayer_norm = true\n'
    )

    found = find_profile(header(name="all-MiniLM-L6-v2"))

    assert (found.name, found.query_prefix, found.trained_dims, found.layer_norm) == (
        "mine",
        "q: ",
        (128, 384),
        True,
    )


def test_a_users_family_can_ask_for_a_width(users_file):
    users_file.write_text(
        '[wide]\nsource = "x"\nmatch = ["model"]\nembedding_length = 1024\n'
        '[narrow]\nsource = "x"\nmatch = ["model"]\nembedding_length = 384\n'
    )
    made = GGUFHeader(
        {"general.architecture": "bert", "general.name": "Model", "bert.embedding_length": 384},
        {},
        0,
    )

    assert find_profile(made).name == "narrow"


def test_no_file_means_no_families_of_ones_own(monkeypatch, tmp_path):
    monkeypatch.delenv("CORRAL_PROFILES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert user_profiles() == ()
    assert user_profiles_path().name == "profiles.toml"


def test_a_file_that_was_named_must_be_there(users_file):
    with pytest.raises(UsageError, match=rf"CORRAL_PROFILES names {users_file}.*no such file"):
        user_profiles()


def test_a_file_that_cannot_be_read_is_named(users_file):
    users_file.mkdir()

    with pytest.raises(UsageError, match=rf"{users_file} cannot be read"):
        user_profiles()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mine", r"mine\.toml is not TOML"),
        ("mine = 1", r"mine\.toml: mine must be a table"),
        ('[mine]\nsource = "x"', r"mine\.toml, table \[mine\]: the key 'match' is missing"),
        ('[mine]\nmatch = ["x"]', r"table \[mine\]: the key 'source' is missing"),
        ('[mine]\nprefix = "x"', r"table \[mine\]: unknown key 'prefix'; known are source, match"),
    ],
)
def test_a_users_file_that_is_not_valid_is_refused(users_file, text, message):
    users_file.write_text(text)

    with pytest.raises(UsageError, match=message):
        user_profiles()


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("match", '"x"', "a list of regular expressions"),
        ("match", '["("]', "a list of regular expressions"),
        ("match", "[1]", "a list of regular expressions"),
        ("architectures", "[]", "a list of texts"),
        ("embedding_length", "0", "a positive whole number"),
        ("query_prefix", "1", "a text"),
        ("trained_dims", "[128, -1]", "a list of positive whole numbers"),
        ("trained_dims", "[true]", "a list of positive whole numbers"),
        ("pooling_type", '"max"', "one of none, mean, cls, last, rank"),
        ("pooling_type", "[1]", "one of none, mean, cls, last, rank"),
        ("max_tokens", '"many"', "a positive whole number"),
        ("layer_norm", '"yes"', "true or false"),
        ("score", '"cosine"', "one of logit, probability"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_file_table_and_key(users_file, key, value, wanted):
    rest = {"source": '"x"', "match": '["x"]', key: value}
    users_file.write_text("[mine]\n" + "".join(f"{k} = {v}\n" for k, v in rest.items()))

    with pytest.raises(UsageError, match=rf"mine\.toml, table \[mine\], key '{key}'.*{wanted}"):
        user_profiles()
