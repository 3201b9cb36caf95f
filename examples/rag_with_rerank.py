"""Answer a question from the demo's collection: retrieve, rerank, ask a chat model.

make demo
.venv/bin/python examples/rag_with_rerank.py RERANKER.gguf "how long does fencing wire last?"

The chat model here is LangChain's parrot, which says what it is asked, so that the prompt can be
read. Put yours in its place.
"""

import sys
from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import ParrotFakeChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from corral import CorralRetriever, GGUFReranker

PROMPT = ChatPromptTemplate.from_template(
    "Answer from these notes alone, and name the file.\n\n{notes}\n\nQuestion: {question}"
)


def notes_of(documents: Sequence[Document]) -> str:
    """Put the chunks into the prompt, each under the name of its file."""
    return "\n\n".join(
        f"[{document.metadata['source']}]\n{document.page_content}" for document in documents
    )


def main(reranker: str, question: str) -> None:
    """Print the answer."""
    with (
        GGUFReranker(reranker) as best,
        CorralRetriever(
            path="./qdrant_data", collection="demo", k=3, reranker=best, fetch_k=12
        ) as retriever,
    ):
        chain = (
            {"notes": retriever | notes_of, "question": RunnablePassthrough()}
            | PROMPT
            | ParrotFakeChatModel()
            | StrOutputParser()
        )
        print(chain.invoke(question))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    main(sys.argv[1], " ".join(sys.argv[2:]) or "what does the ewe eat in winter?")
