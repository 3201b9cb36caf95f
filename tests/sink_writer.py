"""A child process that writes to an embedded folder until it is killed.

It says how many records were acknowledged.

python sink_writer.py FOLDER
"""

import sys

from sink_contract import SCHEMA, record

from corral_sinks import SinkOptions
from corral_sinks.qdrant import QdrantSink

BATCH = 64


def main(folder: str) -> None:
    sink = QdrantSink(SinkOptions(collection="docs", path=folder))
    sink.create(SCHEMA)
    for batch in range(100_000):
        sink.upsert([record(batch * BATCH + number) for number in range(BATCH)])
        if batch % 7 == 0:
            sink.flush()
        sys.stdout.write(f"{(batch + 1) * BATCH}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
