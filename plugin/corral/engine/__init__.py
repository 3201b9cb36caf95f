"""Everything llama.cpp: from token ids to rows of floats."""
