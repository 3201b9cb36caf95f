"""Ask the demo's collection several questions at once, from an event loop that stays free.

make demo
.venv/bin/python examples/async_questions.py "when are the sheep shorn?" "what do dogs eat?"
"""

import asyncio
import sys
from collections.abc import Sequence

from corral import CorralRetriever

QUESTIONS = ("when are the sheep shorn?", "what does the ewe eat in winter?")


async def main(questions: Sequence[str]) -> None:
    """Print the best chunk for each question."""
    with CorralRetriever(path="./qdrant_data", collection="demo", k=1) as retriever:
        answers = await asyncio.gather(*(retriever.ainvoke(question) for question in questions))
    for question, (best,) in zip(questions, answers, strict=True):
        print(f"{question}\n       {best.metadata['source']}: {best.page_content[:70]!r}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or QUESTIONS))
